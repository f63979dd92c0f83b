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


def whole_host(name: str, way_for_page: str) -> str:
    """Return the host that ``name`` is, for a change to all of its URLs.

    ``way_for_page`` says what to do with one URL.

    :raises KrowlError: ``name`` is not the name of a host, or has a scheme or a path
    """
    host = named_host(name)
    if not set(name).isdisjoint("/\\?#"):
        raise KrowlError(f"{name!r} is not a host: give {host!r} for all its URLs; {way_for_page}")
    return host
