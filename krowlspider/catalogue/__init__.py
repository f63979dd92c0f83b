"""Tables of what an archive holds: captures, hosts, robots.txt, sitemaps, links, changes, pages.

They are projections of finished WARC files and their indexes, made file by file. A sink keeps the
rows of each file: Parquet here, databases beside it.
"""
