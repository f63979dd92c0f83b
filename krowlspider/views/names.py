"""Names of hosts as people give them."""

from __future__ import annotations

from krowlspider.errors import KrowlError
from krowlspider.urls.rules.blocks import ordered_host


def named_host(name: str) -> str:
    """Return the host of a name or a URL, as written in the frontier; without a port, the one of
    both default ports.

    :raises KrowlError: ``name`` is not the name of a host
    """
    host = order_name(name)
    bare, _, port = host.rpartition(":")
    return bare if port in {"80", "443"} and bare else host


def order_name(name: str) -> str:
    """Return what ``name`` covers in an order: a name at all its ports, or at the one given.

    :raises KrowlError: ``name`` is not the name of a host
    """
    try:
        return ordered_host(name)
    except ValueError as error:
        raise KrowlError(str(error)) from error


def whole_host(name: str, way_for_page: str) -> str:
    """Return what ``name`` covers, for a change to all URLs of its hosts.

    ``way_for_page`` says what to do with one URL.

    :raises KrowlError: ``name`` is not the name of a host, or has a scheme or a path
    """
    host = order_name(name)
    if not set(name).isdisjoint("/\\?#"):
        raise KrowlError(f"{name!r} is not a host: give {host!r} for all its URLs; {way_for_page}")
    return host
