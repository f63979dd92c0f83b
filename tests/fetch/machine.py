"""The routes of a machine of a test."""

from __future__ import annotations

from krowlspider.fetch.tcp import Routes


def routed(*versions: int) -> Routes:
    """Return the routes of a machine with IPv4 (4), IPv6 (6), both, or neither."""
    return Routes(lambda version: version in versions)
