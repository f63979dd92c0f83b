"""Fetch through a proxy. A crawl imports this room with its first request through one."""
