"""Shares: what several hosts have in common, and how many of these hosts may be in flight at a
time. `names` has their kinds.

A host in flight has a place in each of its shares. A host that finds no room waits in line for the
first share that has none. While no other host is due, hosts of an origin without room go as part of
the crowd.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.shares.addresses import Addresses
from krowlspider.frontier.shares.names import CROWD

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.limits import Limits

# Average latency, in seconds, above which a host holds its slot for long.
_SLOW = 5.0
# One in so many slots: the least that the crowd may have, and the most that a block of addresses
# may. Large hosters and CDNs have many sites in one block.
_CROWD_LEAST = 4
_ADDRESS_BLOCK = 4
# One in so many slots for the hosts of one origin; and the pages after which a host is free of its
# origin: links to a hundred thousand hosts cost nothing.
_ORIGIN = 8
_PROVEN = 10
# What the crowd leaves free: one in so many slots, and what the other hosts lately had in flight,
# times _SPARE, so that they can become more. That figure fades by 5 % each second.
_FREE = 32
_SPARE = 1.25
_FADING = 0.95
# Seconds between two calls for shares that have a line and room; and the lines looked at each time.
_TICK = 1.0
_LINES_LOOKED_AT = 100


def in_crowd(host: Host) -> bool:
    """Return whether a host belongs to the crowd: it never answered, its last request failed, or it
    is slow."""
    return bool(host.rate.errors) or not 0.0 < host.rate.ema <= _SLOW


class Shares:
    """Places taken in each share, and the names of hosts that wait in line for one. ``now`` returns
    the job clock, in seconds."""

    def __init__(self, limits: Limits, now: Callable[[], float]):
        self._limits = limits
        self._now = now
        self.addresses = Addresses(limits.address_delay)
        # Times at which addresses with a line may be asked again, each address once.
        self._clock: list[tuple[float, str]] = []
        self._clocked: set[str] = set()
        self._at_address: float = limits.address_concurrency or inf
        self._in_address_block = max(limits.address_concurrency, limits.slots // _ADDRESS_BLOCK)
        self._origin = max(1, limits.slots // _ORIGIN) if limits.slots else inf
        # Origins with a line, in the order of their turns.
        self._origins: dict[str, None] = {}
        self._taken: dict[str, int] = {}
        self._lines: dict[str, deque[str]] = {}
        # Names in all lines.
        self.waiting = 0
        # Hosts in flight that are not of the crowd; the most of them at a time, lately.
        self._known = 0
        self._peak = 0.0
        self._ticked = self._next_tick = 0.0

    def divide(self, nodes: int) -> None:
        """Take this node's part of the limits of an address, in a cluster of so many nodes. At
        least one host may be in flight."""
        if self._limits.address_concurrency:
            self._at_address = max(1, self._limits.address_concurrency // nodes)
        self.addresses.set_delay(self._limits.address_delay * nodes)

    def of(self, host: Host, *, spare: bool = False) -> tuple[str, ...]:
        """Return the shares of a host, the widest first: hosts that wait for one crowded share must
        not fill the lines of all others. A ``spare`` host is of the crowd, not of its origin."""
        known = host.shares
        own: tuple[str, ...] = (host.domain,)
        if known.address:
            own = (known.address_block, known.address, host.domain)
        if spare or in_crowd(host):
            own = (CROWD, *own)
        if known.origin and not spare and host.queue.done < _PROVEN:
            # Before the crowd, so that hosts of other origins find room in it.
            return (f"^{known.origin:x}", *own)
        return own

    def most(self, share: str) -> float:
        """Return how many hosts in flight may have a place in a share; inf for no cap."""
        limits, kind = self._limits, share[0]
        if kind == "@":
            return self._at_address
        if kind == "#":
            return self._in_address_block if limits.slots and limits.address_concurrency else inf
        if kind == "^":
            return self._origin
        if share == CROWD:
            return self._crowd_most() if limits.slots else inf
        return limits.domain_concurrency

    def _crowd_most(self) -> float:
        """Return how many hosts of the crowd may be in flight."""
        slots = self._limits.slots
        left = slots - slots // _FREE - int(self._peak * _SPARE)
        return max(left, slots // _CROWD_LEAST, 1)

    def tick(self, now: float) -> bool:
        """Fade the figure of hosts lately in flight, once a second. Return whether that was done at
        ``now``, in seconds of the job clock."""
        if now < self._next_tick:
            return False
        self._peak = max(self._known, self._peak * _FADING ** (now - self._ticked))
        self._ticked, self._next_tick = now, now + _TICK
        return True

    def has_room(self, share: str) -> bool:
        """Return whether a share has a place left, and an address may be asked now."""
        return self.full((share,)) is None

    def full(self, shares: tuple[str, ...]) -> str | None:
        """Return the first of the shares that has no room; None when all have."""
        taken = self._taken
        for share in shares:
            places = taken.get(share)
            if places is not None and places >= self.most(share):
                return share
            if share[0] == "@":
                opens = self.addresses.open_at(share)
                if opens and opens > self._now():
                    return share
        return None

    def enter(self, host: Host, shares: tuple[str, ...]) -> None:
        """Take a place for a host in each of these shares, which have room."""
        host.shares.places += shares
        taken = self._taken
        for share in shares:
            taken[share] = taken.get(share, 0) + 1
            if share[0] == "@" and self.addresses.delay:
                now = self._now()
                self.addresses.asked(share, now)
                if share in self._lines:
                    self.set_clock(share, now)

    def enter_flight(self, host: Host, shares: tuple[str, ...]) -> None:
        """Take a place in all shares of a host, as `enter`, and count the host in flight."""
        self.enter(host, shares)
        if CROWD not in shares:
            self._known += 1
            self._peak = max(self._known, self._peak)

    def leave(self, host: Host, shares: tuple[str, ...]) -> None:
        """Give up some of a host's places."""
        host.shares.places = tuple(share for share in host.shares.places if share not in shares)
        self._give_up(shares)

    def _give_up(self, shares: tuple[str, ...]) -> None:
        for share in shares:
            if (taken := self._taken.pop(share)) > 1:
                self._taken[share] = taken - 1

    def leave_flight(self, host: Host) -> tuple[str, ...]:
        """Give up all places of a host that leaves flight. Return the shares in which they were."""
        places, host.shares.places = host.shares.places, ()
        self._give_up(places)
        self._known -= CROWD not in places
        return places

    def wait(self, share: str, name: str, *, first: bool) -> None:
        """Put a host at the end of the line for a share, or first in it."""
        line = self._lines.setdefault(share, deque())
        if first:
            line.appendleft(name)
        else:
            line.append(name)
        self.waiting += 1
        if share[0] == "@":
            self.set_clock(share, self._now())
        elif share[0] == "^":
            self._origins[share] = None

    def set_clock(self, share: str, now: float) -> None:
        """Have `opened` return an address once it may be asked again; other shares have no such
        time.

        While an address may be asked, its line needs no time: a host was called, or one that leaves
        calls the next.
        """
        if share[0] != "@":
            return
        if share not in self._clocked and (opens := self.addresses.open_at(share)) > now:
            self._clocked.add(share)
            heappush(self._clock, (opens, share))

    def opened(self, now: float) -> str | None:
        """Return an address that may be asked again and has a line, once each time that it may;
        None when there is none."""
        while self._clock and self._clock[0][0] <= now:
            _, share = heappop(self._clock)
            self._clocked.discard(share)
            if share in self._lines:
                # It may have begun to back off meanwhile.
                self.set_clock(share, now)
                if self.has_room(share):
                    return share
        return None

    def with_room(self) -> list[str]:
        """Return shares other than the crowd that have a line and room, of the next lines in
        rotation. So no host waits for ever because its call went to a host that could not take the
        room."""
        looked = list(islice(self._lines, _LINES_LOOKED_AT))
        for share in looked:
            self._lines[share] = self._lines.pop(share)
        return [share for share in looked if share != CROWD and self.has_room(share)]

    def waits(self, share: str) -> bool:
        """Return whether any host waits for a share."""
        return share in self._lines

    def first(self, share: str) -> str | None:
        """Remove the first host from a line, and return its name; None when no host waits."""
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
        """Return an origin with a line, of which one host may go as part of the crowd; None when
        there is none, or the crowd has no room. The origins take turns."""
        if not self._origins or not self.has_room(CROWD):
            return None
        share = next(iter(self._origins))
        self._origins[share] = self._origins.pop(share)
        return share

    def only(self, stays: Callable[[str], bool]) -> None:
        """Remove all hosts from the lines for which ``stays`` is False."""
        for share in list(self._lines):
            line = deque(name for name in self._lines[share] if stays(name))
            self.waiting -= len(self._lines[share]) - len(line)
            if line:
                self._lines[share] = line
            else:
                del self._lines[share]
                self._origins.pop(share, None)

    def next_room(self) -> float:
        """Return when a share may have room without a host leaving it, in seconds of the job clock;
        inf for never."""
        if not self._lines:
            return inf
        return min(self._next_tick, self._clock[0][0]) if self._clock else self._next_tick
