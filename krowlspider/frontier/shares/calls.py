"""Calls: which of the hosts that wait in line for room in a share may go next.

A host that leaves flight makes room in its shares. The first host in line for such a share is
called. A called host is popped before others, which might take its room. If it cannot take the
room after all, the call is passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import CALLED, SCHEDULED, WAITING, Host
from krowlspider.frontier.hosts.table import Event
from krowlspider.frontier.shares.names import CROWD, address_block_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.shares.shares import Shares

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
        move: Callable[[Host, Event], None],
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
        self._move(host, Event.CALL)

    def take(self, host: Host) -> str | None:
        """End the call of a host that was popped. Return the share for which it was called, empty
        for none; None when it was not called."""
        if host.state is not CALLED:
            return None
        self._move(host, Event.AWAITS_ROBOTS if host.robots.awaited else Event.TAKE_CALL)
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
            self._move(host, Event.CALL)
            return name
        return ""
