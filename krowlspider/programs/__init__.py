"""The programs behind the commands that do not crawl: ``scrapy corpus``, ``frontier``, ``ring``,
``seeds``, ``top`` and ``warc``."""
