"""Scrapy extensions of krowlspider: one file, one extension."""
