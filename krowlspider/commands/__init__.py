"""Scrapy subcommands of krowlspider, one file each; `crawl` replaces the one of Scrapy."""
