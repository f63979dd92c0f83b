"""How many ports of one address links may lead to."""

from __future__ import annotations

from collections import OrderedDict

# Ports of one address that links have led to, by whatever names: a machine has few sites of its own
# on others than 80 and 443, and a list of open ports is not ours to make.
PORTS_MAX = 8
# Addresses remembered, those asked last; about 400 bytes each.
_ADDRESSES = 16_384


class AddressPorts:
    """The ports of addresses that were asked because a link led there."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, set[int]] = OrderedDict()

    def has_room(self, address: str, port: int) -> bool:
        """Whether the port has been asked, or another one may be."""
        asked = self._asked.get(address, ())
        return port in asked or len(asked) < PORTS_MAX

    def add(self, address: str, port: int) -> None:
        """The port is about to be asked."""
        self._asked.setdefault(address, set()).add(port)
        self._asked.move_to_end(address)
        if len(self._asked) > _ADDRESSES:
            self._asked.popitem(last=False)
