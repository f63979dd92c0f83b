"""Scrapy subcommands of krowlspider, one per file.

`bench`, `check`, `crawl`, `fetch`, `list`, `parse`, `runspider`, `settings`, `shell` and `view`
replace Scrapy's own.
"""
