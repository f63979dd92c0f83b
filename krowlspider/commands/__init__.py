"""Scrapy subcommands of krowlspider, one per file.

`bench`, `check`, `crawl`, `fetch`, `parse`, `runspider`, `shell` and `view` replace Scrapy's own.
"""
