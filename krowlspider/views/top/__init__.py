"""``scrapy top``: what the live page shows, in a terminal."""
