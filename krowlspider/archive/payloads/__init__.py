"""Payloads: extraction, digests, and the indexes that turn a repeated payload into a revisit.

`payload_index` has the payloads of this crawl, `dedup_index` those of other crawls.
"""
