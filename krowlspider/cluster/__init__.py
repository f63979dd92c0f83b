"""Several nodes that crawl as one: who owns which domain, who is there, and how URLs come to their owner."""
