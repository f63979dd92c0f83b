"""The archive: write captures to WARC/1.1 files; index, mend, check, pack, upload and read these.

It depends neither on Scrapy nor on the frontier, nor on how a page was fetched.
"""
