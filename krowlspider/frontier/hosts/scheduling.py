"""The scheduling of hosts: which host is fetched next, and when.

A host is in the heap until its next-fetch time. Then it is in flight, with one request. After the
request it returns to the heap, for the time of its delay. This module counts the queued entries of
a host and does not read them.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.due import DueHeap
from krowlspider.frontier.hosts.host import (
    BLOCKED,
    DEFERRED,
    IDLE,
    IN_FLIGHT,
    RESTING,
    WAITING,
    Health,
    Host,
    times_in,
)
from krowlspider.frontier.hosts.sessions import Sessions
from krowlspider.frontier.hosts.shares import CROWD, Shares, block_of, places_of
from krowlspider.frontier.hosts.tally import Tally
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import whole_microseconds
from krowlspider.politeness.delay import HostRate
from krowlspider.urls.host import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts.limits import Limits
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Job clock and monotonic clock of a commit, in seconds. The id of the machine's run follows them.
_CLOCK = Struct(">dd")
_JOB_CLOCK = Struct(">d")
# Hosts that are read together when one of them is due, each with the head of its queue.
_TOGETHER = 16
# The most URLs of a host whose queue head is searched from its record onwards. The search passes
# over each key that was removed or rewritten in between.
_NEAR = 64
# Seconds between two rounds in which deferred hosts are tried again.
ROUND = 3600.0
# Deferred hosts that one commit makes due at most: bounds the time that it takes.
_REVIVED = 1000
# Hosts that one pop looks at, most of which may not be ready: bounds the time that it takes.
_LOOKS = 1000
# Hosts a second that may be popped and sent to wait for room, and how many of them may be saved up.
# With none left, only hosts in sessions are popped.
_TURNED_AWAY = 4000.0
_TURNED_AWAY_MAX = 50_000.0
# With fewer left, sessions have no end.
_CROWDED = 0.95 * _TURNED_AWAY_MAX
# Seconds until the other hosts are looked at again.
_LOOK_AGAIN = 0.05
# Called hosts that find no room in another share, in one pop: then others are looked at. The shares
# that still have room are called for once a second.
_IN_VAIN = 8
# Seconds between the due times of hosts that wait for room on disk.
_APART = 0.002
# The least seconds in which a process dies and is started again. A wait that exceeds the record's
# wait by more is written at once, or a restart would cut it short.
_RESTART = 0.5


class HostBusyError(Exception):
    """The host cannot be sealed. It has a request in flight or unacknowledged pages, waits for
    another host or for room, or is on its way to another frontier."""


class HostScheduler:
    """The hosts of a store, and their scheduling states.

    All times are seconds of the *job clock*. It is wall time when the job begins, and monotonic
    from there on. It runs on across restarts of the process. After a restart of the machine it is
    wall time again, or the time of the last commit where that is later. So it never goes back, even
    if somebody sets the machine's clock, and times on disk stay valid.

    ``monotonic`` and ``wall`` are clocks in seconds. ``boot`` identifies the run of the machine;
    empty where it is not known.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        rule: DelayPolicy,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        boot: bytes = b"",
    ):
        self._store = store
        self._boot = boot
        self._limits = limits
        self._rule = rule
        self._monotonic = monotonic
        self.hosts: dict[str, Host] = {}
        self._shares = Shares(limits, self.now)
        # Hosts in state BLOCKED; the last due time of those that wait for room on disk.
        self._blocked = 0
        self._last_apart = 0.0
        # Hosts in memory at which the next eviction begins.
        self._evict_at = 0
        # The last host called for the crowd; whether the last pop called a host for an address.
        self._called_of_crowd = ""
        self._address_called = False
        # The host that was called though its origin has no room, as no other was due.
        self._spare = ""
        # How many more hosts may be turned away, and when that was last computed.
        self._turned_away = _TURNED_AWAY_MAX
        self._turned_away_at = 0.0
        self._changed: list[Host] = []
        # Returns whether a domain may be fetched here now. None: every domain may.
        self.may_fetch: Callable[[str], bool] | None = None
        # Hosts that were due and may not be fetched here, since `ring_changed`.
        self.held = 0
        self._tally = Tally.read(store)
        saved = store.get(schema.CLOCK)
        self._new = saved is None
        self._ahead = (wall() if saved is None else self._gone_on(saved, wall)) - monotonic()

    def start_scheduling(self, unsure: float | None) -> None:
        """Start scheduling.

        The last request of a host may have ended later than its record says. So each host read from
        disk waits as if that request had ended at ``unsure``, in seconds of the job clock. That is
        the time of the last start that followed a death of the process; None stands for the present
        time.
        """
        self.unsure = 0.0 if self._new else self.now() if unsure is None else unsure
        self._sure = self.unsure + self._rule.longest
        self._deferred_queued = self._tally.deferred
        self._due = DueHeap(self._store, self._tally.hosts, self._limits.window)
        self._sessions = Sessions(self._limits.sessions)
        # Each start tries the deferred hosts again.
        self._round: bytes | None = schema.DEFERRED
        self._next_round = self.now() + ROUND
        self._revive()

    def _gone_on(self, saved: bytes, wall: Callable[[], float]) -> float:
        """Return the job clock, in seconds, as it continues from the last commit."""
        job: float = _JOB_CLOCK.unpack_from(saved)[0]
        if self._boot and saved[_CLOCK.size :] == self._boot:
            then: float = _CLOCK.unpack_from(saved)[1]
            return job + max(0.0, self._monotonic() - then)
        return max(wall(), job)

    def now(self) -> float:
        """Return the job clock, in seconds."""
        return self._monotonic() + self._ahead

    def put_clock(self, batch: Batch) -> None:
        """Put the clocks into the batch, for the next start."""
        batch.put(schema.CLOCK, _CLOCK.pack(self.now(), self._monotonic()) + self._boot)

    def host(self, name: str) -> Host:
        """Return a host: from memory, from its record on disk, or new."""
        host = self.hosts.get(name)
        if host is None:
            self._recall([name])
            host = self.hosts[name]
        return host

    def _recall_due(self, name: str) -> Host:
        """Read a due host into memory, with some that are due soon, and return it.

        The head of each host's queue is read too: it is in the same place on the disk.
        """
        names = {name, *self._due.soon(_TOGETHER)}
        with self._store.reader() as reader:
            for each in sorted(names.difference(self.hosts)):
                key = schema.host_key(each)
                host = self._remember(each, reader.read(key))
                if (head := host.head) is not None:
                    # Older records and removed entries lie between the two until LevelDB merges
                    # them away.
                    near = host.queued + host.done + host.dropped <= _NEAR
                    key = schema.queue_key(key, head[0] >> 8, head[1])
                    value = reader.read_next(key) if near else reader.read(key)
                    host.ahead = [(*head, value)]
        return self.hosts[name]

    def _recall(self, names: list[str]) -> None:
        """Read hosts into memory. Their names are in ascending order, and none of them is in
        memory."""
        for name, saved in zip(names, self._store.read(map(schema.host_key, names)), strict=True):
            self._remember(name, saved)

    def _remember(self, name: str, saved: bytes | None) -> Host:
        host = Host(name, due=self.now()) if saved is None else Host.decode(name, saved)
        self.hosts[name] = host
        return host

    def _evict(self) -> None:
        """When too many hosts are in memory, remove the oldest tenth from it, except pinned ones.

        Never call this while a batch is open: a host on disk equals the host in memory only once
        its batch is written.
        """
        most = self._limits.hosts_in_memory
        if len(self.hosts) < max(most, self._evict_at):
            return
        before = len(self.hosts)
        oldest = list(islice(self.hosts.values(), most // 10 + 1))
        for host in oldest:
            del self.hosts[host.name]
            if host.pinned:
                # Move it to the end: it is looked at again after all others.
                self.hosts[host.name] = host
        # Where most hosts are pinned, do not try again for each new host.
        few_left = len(self.hosts) > before - len(oldest) // 2
        self._evict_at = len(self.hosts) + most // 20 if few_left else 0

    def _note(self, host: Host) -> None:
        """Have the next commit write a host's record: memory is newer than it."""
        if not host.changed:
            host.changed = True
            self._changed.append(host)

    def _record(self, host: Host, batch: Batch) -> None:
        """Put a host's record and its place in the heap into the batch.

        Nothing that may fail comes between this and the write of the batch: the tally counts what
        is written.
        """
        if host.state is DEFERRED or not (host.queued or host.leased):
            self._due.forget(host, batch)
        else:
            self._due.settle(host, batch)
        before, host.record = host.record, host.encode()
        batch.put(schema.host_key(host.name), host.record)
        self._tally.replace(before, host.record)
        self._tally.put(batch)
        host.changed = False

    def _record_changed(self, batch: Batch) -> None:
        changed, self._changed = self._changed, []
        for host in changed:
            if host.changed:
                self._record(host, batch)

    def _record_now(self, host: Host) -> None:
        batch = self._store.batch()
        self._record(host, batch)
        batch.write()

    def pop_host(self) -> Host | None:
        """Return the host that has been due the longest and has room in all its shares, now in
        flight. Hosts in a session go first. Return None when none was found."""
        if len(self.hosts) >= self._limits.hosts_in_memory:
            self._evict()
        now = self.now()
        if self._shares.tick(now):
            for share in self._shares.with_room():
                self._call_next(share)
        if self._shares.waiting or self._turned_away < _TURNED_AWAY_MAX:
            self._call_waiting(now)
        in_vain = 0
        for _ in range(_LOOKS):
            if (name := self._pop_name(now)) is None:
                if in_vain >= _IN_VAIN or not self._call_another(now):
                    return None
                continue
            host = self.hosts.get(name) or self._recall_due(name)
            called, host.called = host.called, ""
            if self._try(host, now, in_turn=not called):
                if called and called not in host.places:
                    self._make_room((called,))
                return host
            in_vain += bool(called)
            if self._shares.waiting and in_vain < _IN_VAIN:
                self._pass_on(host, called)
        return None

    def _try(self, host: Host, now: float, *, in_turn: bool) -> bool:
        """Handle a host whose place in the heap was popped: put it in flight if it is due and has
        room in all its shares. Return whether it is in flight. ``in_turn`` is False for a host that
        was called."""
        aside = host.state is WAITING or host.state is DEFERRED
        ready = host.state is RESTING or (aside and (host.robots_fetches or host.rests))
        if not ready or host.due > now:
            # Its state or its time has changed since; it has a newer place in the heap.
            pass
        elif now < self._sure and (earliest := self.surely_over(host)) > now:
            # Its last request may have ended later than the disk says: wait as if it had ended at
            # the start.
            self._due.push(earliest, host.name)
        elif not host.queued and not host.robots_fetches:
            self._stand_idle(host)
        elif host.leaving or (self.may_fetch is not None and not self.is_ours(host.name)):
            self._hold(host)
        else:
            return self._enter_flight(host, in_turn=in_turn)
        return False

    def pop_named(self, name: str) -> Host | None:
        """Return this host, in flight, as `pop_host` does, or None. Its place in the heap stays,
        out of date."""
        host, now = self.host(name), self.now()
        is_due = host.state is RESTING and max(host.due, self.surely_over(host)) <= now
        has_work = host.queued or host.robots_fetches
        if not (is_due and has_work) or host.leaving or not self.is_ours(name):
            return None
        called, host.called = host.called, ""
        if self._enter_flight(host, in_turn=False):
            return host
        self._pass_on(host, called)
        return None

    def is_ours(self, name: str) -> bool:
        """Return whether a host may be fetched here, by its domain."""
        return self.may_fetch is None or self.may_fetch(domain_of(name))

    def _hold(self, host: Host) -> None:
        """Hold a due host that may not be fetched here. It keeps its place on disk, and has none in
        memory until `ring_changed`."""
        host.session = 0
        if not host.held:
            host.held = True
            self.held += 1

    def ring_changed(self) -> None:
        """Schedule all held hosts again: `may_fetch` may return something else now.

        Deferred hosts come with the next round.
        """
        self.held = 0
        # The other hosts in line are read from the disk again.
        hosts = self.hosts
        self._shares.only(lambda name: name in hosts and hosts[name].state is BLOCKED)
        for host in self.hosts.values():
            host.held = False
            if host.robots_fetches:
                # With nothing queued, the host has no place on disk.
                self._due.push(host.due, host.name)
        self._due.read_again()

    def seal(self, name: str) -> Host:
        """Seal a host and return it: none of its requests is sent until it is gone or unsealed. Its
        record on disk is up to date then.

        :raises HostBusyError: the host is busy, or sealed already; nothing has changed
        """
        host = self.host(name)
        if host.busy or host.leaving:
            raise HostBusyError(f"{name} is {host.state.value}, with {len(host.leased)} pages open")
        host.leaving = True
        if host.changed:
            self._record_now(host)
        return host

    def surely_over(self, host: Host) -> float:
        """Return when a host has surely waited its delay, in seconds of the job clock. The end of
        its last request may not have reached the disk from which the host was read. Return 0.0 for
        a host that was not read from disk."""
        return self.unsure + self._rule.delay(host.rate) if host.recalled else 0.0

    def drop_from_memory(self, host: Host) -> None:
        """Remove a sealed host that has left. If it comes back, it is new."""
        self.held -= host.held
        host.state, host.changed, host.leaving = IDLE, False, False
        del self.hosts[host.name]

    def unseal(self, host: Host) -> None:
        """Keep a sealed host, and schedule it again."""
        host.leaving = False
        if host.state is DEFERRED:
            self._rest_apart(host)
        elif host.queued:
            self._line_up(host)
            self._record_now(host)
        elif host.state is RESTING and not host.robots_fetches:
            self._stand_idle(host)

    def _pop_name(self, now: float) -> str | None:
        """Return the name of a host whose time has come, those in sessions first; None when there
        is none."""
        if (name := self._sessions.pop(now)) is not None:
            return name
        if self._turned_away < 0:
            return None
        while (name := self._due.pop(now)) is None:
            if not self._due.exhausted(now):
                return None
            batch = self._store.batch()
            self._record_changed(batch)
            batch.write()
            self._due.read_window(now)
        return name

    def _stand_idle(self, host: Host) -> None:
        """Make a host idle: it has nothing to fetch."""
        host.state = IDLE
        host.session = 0
        if not host.pending:
            self._note(host)

    def _enter_flight(self, host: Host, *, in_turn: bool) -> bool:
        """Put a host in flight if all its shares have room; else it waits in line for the first
        that has none. Return whether it is in flight.

        ``in_turn`` is False for a host that was called: only the others count as turned away.
        """
        if host.state is DEFERRED:
            self._deferred_queued -= host.queued
            host.set_health(Health.BACKING_OFF)
            # If no request is sent, its record would still count it as deferred.
            self._note(host)
        host.domain = host.domain or domain_of(host.name)
        # With the lines full, no host waits for its origin.
        no_room = self._shares.waiting >= self._limits.in_line
        shares = self._shares.of(host, spare=no_room or host.name == self._spare)
        self._spare = ""
        if (full := self._shares.full(shares)) is not None:
            self._turned_away -= in_turn
            self._block(host, full)
            return False
        self._shares.enter_flight(host, shares)
        host.state = IN_FLIGHT
        return True

    def reserve_address(self, host: Host, address: str) -> bool:
        """Take the places of the address at which a host in flight is about to be fetched. Return
        False when the address, or its block, has no room now: then call `turn_back`."""
        places = places_of(address)
        if host.address == places[0]:
            return True
        before = (host.address, host.block) if host.address else ()
        new = tuple(share for share in places if share not in before)
        if self._shares.full(new) is not None:
            return False
        left = tuple(share for share in before if share not in places)
        self._shares.leave(host, left)
        host.address, host.block = places
        self._shares.enter(host, new)
        self._make_room(left)
        return True

    def turn_back(self, host: Host, address: str) -> None:
        """End the flight of a host that sent no request for want of room at its address. It waits
        for that room."""
        self._leave_flight(host)
        host.address, host.block = places_of(address)
        if (full := self._shares.full((host.block, host.address))) is None:
            self._due_again(host)
        else:
            self._block(host, full)

    def answered_at_address(self, host: Host, latency: float) -> None:
        """Record at its address that a host answered without throttling, in ``latency`` seconds."""
        self._shares.addresses.answered(host, latency)

    def refused_at_address(self, host: Host, retry_after: float | None, chance: float) -> float:
        """Record at its address that a host is throttling. Where others there are too, the address
        backs off. Return for how many seconds; 0 where it does not. ``retry_after`` and ``chance``
        are as in `DelayPolicy.after_throttling`."""
        return self._shares.addresses.refused(host, retry_after, self.now(), chance)

    def _block(self, host: Host, share: str) -> None:
        """Put a host in line for a share that has no room. With the lines full, it waits on disk
        instead, with a later due time."""
        if self._shares.waiting >= self._limits.in_line:
            self._last_apart = max(self.now(), self._last_apart) + _APART
            host.state = IDLE
            self._rest(host, self._last_apart)
            return
        self._shares.wait(share, host.name)
        if self._blocked < self._limits.blocked:
            host.state = BLOCKED
            self._blocked += 1
        else:
            # Enough blocked hosts are in memory: this one may be evicted, and keeps its place on
            # disk.
            host.state = WAITING if host.waits else RESTING
            host.session = 0

    def _leave_flight(self, host: Host) -> None:
        """End a host's flight, and make room in its shares. The caller sets its next scheduling
        state.

        :raises ValueError: the host is not in flight
        """
        if host.state is not IN_FLIGHT:
            raise ValueError(f"{host.name} is {host.state.value}, not in flight")
        host.state = IDLE
        self._make_room(self._shares.leave_flight(host))

    def _make_room(self, shares: tuple[str, ...]) -> None:
        """Call the next host in line for each share that has room. Hosts of the crowd are called at
        the pop."""
        if self._shares.waiting:
            for share in shares:
                if share == CROWD or not self._shares.waits(share):
                    continue
                if self._shares.has_room(share):
                    self._call_next(share)
                else:
                    self._shares.set_clock(share, self.now())

    def _pass_on(self, host: Host, called: str) -> None:
        """Call the next host in line for the room of one that was popped and is not sent.
        ``called`` is the share in which room was made for that one; empty for none."""
        host.domain = host.domain or domain_of(host.name)
        shares = self._shares.of(host)
        self._make_room(shares if not called or called in shares else (*shares, called))

    def _call_waiting(self, now: float) -> None:
        """Call hosts for room that no host had to leave: in the crowd, or at an address. This runs
        once a pop."""
        more = (now - self._turned_away_at) * _TURNED_AWAY
        self._turned_away_at = now
        self._turned_away = min(self._turned_away + more, _TURNED_AWAY_MAX)
        self._call_of_crowd()
        # Called hosts are popped first: every second pop is left to the others.
        self._address_called = not (self._address_called or not self._call_at_address(now))

    def _call_another(self, now: float) -> bool:
        """Call a waiting host, as no other is due. Return whether there was room for one."""
        return self._call_at_address(now) or self._call_of_crowd() or self._call_spare()

    def _call_of_crowd(self) -> bool:
        """Call the next host in line for the crowd, unless one is called already. Return whether
        one was."""
        last = self.hosts.get(self._called_of_crowd)
        if last is not None and last.called == CROWD:
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
        """Call the next host in line for a share: it is popped before all others. Return its name;
        empty when no host is left in line."""
        while (name := self._shares.first(share)) is not None:
            host = self.host(name)
            if host.state is BLOCKED:
                self._blocked -= 1
            elif host.state not in (RESTING, WAITING) or host.called or host.due > self.now():
                # Its state or its time has changed since it came into the line.
                continue
            # This keeps it in memory: an evicted host would not pass its room on.
            host.called = share
            if share[0] == "@" and not host.address:
                # The host was evicted meanwhile, and its address with it.
                host.address, host.block = share, block_of(share)
            self._due_again(host)
            return name
        return ""

    def _due_again(self, host: Host) -> None:
        """Put a host that was popped without being fetched back into the heap, with its time and
        its session.

        A called host goes among those in a session, which are popped first: others might take its
        room.
        """
        (self._sessions if host.session or host.called else self._due).push(host.due, host.name)
        host.state = WAITING if host.waits else RESTING

    def enqueue_robots_fetch(self, name: str, robots_fetch: object) -> None:
        """Give a host a robots fetch, and schedule the host. It is fetched before the host's queue,
        and not kept over a restart."""
        host = self.host(name)
        host.robots_fetches.append(robots_fetch)
        if host.state in (IDLE, DEFERRED, WAITING):
            self._due.push(max(host.due, self.now()), name)
        if host.state is IDLE:
            host.state = RESTING

    def give_back(self, host: Host, rest: float = 0.0) -> None:
        """End the flight of a popped host that sent no request. It is due after ``rest`` seconds,
        behind those due before it. If nothing but retries is queued, it is due with the first of
        them."""
        self._leave_flight(host)
        due = self.now() + rest
        if rest:
            host.due = host.ready = whole_microseconds(due)
        if host.queued and not host.robots_fetches:
            self._rest(host, max(due, host.earliest()))
        elif host.queued or host.robots_fetches:
            self._rest(host, due)
        else:
            self._stand_idle(host)

    def next_due(self) -> float | None:
        """Return when to pop again, in seconds of the job clock; None when there is nothing to wait
        for."""
        due, session = self._due.next_due(), self._sessions.next_due()
        if due is not None and self._turned_away < 0:
            due = max(due, self.now() + _LOOK_AGAIN)
        times = (due, session, self._shares.next_room())
        soonest = min(time for time in times if time is not None)
        return None if soonest == inf else soonest

    def release(self, host: Host, wait: float) -> None:
        """End the host's flight with its request: it is due again ``wait`` seconds from now."""
        self._leave_flight(host)
        # A hand-over from another frontier may have set a later time meanwhile.
        now = self.now()
        due = max(host.due, now + wait)
        # Outside its session it would wait until the whole crowd that is being turned away was
        # looked at.
        crowded = self._turned_away < _CROWDED
        goes_on = (
            host.queued > 0 and not host.waits and self._sessions.go_on(host, due - now, on=crowded)
        )
        self._rest(host, due, in_session=goes_on)
        host.ready = host.due
        # A host that was deferred has no place on disk: it would be in neither part of the heap.
        if self._waits_longer(host, max(wait, self._rule.delay(host.rate))) or (
            host.queued and host.placed is None
        ):
            self._record_now(host)

    def rest_longer(self, host: Host, wait: float) -> None:
        """Make a resting host that is due within ``wait`` seconds due at their end."""
        due = self.now() + wait
        if host.state is RESTING and host.due < due:
            host.ready = whole_microseconds(due)
            self._rest(host, due)

    def _waits_longer(self, host: Host, wait: float) -> bool:
        """Return whether ``wait``, in seconds, is longer than the host would wait by its record
        after a restart."""
        if not host.record:
            return wait > _RESTART
        if wait <= self._rule.minimum + _RESTART:
            return False
        return wait > self._rule.delay(times_in(host.record)[1]) + _RESTART

    def wait(self, host: Host, wait: float) -> None:
        """End the host's flight with its request, and keep the host out of the heap until `resume`.
        ``wait`` is as in `release`."""
        host.waits = True
        self.release(host, wait)

    def resume(self, host: Host) -> None:
        """Put a waiting host back into the heap, at its own next-fetch time.

        :raises ValueError: the host is not waiting
        """
        if not host.waits:
            raise ValueError(f"{host.name} is {host.state.value}, not waiting")
        host.waits = False
        if host.state is WAITING:
            host.state = IDLE
            if host.queued or host.robots_fetches:
                self._due_again(host)
        # Write what was learnt while it waited: its crawl-delay.
        self._record_now(host)

    def _rest(self, host: Host, due: float, *, in_session: bool = False) -> None:
        """Make a host that is no longer in flight due at a time, if it has anything to fetch. The
        next commit writes its record."""
        host.due = whole_microseconds(due)
        host.session = host.session + 1 if in_session else 0
        self._note(host)
        if host.waits:
            host.state = WAITING
            if host.robots_fetches:
                self._due.push(host.due, host.name)
        elif host.queued:
            self._line_up(host, in_session=in_session)
        elif host.robots_fetches:
            self._due_again(host)

    def _line_up(self, host: Host, *, in_session: bool = False) -> None:
        """Put a host into the heap: in memory, if that reaches its time; on disk, with its next
        record. A host in a session goes before the others in memory."""
        host.state = RESTING
        if in_session:
            self._sessions.push(host.due, host.name)
            return
        host.session = 0
        host.unread = not self._due.covers(host.due)
        if not host.unread:
            self._due.push(host.due, host.name)

    def retire(self, host: Host) -> None:
        """Retire a host that asks for a slower rate than this crawl keeps. Until the host is
        forgotten, its queued entries are dropped as they are popped, and new ones are refused."""
        host.set_health(Health.RETIRED)
        self._record_now(host)

    def forgive(self, name: str, errors: int) -> None:
        """Subtract errors that were counted against a host and were not its fault."""
        host = self.host(name)
        before, host.rate.errors = host.rate.errors, max(0, host.rate.errors - errors)
        self._note(host)
        if host.state is DEFERRED and self._rule.parked(HostRate(errors=before)):
            # The last of these errors parked it. Its last request may have ended just now.
            host.due = host.ready = whole_microseconds(self.now() + self._rule.delay(host.rate))
            self._due.push(host.due, name)

    def is_deferred(self, name: str) -> bool:
        """Return whether a host is deferred: out of the heap."""
        return self.host(name).state is DEFERRED

    def defer(self, host: Host, wait: float = 0.0) -> None:
        """Take a host in flight out of the heap, with all its entries, until the next round, and
        for ``wait`` seconds at least. Where ``wait`` ends before the next round, the host is due at
        its end."""
        host.set_health(Health.DEAD)
        self._leave_flight(host)
        host.state = DEFERRED
        host.session = 0
        if wait:
            host.due = host.ready = whole_microseconds(self.now() + wait)
        else:
            host.ready = 0.0
        self._deferred_queued += host.queued
        batch = self._store.batch()
        batch.put(schema.deferred_key(host.name), b"")
        self._record(host, batch)
        batch.write()
        if wait:
            self._rest_apart(host)
        elif host.robots_fetches:
            self._due.push(host.due, host.name)

    def _rest_apart(self, host: Host) -> None:
        """Schedule a deferred host for its own time, if that comes within a round or the host has
        robots fetches. No crawl goes on only because of it."""
        if host.robots_fetches or host.due <= self.now() + ROUND:
            self._due.push(host.due, host.name)

    def _revive(self) -> None:
        """Begin or continue a round: make deferred hosts due again, a limited number at a time.
        Those whose own time has not come stay deferred."""
        if self._round is None:
            if self.now() < self._next_round:
                return
            self._round = schema.DEFERRED
            self._next_round = self.now() + ROUND
        keys = list(islice(self._store.keys(schema.DEFERRED, self._round), _REVIVED))
        self._round = keys[-1] if len(keys) == _REVIVED else None
        names = [key[1:].decode() for key in keys]
        self._recall(sorted(name for name in names if name not in self.hosts))
        batch = self._store.batch()
        for key, name in zip(keys, names, strict=True):
            host = self.hosts[name]
            if host.state is DEFERRED and host.due > self.now():
                self._rest_apart(host)
                continue
            batch.delete(key)
            if host.state is DEFERRED:
                self._deferred_queued -= host.queued
                host.set_health(Health.BACKING_OFF)
                host.due = max(host.due, whole_microseconds(self.now()))
                self._line_up(host)
            self._record(host, batch)
        batch.write()

    def count_due(self) -> int:
        """Return how many hosts in memory could be fetched now; with a long backlog there are more
        on disk."""
        # The heap also counts out-of-date places, which stay until they are popped: hence the
        # bound.
        now = self.now()
        due = self._due.count_due(now) + self._sessions.count_due(now)
        return min(due + self._shares.waiting, self.host_count)

    @property
    def host_count(self) -> int:
        """Return how many hosts have entries, without deferred ones."""
        return self._due.scheduled
