"""What a URL is (normal form, identity, host, domain), and which a page or seed line gives.

This room is pure: no I/O beyond the suffix list read at import, no clock, no randomness, no Scrapy.
"""
