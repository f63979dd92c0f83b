"""Fetching: DNS, the address guard, HTTP/1.1 exchanges kept byte for byte. Knows nothing of Scrapy."""

from __future__ import annotations
