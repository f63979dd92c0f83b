"""URLs: their normal form, identity, host and domain, and reading them from pages and seed lines.

This package is pure. It uses no clock, no randomness and no Scrapy, and its only I/O is to read
the suffix list at import.
"""
