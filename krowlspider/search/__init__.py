"""Full-text search over what a crawl has archived."""
