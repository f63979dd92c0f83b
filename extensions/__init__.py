"""Scrapy extensions of krowlspider: one file of at most 60 lines, one extension."""
