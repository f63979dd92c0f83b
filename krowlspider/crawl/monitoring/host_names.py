"""The names by which clients may ask a server: those in the Host header of their requests.

Another site's page can lead a browser here by a name of its own, whose DNS answer is the address of
this server. Then the browser takes the server for that site, and lets the page read the answers.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Return whether an address to listen at is reached by this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HostNames(Struct, frozen=True):
    """The ``names`` of a server, beside the address at which a request has reached it.

    With ``is_local`` it is asked by loopback addresses and localhost alone.
    """

    names: frozenset[str] = frozenset()
    is_local: bool = True

    @classmethod
    def of(cls, listens_at: str, more: Iterable[str] = ()) -> HostNames:
        """Return the names of a server that listens at an address or name, with ``more`` that a
        person gives."""
        own = {listens_at, socket.gethostname(), *more}
        return cls(frozenset(map(_plain, own)), is_loopback(listens_at) and not [*more])

    def has(self, header: str, reached: str) -> bool:
        """Return whether a Host header is a name of this server, which was ``reached`` at an
        address."""
        if (found := _HOST.fullmatch(header)) is None:
            return False
        name, own = _plain(found[1]), _plain(reached)
        if is_loopback(own) and is_loopback(name):
            return True
        return not self.is_local and (name in self.names or name == own)


def _plain(name: str) -> str:
    name = name.lower().strip("[]").removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
