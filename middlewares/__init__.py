"""Scrapy middlewares of krowlspider: one file of at most 60 lines, one middleware."""
