"""A crawl for a program: ``async for page in crawl(seeds, contact=...)``.

The crawl runs in a process of its own. `crawls` is the side of the program: it imports neither
Scrapy nor Twisted. `child` is the side of the crawl, and `messages` is what the two say.
"""

from krowlspider.library.crawls import AsyncCrawl, BlockingCrawl, crawl, run
from krowlspider.library.page import Page, Record

__all__ = ["AsyncCrawl", "BlockingCrawl", "Page", "Record", "crawl", "run"]
