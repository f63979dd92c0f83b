"""What hosts share, and how many of those that share it may be in transit at a time.

A share is a domain, an address ("@192.0.2.1", or the /64 of an IPv6 address), a block of addresses
("#192.0.2" for a /24, or an IPv6 /48), the domain by whose pages hosts were found ("^4fc3a0b1", an
origin), or the crowd: all hosts that are not known to answer soon. A host in transit has a place in
each of its shares. One that finds no room waits in line for the first share that has none. While
nobody else is due, those of an origin that has no room go as part of the crowd.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from heapq import heappop, heappush
from ipaddress import IPv6Address, IPv6Network
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.addresses import Addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts import Host
    from krowlspider.frontier.turns import Limits

CROWD = "?"
# Seconds of average latency from which on a host holds its slot for long.
_SLOW = 5.0
# The least part of all slots that the crowd may have, and a block of addresses at most: large
# hosters and CDNs have many sites in one.
_CROWD_LEAST = 4
_BLOCK = 4
# The part of all slots that the hosts of one origin have while others are due; and the pages after
# which a host counts for itself, as whoever names a hundred thousand has not made them.
_ORIGIN = 8
_PROVEN = 10
# Slots that the crowd leaves free: a part of all of them, and more than the others had at a time
# lately, so that they can become more. What they had counts 5 % less with each second.
_FREE = 32
_SPARE = 1.25
_FADING = 0.95
_TICK = 1.0
# Lines looked at in each of them.
_LINES_LOOKED_AT = 100
# Addresses whose names of shares are remembered, about 300 bytes each.
_NAMED = 65_536
_NAT64 = IPv6Network("64:ff9b::/96")


@lru_cache(maxsize=_NAMED)
def places_of(address: str) -> tuple[str, str]:
    """The shares of an address, and of its block."""
    if ":" in address:
        number = IPv6Address(address)
        if number.ipv4_mapped is None and number not in _NAT64:
            prefix = int(number) >> 64
            return f"@{prefix:x}/64", f"#{prefix >> 16:x}/48"
        address = ".".join(map(str, number.packed[-4:]))
    return f"@{address}", f"#{address.rpartition('.')[0]}"


def block_of(share: str) -> str:
    """The share of the block in which an address is, by the share of the address."""
    if share.endswith("/64"):
        return f"#{int(share[1:-3], 16) >> 16:x}/48"
    return f"#{share[1:].rpartition('.')[0]}"


def in_crowd(host: Host) -> bool:
    """Whether a host has never answered, not the last time, or takes its time."""
    return bool(host.pace.errors) or not 0.0 < host.pace.ema <= _SLOW


class Shares:
    """Places taken in each share, and the names of those that wait for one. ``now`` is the job
    clock."""

    def __init__(self, limits: Limits, now: Callable[[], float]):
        self._limits = limits
        self._now = now
        self.addresses = Addresses(limits.address_delay)
        # When an address with a line may be asked again, once each.
        self._clock: list[tuple[float, str]] = []
        self._clocked: set[str] = set()
        self._block = max(limits.address_concurrency, limits.slots // _BLOCK)
        self._origin = max(1, limits.slots // _ORIGIN) if limits.slots else inf
        # Origins with a line, by turns.
        self._origins: dict[str, None] = {}
        self._taken: dict[str, int] = {}
        self._lines: dict[str, deque[str]] = {}
        # Names in all lines.
        self.waiting = 0
        # Hosts in transit that are not of the crowd; the most of them at a time, lately.
        self._known = 0
        self._peak = 0.0
        self._ticked = self._next_tick = 0.0

    def of(self, host: Host, *, spare: bool = False) -> tuple[str, ...]:
        """The shares of a host, the widest first: who waits for one of many is not to fill the
        lines of all others. A ``spare`` one is of the crowd, not of its origin."""
        own = (host.block, host.address, host.domain) if host.address else (host.domain,)
        if spare or in_crowd(host):
            own = (CROWD, *own)
        if host.origin and not spare and host.done < _PROVEN:
            # Before the crowd: those of other origins find room in that.
            return (f"^{host.origin:x}", *own)
        return own

    def most(self, share: str) -> float:
        """Hosts in transit that may have a place in a share."""
        limits, kind = self._limits, share[0]
        if kind == "@":
            return limits.address_concurrency or inf
        if kind == "#":
            return self._block if limits.slots and limits.address_concurrency else inf
        if kind == "^":
            return self._origin
        if share == CROWD:
            return self._crowd_most() if limits.slots else inf
        return limits.domain_concurrency

    def _crowd_most(self) -> float:
        slots = self._limits.slots
        left = slots - slots // _FREE - int(self._peak * _SPARE)
        return max(left, slots // _CROWD_LEAST, 1)

    def tick(self, now: float) -> bool:
        """Time goes by, in seconds of the job clock: who was in transit counts less. Whether a
        second has passed since this was last so."""
        if now < self._next_tick:
            return False
        self._peak = max(self._known, self._peak * _FADING ** (now - self._ticked))
        self._ticked, self._next_tick = now, now + _TICK
        return True

    def has_room(self, share: str) -> bool:
        taken = self._taken.get(share)
        if taken is not None and taken >= self.most(share):
            return False
        return share[0] != "@" or self.addresses.open_at(share) <= self._now()

    def full(self, shares: tuple[str, ...]) -> str | None:
        """The first that has no room."""
        for share in shares:
            if not self.has_room(share):
                return share
        return None

    def enter(self, host: Host, shares: tuple[str, ...]) -> None:
        """A host takes its places: there is room."""
        host.places += shares
        taken = self._taken
        for share in shares:
            taken[share] = taken.get(share, 0) + 1
            if share[0] == "@" and self.addresses.delay:
                now = self._now()
                self.addresses.asked(share, now)
                if share in self._lines:
                    self.set_clock(share, now)

    def enter_transit(self, host: Host, shares: tuple[str, ...]) -> None:
        """As `enter`, with all shares of a host."""
        self.enter(host, shares)
        if CROWD not in shares:
            self._known += 1
            self._peak = max(self._known, self._peak)

    def leave(self, host: Host, shares: tuple[str, ...]) -> None:
        """A host gives up some of its places."""
        host.places = tuple(share for share in host.places if share not in shares)
        self._give_up(shares)

    def _give_up(self, shares: tuple[str, ...]) -> None:
        for share in shares:
            if (taken := self._taken.pop(share)) > 1:
                self._taken[share] = taken - 1

    def leave_transit(self, host: Host) -> tuple[str, ...]:
        """A host gives up its places: in these shares."""
        places, host.places = host.places, ()
        self._give_up(places)
        self._known -= CROWD not in places
        return places

    # --- the lines ---

    def wait(self, share: str, name: str) -> None:
        """A host is the last in line for a share."""
        self._lines.setdefault(share, deque()).append(name)
        self.waiting += 1
        if share[0] == "@":
            self.set_clock(share, self._now())
        elif share[0] == "^":
            self._origins[share] = None

    def set_clock(self, share: str, now: float) -> None:
        """Have `opened` give an address when it may be asked again. While it may, its line needs
        none: somebody was called, or who leaves calls. Nothing for other shares."""
        if share[0] != "@":
            return
        if share not in self._clocked and (opens := self.addresses.open_at(share)) > now:
            self._clocked.add(share)
            heappush(self._clock, (opens, share))

    def opened(self, now: float) -> str | None:
        """An address that may be asked again, for which hosts wait, once each time that it may."""
        while self._clock and self._clock[0][0] <= now:
            _, share = heappop(self._clock)
            self._clocked.discard(share)
            if share in self._lines:
                # It may rest for longer meanwhile.
                self.set_clock(share, now)
                if self.has_room(share):
                    return share
        return None

    def with_room(self) -> list[str]:
        """Shares with a line and room, of the next so many lines: nobody need wait for ever whose
        call went to one that could not take it."""
        looked = list(islice(self._lines, _LINES_LOOKED_AT))
        for share in looked:
            self._lines[share] = self._lines.pop(share)
        return [share for share in looked if share != CROWD and self.has_room(share)]

    def waits(self, share: str) -> bool:
        """Whether anybody does."""
        return share in self._lines

    def first(self, share: str) -> str | None:
        """Take the first out of a line; None when nobody waits."""
        line = self._lines.get(share)
        if line is None:
            return None
        self.waiting -= 1
        name = line.popleft()
        if not line:
            del self._lines[share]
            self._origins.pop(share, None)
        return name

    def next_origin(self) -> str | None:
        """An origin with a line, of which one may go as part of the crowd; each in its turn."""
        if not self._origins or not self.has_room(CROWD):
            return None
        share = next(iter(self._origins))
        self._origins[share] = self._origins.pop(share)
        return share

    def only(self, stays: Callable[[str], bool]) -> None:
        """Leave those in line of whom this is so."""
        for share in list(self._lines):
            line = deque(name for name in self._lines[share] if stays(name))
            self.waiting -= len(self._lines[share]) - len(line)
            if line:
                self._lines[share] = line
            else:
                del self._lines[share]
                self._origins.pop(share, None)

    def next_room(self) -> float:
        """When a share may have room without anybody's leaving it, in seconds of the job clock."""
        tick = self._next_tick if self._lines else inf
        return min(tick, self._clock[0][0]) if self._clock else tick
