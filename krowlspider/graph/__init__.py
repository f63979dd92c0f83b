"""The graph of hosts and domains that the links of a crawl make, and ranks by it."""
