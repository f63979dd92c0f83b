"""Fetch URLs: DNS, the address guard, and HTTP/1.1 exchanges kept byte for byte.

`memory` keeps large responses in files. This package does not depend on Scrapy.
"""

from __future__ import annotations
