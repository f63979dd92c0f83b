"""SQL over what a crawl has archived, and what its frontier holds."""
