"""The ports that URLs may have."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Ports of other protocols, whose servers must receive no HTTP request: Fetch standard, section 2.9,
# "port blocking".
BLOCKED = frozenset(
    {
        *(0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95),
        *(101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179),
        *(389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587),
        *(601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061),
        *(6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
    }
)
_PORT_MAX = 65_535
# Hosts with a port for which the result is cached, about 150 bytes each.
_REMEMBERED = 16_384


def port_of(host: str) -> int | None:
    """Return the port of a host from `host_of`; None for the default of its scheme."""
    _, colon, port = host.rpartition(":")
    # The last colon of "[::1]" does not precede a port.
    return int(port) if colon and port.isdigit() else None


def name_of(host: str) -> str:
    return host if port_of(host) is None else host.rpartition(":")[0]


def orders_for(host: str) -> tuple[str, ...]:
    """Return the texts by which people name a host from `host_of` in orders, the narrowest first:
    with its port, then the name, which stands for all ports.

    A host without a port is that of both default ports.
    """
    name = name_of(host)
    return (host, name) if name != host else (f"{host}:80", f"{host}:443", host)


@lru_cache(maxsize=_REMEMBERED)
def is_blocked(host: str) -> bool:
    return port_of(host) in BLOCKED


class Ports:
    """The ports that links may lead to, given as ``8080`` or ``1024-65535``.

    A single port is allowed on every host name. Of the ports in ranges, each host name may use one.

    :raises ValueError: a text is neither a port nor a range, or a single port is blocked
    """

    def __init__(self, given: Iterable[str]):
        self._listed: set[int] = set()
        self._ranges: list[range] = []
        for text in given:
            first, dash, last = text.strip().partition("-")
            found = range(_number(first, text), _number(last if dash else first, text) + 1)
            if not found:
                raise ValueError(f"{text!r} is no range of ports: its first is above its last")
            if dash:
                self._ranges.append(found)
            elif found.start in BLOCKED:
                raise ValueError(f"{text!r} is a port of another protocol, which is never asked")
            else:
                self._listed.add(found.start)

    def lists(self, port: int) -> bool:
        """Return whether a port is given as a single port."""
        return port in self._listed

    def spans(self, port: int) -> bool:
        """Return whether a port is in one of the ranges."""
        return any(port in ports for ports in self._ranges)


def _number(digits: str, text: str) -> int:
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= _PORT_MAX:
        return int(digits)
    raise ValueError(f"{text!r} is neither a port nor a range such as 1024-65535")
