"""Scrapy middlewares of krowlspider: one file, one middleware."""
