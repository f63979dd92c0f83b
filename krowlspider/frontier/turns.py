"""Hosts and their turns: which host is fetched next, and when.

A host is in the heap until its time has come, then in transit, with one request, and back in the heap after its
delay. It knows nothing of what is queued but how much.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from krowlspider.frontier import schema
from krowlspider.frontier.due import WINDOW, DueHeap
from krowlspider.frontier.hosts import (
    IDLE,
    IN_TRANSIT,
    PARKED,
    PUT_OFF,
    RESTING,
    WAITING,
    Host,
    State,
    times_in,
)
from krowlspider.frontier.schema import whole_microseconds
from krowlspider.frontier.sessions import NO_SESSIONS, SessionLimits, Sessions
from krowlspider.frontier.shares import CROWD, Shares, block_of, places_of
from krowlspider.frontier.tally import Tally
from krowlspider.politeness.pace import Pace
from krowlspider.urls.host import domain_of
from krowlspider.urls.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store import Batch, Store
    from krowlspider.politeness.pace import PaceRule

# Job clock and monotonic clock of a commit, before the id of the machine's run.
_CLOCK = Struct(">dd")
_JOB_CLOCK = Struct(">d")
# Hosts kept in memory beside those that are busy: about 1 kB each. One that is not takes 10 µs to read, and each that
# is has the garbage collector look at it: 170 ms at a time with 50,000 of them.
HOSTS_IN_MEMORY = 10_000
# Hosts read together when one of them is due, with the heads of their queues.
_TOGETHER = 16
# URLs that a host has had at most for its queue's head to be the next key to its record, or nearly so: what was removed or
# written anew in between is gone over, 0.2 µs each.
_NEAR = 64
# Seconds from one round of tries of the hosts that did not answer to the next.
ROUND = 3600.0
# Hosts of a round made due at a time, once a commit: about 5 ms.
_REVIVED = 1000
# Hosts looked at in one pop, most of which may not be ready: about 20 ms.
_LOOKS = 1000
# Hosts a second that may be popped and sent to wait for room, 12 µs each; and how many at once
# where none were lately. Then the crawl goes on with those in sessions, looks again in so many
# seconds, and finds those behind a crowd little by little.
_TURNED_AWAY = 4000.0
_TURNED_AWAY_MAX = 50_000.0
_CROWDED = 0.95 * _TURNED_AWAY_MAX
_LOOK_AGAIN = 0.05
# Hosts that were called and find no room in another share, in one pop: then the others are looked at. Who is not called for
# it is once a second.
_IN_VAIN = 8
# Hosts that wait for room, all shares together: so many with what memory knows of them, 1 kB each,
# and so many by name, about 100 bytes. More are given times of their own, so far apart (seconds),
# and wait on disk: a domain may have hosts without end.
PARKED_IN_MEMORY = 1000
IN_LINE = 100_000
_APART = 0.002
# Seconds that a process takes at least to die and be started again. A wait that is longer than the one by the
# host's record, by more than that, is written at once: a restart must not cut it short.
_RESTART = 0.5
_NO_PORTS = Ports(())


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of the frontier: URLs per host, URLs in all, hosts of one domain in transit, hosts of
    one address in transit (0: no cap), seconds between two requests to an address, requests in
    transit in all (``slots``, 0: not known), URLs of one domain ever (0: no cap), the part of
    ``total`` that one domain may have queued (0: no cap), URLs in the outbox (0: no cap); and of
    its memory: hosts kept beside those that are busy, places of the heap read at a time, hosts
    kept that wait for room (``parked``) and names in line for it; and what `Sessions` and
    `LinkedPorts` may be."""

    host_queue: int
    total: int
    domain_concurrency: int
    address_concurrency: int = 0
    address_delay: float = 0.0
    slots: int = 0
    domain_budget: int = 0
    domain_share: float = 0.0
    outbox: int = 0
    hosts_in_memory: int = HOSTS_IN_MEMORY
    window: int = WINDOW
    parked: int = PARKED_IN_MEMORY
    in_line: int = IN_LINE
    sessions: SessionLimits = NO_SESSIONS
    ports: Ports = _NO_PORTS


class HostBusyError(Exception):
    """The host has a request in transit, waits for another host, has pages that are not acknowledged, or is on its way
    to another frontier."""


class HostTurns:
    """The hosts of a store.

    Their clock is the *job clock*: wall time when the job begins, and from there on monotonic, across restarts too as
    long as the machine runs; after a restart of the machine it is wall time again, or the time of the last commit where
    that is later. So it never goes back, whatever is done to the machine's clock, and times on disk hold across
    restarts. ``boot`` tells runs of the machine apart; empty, where it is not known.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        rule: PaceRule,
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
        # Hosts whose turn is PARKED; when the last is due of those that wait for room on disk.
        self._parked = 0
        self._last_apart = 0.0
        # Whether one of the crowd was called and not popped since; whether the last pop called one
        # for an address.
        # How many hosts are in memory when the next are let go.
        self._evict_at = 0
        self._called_of_crowd = ""
        self._address_called = False
        # Who was called as nobody else was due, though its origin has no room.
        self._spare = ""
        # How many more hosts may be turned away, as of a time.
        self._turned_away = _TURNED_AWAY_MAX
        self._turned_away_at = 0.0
        self._changed: list[Host] = []
        # Says of a domain whether it may be fetched now; None: all may.
        self.may_fetch: Callable[[str], bool] | None = None
        # Hosts that were due and not ours to fetch, since `ring_changed`.
        self.held = 0
        self._tally = Tally.read(store)
        saved = store.get(schema.CLOCK)
        self._new = saved is None
        self._ahead = (wall() if saved is None else self._gone_on(saved, wall)) - monotonic()

    def start_turns(self, unsure: float | None) -> None:
        """Hosts of which the disk knows no more wait as if their last request had ended at ``unsure``, a time of the job
        clock: an earlier start that followed on a death, None for now."""
        self.unsure = 0.0 if self._new else self.now() if unsure is None else unsure
        self._sure = self.unsure + self._rule.longest
        self._put_off_queued = self._tally.put_off
        self._due = DueHeap(self._store, self._tally.hosts, self._limits.window)
        self._sessions = Sessions(self._limits.sessions)
        # Each start tries the hosts again that did not answer the last one.
        self._round: bytes | None = schema.PUT_OFF
        self._next_round = self.now() + ROUND
        self._revive()

    def _gone_on(self, saved: bytes, wall: Callable[[], float]) -> float:
        """The job clock by its last commit."""
        job: float = _JOB_CLOCK.unpack_from(saved)[0]
        if self._boot and saved[_CLOCK.size :] == self._boot:
            then: float = _CLOCK.unpack_from(saved)[1]
            return job + max(0.0, self._monotonic() - then)
        return max(wall(), job)

    def now(self) -> float:
        """The job clock, in seconds."""
        return self._monotonic() + self._ahead

    def put_clock(self, batch: Batch) -> None:
        batch.put(schema.CLOCK, _CLOCK.pack(self.now(), self._monotonic()) + self._boot)

    def host(self, name: str) -> Host:
        """The host: from memory, from its record on disk, or new."""
        host = self.hosts.get(name)
        if host is None:
            self._recall([name])
            host = self.hosts[name]
        return host

    def _recall_due(self, name: str) -> Host:
        """Take a host that is due into memory, and with it some that are due soon; each with the head of its queue, which
        is in the same place on the disk."""
        names = {name, *self._due.soon(_TOGETHER)}
        with self._store.reader() as reader:
            for each in sorted(names.difference(self.hosts)):
                key = schema.host_key(each)
                host = self._remember(each, reader.read(key))
                if (head := host.head) is not None:
                    # Between the two are older records and removed entries, until LevelDB merges them away.
                    near = host.queued + host.done + host.dropped <= _NEAR
                    key = schema.queue_key(key, head[0] >> 8, head[1])
                    value = reader.read_next(key) if near else reader.read(key)
                    host.ahead = [(*head, value)]
        return self.hosts[name]

    def _recall(self, names: list[str]) -> None:
        """Take hosts that are not in memory, in the order of their names, into it."""
        for name, saved in zip(names, self._store.read(map(schema.host_key, names)), strict=True):
            self._remember(name, saved)

    def _remember(self, name: str, saved: bytes | None) -> Host:
        host = Host(name, due=self.now()) if saved is None else Host.decode(name, saved)
        self.hosts[name] = host
        return host

    def _evict(self) -> None:
        """With too many hosts in memory, let the oldest tenth go, except those that are busy.

        Not while a batch is open: a host is on disk as it is in memory only when its batch is written.
        """
        most = self._limits.hosts_in_memory
        if len(self.hosts) < max(most, self._evict_at):
            return
        before = len(self.hosts)
        oldest = list(islice(self.hosts.values(), most // 10 + 1))
        for host in oldest:
            del self.hosts[host.name]
            if host.pinned:
                # To the end: it is not looked at again before all others.
                self.hosts[host.name] = host
        # Where most are busy, not again for each host that comes.
        few_left = len(self.hosts) > before - len(oldest) // 2
        self._evict_at = len(self.hosts) + most // 20 if few_left else 0

    def _note(self, host: Host) -> None:
        """Memory knows more of a host than its record: the next commit writes it."""
        if not host.changed:
            host.changed = True
            self._changed.append(host)

    def _record(self, host: Host, batch: Batch) -> None:
        """Have the disk say what memory knows of a host: its record, and its place in the heap.

        Nothing that may fail comes between this and the batch's being written, as the tally is of what is written."""
        if host.turn is PUT_OFF or not (host.queued or host.leased):
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
        """Take the host that has been due the longest, of those in a session where one is due, if its domain has room, and
        put it in transit."""
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
        """Put a host whose place has come into transit, if it is due and has room in all its shares."""
        aside = host.turn is WAITING or host.turn is PUT_OFF
        ready = host.turn is RESTING or (aside and (host.errands or host.rests))
        if not ready or host.due > now:
            # It has been given another turn or time since; that one has a place of its own.
            pass
        elif now < self._sure and (earliest := self.surely_over(host)) > now:
            # The end of its last request may not have reached the disk: wait as if it had been at the start.
            self._due.push(earliest, host.name)
        elif not host.queued and not host.errands:
            self._stand_idle(host)
        elif host.leaving or (self.may_fetch is not None and not self.is_ours(host.name)):
            self._hold(host)
        else:
            return self._enter_transit(host, in_turn=in_turn)
        return False

    def pop_named(self, name: str) -> Host | None:
        """As `pop_host`, but this host or none. The place that it leaves in the heap is out of
        date."""
        host, now = self.host(name), self.now()
        is_due = host.turn is RESTING and max(host.due, self.surely_over(host)) <= now
        has_work = host.queued or host.errands
        if not (is_due and has_work) or host.leaving or not self.is_ours(name):
            return None
        called, host.called = host.called, ""
        if self._enter_transit(host, in_turn=False):
            return host
        self._pass_on(host, called)
        return None

    def is_ours(self, name: str) -> bool:
        """Whether a host may be fetched, by its domain."""
        return self.may_fetch is None or self.may_fetch(domain_of(name))

    def _hold(self, host: Host) -> None:
        """It keeps its place on disk, and has none in memory until `ring_changed`."""
        host.session = 0
        if not host.held:
            host.held = True
            self.held += 1

    def ring_changed(self) -> None:
        """`may_fetch` may say otherwise now: have all hosts that were held back come again.

        One that is put off comes with the next round."""
        self.held = 0
        # The others in line are read again.
        hosts = self.hosts
        self._shares.only(lambda name: name in hosts and hosts[name].turn is PARKED)
        for host in self.hosts.values():
            host.held = False
            if host.errands:
                # With nothing queued it has no place on disk.
                self._due.push(host.due, host.name)
        self._due.read_again()

    def seal(self, name: str) -> Host:
        """Have no request of a host sent until it is gone, or `unseal` takes it back. Its record is on disk then.

        :raises HostBusyError: it is not at rest, or sealed already; nothing has changed
        """
        host = self.host(name)
        if host.busy or host.leaving:
            raise HostBusyError(f"{name} is {host.turn.value}, with {len(host.leased)} pages open")
        host.leaving = True
        if host.changed:
            self._record_now(host)
        return host

    def surely_over(self, host: Host) -> float:
        """When a host has waited its delay for sure, in seconds of the job clock: the end of its last request may not have
        reached the disk from which it was read."""
        return self.unsure + self._rule.delay(host.pace) if host.recalled else 0.0

    def drop_from_memory(self, host: Host) -> None:
        """A sealed host is gone: should it come back, it is new."""
        self.held -= host.held
        host.turn, host.changed, host.leaving = IDLE, False, False
        del self.hosts[host.name]

    def unseal(self, host: Host) -> None:
        """A host stays after all."""
        host.leaving = False
        if host.turn is PUT_OFF:
            self._rest_apart(host)
        elif host.queued:
            self._line_up(host)
            self._record_now(host)
        elif host.turn is RESTING and not host.errands:
            self._stand_idle(host)

    def _pop_name(self, now: float) -> str | None:
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
        host.turn = IDLE
        host.session = 0
        if not host.pending:
            self._note(host)

    def _enter_transit(self, host: Host, *, in_turn: bool) -> bool:
        """Whether all shares of a host have room; else it is in line for the first that has none. ``in_turn`` is one that
        was not called."""
        if host.turn is PUT_OFF:
            self._put_off_queued -= host.queued
            host.become(State.BACKING_OFF)
            # Should no request be sent, its record would still say that it is put off.
            self._note(host)
        host.domain = host.domain or domain_of(host.name)
        # With no room in line, nobody waits for an origin.
        no_room = self._shares.waiting >= self._limits.in_line
        shares = self._shares.of(host, spare=no_room or host.name == self._spare)
        self._spare = ""
        if (full := self._shares.full(shares)) is not None:
            self._turned_away -= in_turn
            self._park(host, full)
            return False
        self._shares.enter_transit(host, shares)
        host.turn = IN_TRANSIT
        return True

    def locate(self, host: Host, address: str) -> bool:
        """A host in transit is about to be fetched at an address. False when that, or its block,
        has no room now: the host is to be turned back."""
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
        """A host in transit that sent no request, for want of room at its address, waits for it."""
        self._leave_transit(host)
        host.address, host.block = places_of(address)
        if (full := self._shares.full((host.block, host.address))) is None:
            self._due_again(host)
        else:
            self._park(host, full)

    def answered_at_address(self, host: Host, latency: float) -> None:
        """A host gave an answer that does not ask for rest: what its address is to know of it."""
        self._shares.addresses.answered(host, latency)

    def refused_at_address(self, host: Host, retry_after: float | None, chance: float) -> float:
        """A host asked for rest: where others do, their address rests, for so many seconds; else
        0."""
        return self._shares.addresses.refused(host, retry_after, self.now(), chance)

    def _park(self, host: Host, share: str) -> None:
        """A share of a host has no room: it is in line for it, or waits further behind."""
        if self._shares.waiting >= self._limits.in_line:
            self._last_apart = max(self.now(), self._last_apart) + _APART
            host.turn = IDLE
            self._rest(host, self._last_apart)
            return
        self._shares.wait(share, host.name)
        if self._parked < self._limits.parked:
            host.turn = PARKED
            self._parked += 1
        else:
            # It may go from memory, and has its place on disk.
            host.turn = WAITING if host.waits else RESTING
            host.session = 0

    def _leave_transit(self, host: Host) -> None:
        """Make room in the host's shares. The caller gives the host its next turn."""
        if host.turn is not IN_TRANSIT:
            raise ValueError(f"{host.name} is {host.turn.value}, not in transit")
        host.turn = IDLE
        self._make_room(self._shares.leave_transit(host))

    def _make_room(self, shares: tuple[str, ...]) -> None:
        """Call the next of those who wait for each; the crowd is called at the pop."""
        if self._shares.waiting:
            for share in shares:
                if share == CROWD or not self._shares.waits(share):
                    continue
                if self._shares.has_room(share):
                    self._call_next(share)
                else:
                    self._shares.set_clock(share, self.now())

    def _pass_on(self, host: Host, called: str) -> None:
        """A host that was popped and is not sent leaves the room that was made for it to the next."""
        host.domain = host.domain or domain_of(host.name)
        shares = self._shares.of(host)
        self._make_room(shares if not called or called in shares else (*shares, called))

    def _call_waiting(self, now: float) -> None:
        """Once a pop: room of the crowd, or at an address, that there is without anybody's leaving
        it."""
        more = (now - self._turned_away_at) * _TURNED_AWAY
        self._turned_away_at = now
        self._turned_away = min(self._turned_away + more, _TURNED_AWAY_MAX)
        self._call_of_crowd()
        # Who is called is popped first: every second pop is for the others.
        self._address_called = not (self._address_called or not self._call_at_address(now))

    def _call_another(self, now: float) -> bool:
        """Nobody is due: call one who waits, if there is room for any."""
        return self._call_at_address(now) or self._call_of_crowd() or self._call_spare()

    def _call_of_crowd(self) -> bool:
        """Call the next of the crowd, unless one is called already."""
        last = self.hosts.get(self._called_of_crowd)
        if last is not None and last.called == CROWD:
            return False
        if not (self._shares.waits(CROWD) and self._shares.has_room(CROWD)):
            return False
        self._called_of_crowd = self._call_next(CROWD)
        return bool(self._called_of_crowd)

    def _call_at_address(self, now: float) -> bool:
        """Call a host for an address that may be asked again, if there is one."""
        share = self._shares.opened(now)
        return share is not None and bool(self._call_next(share))

    def _call_spare(self) -> bool:
        """Nobody else is due: call a host of an origin that has no room, which goes as part of the
        crowd."""
        share = self._shares.next_origin()
        self._spare = "" if share is None else self._call_next(share)
        return bool(self._spare)

    def _call_next(self, share: str) -> str:
        """Have the next in line for a share popped before all others. Its name; empty when nobody
        is left there."""
        while (name := self._shares.first(share)) is not None:
            host = self.host(name)
            if host.turn is PARKED:
                self._parked -= 1
            elif host.turn not in (RESTING, WAITING) or host.called or host.due > self.now():
                # It has been given another turn or time since.
                continue
            # It stays in memory: whoever forgot it would not pass its room on.
            host.called = share
            if share[0] == "@" and not host.address:
                # Memory forgot where it is.
                host.address, host.block = share, block_of(share)
            self._due_again(host)
            return name
        return ""

    def _due_again(self, host: Host) -> None:
        """A host that was popped without being fetched keeps its time, and its session. One for which room was made goes before
        those in a session, which might take it."""
        (self._sessions if host.session or host.called else self._due).push(host.due, host.name)
        host.turn = WAITING if host.waits else RESTING

    def urge(self, name: str, errand: object) -> None:
        """Give a host an errand: something to fetch before its queue, not kept over a restart."""
        host = self.host(name)
        host.errands.append(errand)
        if host.turn in (IDLE, PUT_OFF, WAITING):
            self._due.push(max(host.due, self.now()), name)
        if host.turn is IDLE:
            host.turn = RESTING

    def give_back(self, host: Host, rest: float = 0.0) -> None:
        """A popped host that sent no request: it is due after ``rest`` seconds, behind those due
        before it, or with the first of its retries where it has nothing else."""
        self._leave_transit(host)
        due = self.now() + rest
        if rest:
            host.due = host.ready = whole_microseconds(due)
        if host.queued and not host.errands:
            self._rest(host, max(due, host.earliest()))
        elif host.queued or host.errands:
            self._rest(host, due)
        else:
            self._stand_idle(host)

    def next_due(self) -> float | None:
        """When to pop again, in seconds of the job clock; None when there is nothing to wait for."""
        due, session = self._due.next_due(), self._sessions.next_due()
        if due is not None and self._turned_away < 0:
            due = max(due, self.now() + _LOOK_AGAIN)
        times = (due, session, self._shares.next_room())
        soonest = min(time for time in times if time is not None)
        return None if soonest == inf else soonest

    def release(self, host: Host, wait: float) -> None:
        """The host's request has ended: it is due again ``wait`` seconds from now."""
        self._leave_transit(host)
        # Its time is a later one where another frontier has handed it over meanwhile.
        now = self.now()
        due = max(host.due, now + wait)
        # Behind a crowd that is being turned away it would wait until all of that was looked at.
        crowded = self._turned_away < _CROWDED
        goes_on = (
            host.queued > 0 and not host.waits and self._sessions.go_on(host, due - now, on=crowded)
        )
        self._rest(host, due, in_session=goes_on)
        host.ready = host.due
        # One without a place, as it was put off, would be in neither part of the heap.
        if self._waits_longer(host, max(wait, self._rule.delay(host.pace))) or (
            host.queued and host.placed is None
        ):
            self._record_now(host)

    def rest_longer(self, host: Host, wait: float) -> None:
        """A host that is to be fetched within ``wait`` seconds is due at their end."""
        due = self.now() + wait
        if host.turn is RESTING and host.due < due:
            host.ready = whole_microseconds(due)
            self._rest(host, due)

    def _waits_longer(self, host: Host, wait: float) -> bool:
        """Whether that is longer than a restart would have it wait, by its record."""
        if not host.record:
            return wait > _RESTART
        if wait <= self._rule.minimum + _RESTART:
            return False
        return wait > self._rule.delay(times_in(host.record)[1]) + _RESTART

    def wait(self, host: Host, wait: float) -> None:
        """The host's request has ended, but it stays out of the heap until `resume`."""
        host.waits = True
        self.release(host, wait)

    def resume(self, host: Host) -> None:
        """Give a waiting host its place in the heap again, at its own next-fetch time."""
        if not host.waits:
            raise ValueError(f"{host.name} is {host.turn.value}, not waiting")
        host.waits = False
        if host.turn is WAITING:
            host.turn = IDLE
            if host.queued or host.errands:
                self._due_again(host)
        # What was learnt while it waited, its crawl-delay.
        self._record_now(host)

    def _rest(self, host: Host, due: float, *, in_session: bool = False) -> None:
        """A host out of transit is due at a time, if it has anything to fetch. The next commit writes it."""
        host.due = whole_microseconds(due)
        host.session = host.session + 1 if in_session else 0
        self._note(host)
        if host.waits:
            host.turn = WAITING
            if host.errands:
                self._due.push(host.due, host.name)
        elif host.queued:
            self._line_up(host, in_session=in_session)
        elif host.errands:
            self._due_again(host)

    def _line_up(self, host: Host, *, in_session: bool = False) -> None:
        """Into the heap: in memory as far as it reaches, on disk with the host's next record; in a session it goes before the
        others in memory."""
        host.turn = RESTING
        if in_session:
            self._sessions.push(host.due, host.name)
            return
        host.session = 0
        host.unread = not self._due.covers(host.due)
        if not host.unread:
            self._due.push(host.due, host.name)

    def retire(self, host: Host) -> None:
        """A host asks for a slower pace than this crawl keeps: what is queued for it is dropped as it is popped,
        what is discovered is refused, until the host is forgotten."""
        host.become(State.RETIRED)
        self._record_now(host)

    def forgive(self, name: str, errors: int) -> None:
        """Take back errors that were counted against a host, for which it was not to blame."""
        host = self.host(name)
        before, host.pace.errors = host.pace.errors, max(0, host.pace.errors - errors)
        self._note(host)
        if host.turn is PUT_OFF and self._rule.parked(Pace(errors=before)):
            # It was the last of ten that parked it. Its last request may have been just now.
            host.due = host.ready = whole_microseconds(self.now() + self._rule.delay(host.pace))
            self._due.push(host.due, name)

    def is_put_off(self, name: str) -> bool:
        """Whether a host is out of the heap."""
        return self.host(name).turn is PUT_OFF

    def put_off(self, host: Host, wait: float = 0.0) -> None:
        """Take a host in transit out of the heap, with all its entries, until the next round, and for ``wait``
        seconds at least; until then alone where that is sooner."""
        host.become(State.DEAD)
        self._leave_transit(host)
        host.turn = PUT_OFF
        host.session = 0
        if wait:
            host.due = host.ready = whole_microseconds(self.now() + wait)
        else:
            host.ready = 0.0
        self._put_off_queued += host.queued
        batch = self._store.batch()
        batch.put(schema.put_off_key(host.name), b"")
        self._record(host, batch)
        batch.write()
        if wait:
            self._rest_apart(host)
        elif host.errands:
            self._due.push(host.due, host.name)

    def _rest_apart(self, host: Host) -> None:
        """A host that is put off is popped at its own time, if that comes before the next round, or it has errands. It
        keeps no crawl from ending meanwhile."""
        if host.errands or host.due <= self.now() + ROUND:
            self._due.push(host.due, host.name)

    def _revive(self) -> None:
        """Go on with a round: hosts that were put off are due again, so many at a time, but for those whose own time has
        not come."""
        if self._round is None:
            if self.now() < self._next_round:
                return
            self._round = schema.PUT_OFF
            self._next_round = self.now() + ROUND
        keys = list(islice(self._store.keys(schema.PUT_OFF, self._round), _REVIVED))
        self._round = keys[-1] if len(keys) == _REVIVED else None
        names = [key[1:].decode() for key in keys]
        self._recall(sorted(name for name in names if name not in self.hosts))
        batch = self._store.batch()
        for key, name in zip(keys, names, strict=True):
            host = self.hosts[name]
            if host.turn is PUT_OFF and host.due > self.now():
                self._rest_apart(host)
                continue
            batch.delete(key)
            if host.turn is PUT_OFF:
                self._put_off_queued -= host.queued
                host.become(State.BACKING_OFF)
                host.due = max(host.due, whole_microseconds(self.now()))
                self._line_up(host)
            self._record(host, batch)
        batch.write()

    def count_due(self) -> int:
        """Hosts that could be fetched now, of those in memory: with a long backlog there are more."""
        # What hosts that are gone have left in the heap goes when its time comes, and they are popped again.
        now = self.now()
        due = self._due.count_due(now) + self._sessions.count_due(now)
        return min(due + self._shares.waiting, self.host_count)

    @property
    def host_count(self) -> int:
        """Hosts that have entries."""
        return self._due.scheduled
