"""Shares: what several hosts have in common, how many of these may be in flight, and which
goes next.

The kinds of shares, and their names.

- a domain: its name;
- an address: "@192.0.2.1", or the /64 of an IPv6 address;
- a block of addresses: "#192.0.2" for a /24, or an IPv6 /48;
- an origin, the domain whose pages led to the hosts: "^4fc3a0b1";
- the crowd, all hosts that are not known to answer soon: "?".

A host in flight has a place in each of its shares. A host that finds no room waits in line for the
first share that has none. While no other host is due, hosts of an origin without room go as part of
the crowd.

`Calls` decides which of the hosts that wait in line for room may go next. A host that leaves flight
makes room in its shares. The first host in line for such a share is called. A called host is popped
before others, which might take its room. If it cannot take the room after all, the call is passed
on.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from heapq import heappop, heappush
from ipaddress import IPv6Address, IPv6Network
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import CALLED, SCHEDULED, WAITING, Host
from krowlspider.frontier.hosts.table import HostEvent
from krowlspider.frontier.limits import Addresses, FrontierLimits

if TYPE_CHECKING:
    from collections.abc import Callable

CROWD = "?"
# Addresses of which the share names are remembered, about 300 bytes each.
_NAMED = 65_536
_NAT64 = IPv6Network("64:ff9b::/96")


@lru_cache(maxsize=_NAMED)
def places_of(address: str) -> tuple[str, str]:
    """Return the shares of an address and of its block. An IPv4 address that is mapped into IPv6
    (``::ffff:0:0/96``, or NAT64's ``64:ff9b::/96``) counts as IPv4."""
    if ":" in address:
        number = IPv6Address(address)
        if number.ipv4_mapped is None and number not in _NAT64:
            share = f"@{_start(number, 64)}/64"
            return share, address_block_of(share)
        address = ".".join(map(str, number.packed[-4:]))
    return f"@{address}", address_block_of(f"@{address}")


def address_in(share: str) -> str:
    """Return the IP address of a share, the first one of a /64; "" without a share."""
    return share[1:].removesuffix("/64")


def address_block_of(share: str) -> str:
    """Return the share of an address's block, from the share of the address."""
    if share.endswith("/64"):
        return f"#{_start(IPv6Address(share[1:-3]), 48)}/48"
    return f"#{share[1:].rpartition('.')[0]}"


def _start(address: IPv6Address, bits: int) -> IPv6Address:
    """Return the first address of the network of an address."""
    return IPv6Address(int(address) >> 128 - bits << 128 - bits)


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

    def __init__(self, limits: FrontierLimits, now: Callable[[], float]):
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
        own = None if limits.concurrency_of is None else limits.concurrency_of(share)
        return limits.domain_concurrency if own is None else own

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
                self.addresses.note_request(share, now)
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


# Hosts a second that may be popped and sent to wait for room, and how many of them may be saved up.
# With none left, only hosts in sessions are popped.
_TURNED_AWAY = 4000.0
_TURNED_AWAY_MAX = 50_000.0
# A crowd is being turned away while so many more were than _STRAY a second, and for the second or
# two that it takes to forget them. Sessions have no end meanwhile.
_CROWDED = 250.0
# So many hosts in line are a crowd too: short of CPU time, a crawl pops too few to turn many away.
_IN_LINE = 500
# Most called hosts at a time: where pops are slow, more hosts would be called than popped.
_CALLED_MAX = 32
_CROWD_MAX = 1000.0
_STRAY = 500.0


class Calls:
    """Calls hosts for room, and counts the hosts that found none.

    ``host`` returns a host by its name, ``move`` applies an event to it, ``now`` returns the job
    clock in seconds.
    """

    def __init__(
        self,
        shares: Shares,
        *,
        host: Callable[[str], Host],
        move: Callable[[Host, HostEvent], None],
        now: Callable[[], float],
    ):
        self._shares = shares
        self._host = host
        self._move = move
        self._now = now
        # The share for which a host was called, by the name of the host.
        self._called: dict[str, str] = {}
        # Shares for which a host is called once fewer are called.
        self._owed: dict[str, None] = {}
        # The last host called for the crowd; whether the last pop called a host for an address.
        self._called_of_crowd = ""
        self._address_called = False
        # The host that was called though its origin has no room, as no other was due.
        self._spare = ""
        # How many more hosts may be turned away, and when that was last computed.
        self._left = _TURNED_AWAY_MAX
        self._left_at = 0.0
        # How many were turned away lately, less _STRAY a second.
        self._crowd = 0.0

    @property
    def may_turn_away(self) -> bool:
        """Return whether more hosts may be turned away now. If not, only hosts in sessions are
        popped."""
        return self._left >= 0

    @property
    def is_crowded(self) -> bool:
        """Return whether many hosts were turned away lately, or wait in line.

        A host whose session ends now would wait until all of them were looked at.
        """
        return self._crowd > _CROWDED or self._shares.waiting > _IN_LINE

    def count_turned_away(self) -> None:
        """Count a host that found no room when it was popped in its turn, or at its address."""
        self._left -= 1
        self._crowd = min(self._crowd + 1, _CROWD_MAX)

    def call(self, host: Host) -> None:
        """Call a host that is in line, in the name of no share."""
        self._called[host.name] = ""
        self._move(host, HostEvent.CALL)

    def take(self, host: Host) -> str | None:
        """End the call of a host that was popped. Return the share for which it was called, empty
        for none; None when it was not called."""
        if host.state is not CALLED:
            return None
        self._move(host, HostEvent.AWAITS_ROBOTS if host.robots.awaited else HostEvent.TAKE_CALL)
        return self._called.pop(host.name)

    def takes_spare(self, host: Host) -> bool:
        """Return whether a host was called to go as part of the crowd, without its origin. The
        answer is true once."""
        spare, self._spare = self._spare, ""
        return host.name == spare

    def make_room(self, shares: tuple[str, ...]) -> None:
        """Call the next host in line for each share that has room. Hosts of the crowd are called at
        the pop."""
        if self._shares.waiting:
            for share in shares:
                if share == CROWD or not self._shares.waits(share):
                    continue
                if self._shares.has_room(share):
                    self._call_next(share)
                else:
                    self._shares.set_clock(share, self._now())

    def pass_on(self, host: Host, called: str | None) -> None:
        """Call the next host in line for the room of one that was popped and is not sent.
        ``called`` is as of `take`."""
        shares = self._shares.of(host)
        self.make_room(shares if not called or called in shares else (*shares, called))

    def call_at_pop(self, now: float) -> None:
        """Call hosts for room that no host had to leave: once a second in any share, else in the
        crowd or at an address."""
        if self._shares.tick(now):
            for share in self._shares.with_room():
                self._call_next(share)
        if not self._shares.waiting and self._left >= _TURNED_AWAY_MAX:
            return
        passed, self._left_at = now - self._left_at, now
        self._left = min(self._left + passed * _TURNED_AWAY, _TURNED_AWAY_MAX)
        self._crowd = max(0.0, self._crowd - passed * _STRAY)
        self._call_of_crowd()
        while self._owed and len(self._called) < _CALLED_MAX:
            share = next(iter(self._owed))
            del self._owed[share]
            if self._shares.waits(share) and self._shares.has_room(share):
                self._call_next(share)
        # Called hosts are popped first: every second pop is left to the others.
        self._address_called = not (self._address_called or not self._call_at_address(now))

    def call_another(self, now: float) -> bool:
        """Call a waiting host, as no other is due. Return whether there was room for one."""
        if not self._shares.waiting:
            return False
        return self._call_at_address(now) or self._call_of_crowd() or self._call_spare()

    def _call_of_crowd(self) -> bool:
        """Call the next host in line for the crowd, unless one is called already. Return whether
        one was."""
        if self._called.get(self._called_of_crowd) == CROWD:
            return False
        if not (self._shares.waits(CROWD) and self._shares.has_room(CROWD)):
            return False
        self._called_of_crowd = self._call_next(CROWD)
        return bool(self._called_of_crowd)

    def _call_at_address(self, now: float) -> bool:
        """Call a host for an address that may be asked again. Return whether one was called."""
        share = self._shares.opened(now)
        return share is not None and bool(self._call_next(share))

    def _call_spare(self) -> bool:
        """Call a host whose origin has no room, as no other is due: it goes as part of the crowd.
        Return whether one was called."""
        share = self._shares.next_origin()
        self._spare = "" if share is None else self._call_next(share)
        return bool(self._spare)

    def _call_next(self, share: str) -> str:
        """Call the next host in line for a share. Return its name; empty when no host is left in
        line, or enough are called."""
        if len(self._called) >= _CALLED_MAX:
            self._owed[share] = None
            return ""
        while (name := self._shares.first(share)) is not None:
            host = self._host(name)
            waits_in_line = host.state is SCHEDULED and host.due <= self._now()
            if host.state is not WAITING and not waits_in_line:
                # Its state or its time has changed since it came into the line.
                continue
            self._called[name] = share
            if share[0] == "@" and not host.shares.address:
                # The host was evicted meanwhile, and its address with it.
                host.shares.address, host.shares.address_block = share, address_block_of(share)
            self._move(host, HostEvent.CALL)
            return name
        return ""
