"""The order in which the addresses of a host are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.fetch.tcp.routes import version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# Addresses of a family that are tried: a dead host with many must not get an attempt at each.
ADDRESSES_TRIED = 3


class Order:
    """The addresses to try. Families alternate where there are both (RFC 8305, section 4)."""

    __slots__ = ("_left", "taken")

    def __init__(self, addresses: Iterable[str]) -> None:
        self._left = list(addresses)
        self.taken: list[str] = []

    def add(self, addresses: Iterable[str]) -> None:
        known = {*self._left, *self.taken}
        self._left += [address for address in addresses if address not in known]

    @property
    def has_more(self) -> bool:
        return bool(self._left)

    def take(self) -> str | None:
        """Return the next address to try; None if none is left for now."""
        if not self._left:
            return None
        if not self.taken:
            self.taken.append(self._left.pop(0))
            return self.taken[0]
        taken = [version_of(address) for address in self.taken]
        found = [each for each in self._left if taken.count(version_of(each)) < ADDRESSES_TRIED]
        if not found:
            return None
        address = next((each for each in found if version_of(each) != taken[-1]), found[0])
        self._left.remove(address)
        self.taken.append(address)
        return address
