"""Several nodes that crawl as one: who owns which domain, and how URLs come to their owner."""
