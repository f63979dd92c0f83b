"""Find out whether this machine has a route for IPv4, and for IPv6."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import EXHAUSTED

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds for which what was found holds.
HELD = 60.0
# Addresses of a.root-servers.net. Any address of the public internet does, as nothing is sent.
_PUBLIC = {4: "198.41.0.4", 6: "2001:503:ba3e::2:30"}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_PORT = 53


def version_of(address: str) -> int:
    """Return the version of IP of an address: 4 or 6."""
    return 6 if ":" in address else 4


def has_route(version: int) -> bool | None:
    """Return whether packets can be sent to the internet over a version of IP; None if there is no
    socket left to find out.

    A datagram socket can be connected only where there is a route and an address to send from.
    """
    try:
        with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as end:
            end.connect((_PUBLIC[version], _PORT))
            source = ip_address(end.getsockname()[0].partition("%")[0])
    except OSError as error:
        return None if error.errno in EXHAUSTED else False
    # From these addresses nothing leaves the machine, or the link.
    return not (source.is_loopback or source.is_link_local)


class Routes:
    """Holds for a minute over which versions of IP this machine reaches the internet.

    ``look`` is as `has_route`; ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[int], bool | None] = has_route,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._look = look
        self._clock = clock
        self._found = {4: True, 6: False}
        self._look_at = clock()

    def has(self, version: int) -> bool:
        """Return whether there is a route for IPv4 (4) or IPv6 (6)."""
        if self._clock() >= self._look_at:
            self.look_again()
        return self._found[version]

    def first(self) -> int:
        """Return the version to try first: 6 if there is a route for that alone, otherwise 4."""
        return 4 if self.has(4) or not self._found[6] else 6

    def look_again(self) -> None:
        """Find the routes out anew: a failure shows that they may have changed."""
        self._look_at = self._clock() + HELD
        for version in self._found:
            if (found := self._look(version)) is not None:
                self._found[version] = found
