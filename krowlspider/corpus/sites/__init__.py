"""What sites say of all their pages: Content-Signal in robots.txt, and ai.txt.

Workers look for these files in each WARC file (`scan`), before its pages are read. The newest
answer of each host is kept (`index`), and workers look up the host of each page there.
"""
