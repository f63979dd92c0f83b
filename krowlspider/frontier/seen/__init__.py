"""The seen set: a Bloom filter that decides, and the identities on disk that rebuild it."""
