"""Snapshots of a crawl's folder: `taking` one, while the crawl is `running` too; `restoring`."""
