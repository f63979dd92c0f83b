"""What ``scrapy ring`` asks of a cluster, and prints."""
