"""Payloads: extraction, digests, and the index that turns a repeated payload into a revisit."""
