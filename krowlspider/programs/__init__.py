"""The programs behind the commands that do not crawl: ``scrapy corpus``, ``frontier``, ``ring``,
``top`` and ``warc``."""
