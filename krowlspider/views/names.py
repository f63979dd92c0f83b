"""Names of hosts as people give them."""

from __future__ import annotations

from krowlspider.errors import KrowlError
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of


def named_host(name: str) -> str:
    """Return the host of a name or a URL, as written in the frontier.

    :raises KrowlError: ``name`` is not the name of a host
    """
    url = normalise(name if "://" in name else f"http://{name}")
    if url is None:
        raise KrowlError(f"{name!r} is not the name of a host")
    return host_of(url)
