"""data: URLs (RFC 2397): they hold their content, so nothing is fetched for them.

The frontier queues by host, so they are queued under http URLs of a host that cannot exist.
"""

from __future__ import annotations

from hashlib import sha1

# RFC 6761, section 6.4: no name in this domain resolves.
DATA_HOST = "data.invalid"


def is_data(url: str) -> bool:
    """Return whether a URL is a data: URL."""
    return url.startswith("data:")


def queued_as(url: str) -> str:
    """Return the normalised http URL under which a data: URL is queued."""
    digest = sha1(url.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return f"http://{DATA_HOST}/{digest.hexdigest()}"
