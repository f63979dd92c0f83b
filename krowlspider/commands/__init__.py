"""Scrapy subcommands of krowlspider, one per file.

`crawl`, `fetch`, `parse`, `shell` and `view` replace Scrapy's own.
"""
