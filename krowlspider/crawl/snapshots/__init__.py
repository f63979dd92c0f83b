"""Snapshots of a crawl's folder: taken, while the crawl is `running` too, and restored."""
