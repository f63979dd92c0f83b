"""Bound the number of ports of one address that links may lead to."""

from __future__ import annotations

from collections import OrderedDict

# Ports of one address that links may lead to, by any names: the crawler must not become a port
# scanner, and a machine has few sites on ports other than 80 and 443.
PORTS_MAX = 8
# Addresses remembered, the most recently requested ones; about 400 bytes each.
_ADDRESSES = 16_384


class AddressPorts:
    """Remembers the ports of addresses that were requested because a link led there."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, set[int]] = OrderedDict()

    def has_room(self, address: str, port: int) -> bool:
        """Return whether the port was requested before, or another one may be."""
        asked = self._asked.get(address, ())
        return port in asked or len(asked) < PORTS_MAX

    def add(self, address: str, port: int) -> None:
        """Record that the port is about to be requested."""
        self._asked.setdefault(address, set()).add(port)
        self._asked.move_to_end(address)
        if len(self._asked) > _ADDRESSES:
            self._asked.popitem(last=False)
