"""The seen set: a Bloom filter that decides, and the keys on disk that rebuild it."""
