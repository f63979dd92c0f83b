"""The archive room: captures become WARC/1.1 files, which are mended, checked and read back here.

It knows nothing of Scrapy, of the frontier or of how a page was fetched.
"""
