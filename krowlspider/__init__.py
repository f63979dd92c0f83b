"""Broad crawls with Scrapy: polite to every host, durable at every kill, archived as WARC."""

__version__ = "0.2.0"
