"""The report of a crawl: what became of its pages, hosts and seeds, and how it went over time."""
