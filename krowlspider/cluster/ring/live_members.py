"""Which members are live, how a node joins and leaves, and when a crawl of several is over.
Pure.

How a node joins or leaves a cluster with much to hand over: its weight changes in steps. Each step
changes the ring. Only the domains of the step rest while they are handed over; their owners go on
fetching the others until their step comes.

When a crawl of several nodes is over: no frontier, inbox or outbox has anything left. A URL that
one node sends is in its outbox until it is in the other's frontier. So the crawl is over if all
nodes are idle at one moment. Nobody can look at all of them at one moment. But a node that sends
two idle heartbeats, with the same activity count, was idle all the time between. So read one idle
heartbeat of each node. If each node then sends another one that was begun after these were read,
idle and with the same activity count, all nodes were idle together.

The nodes that count are the *pending* ones, with work that may be on their disks. A node is pending
before anybody can send to it, until it has nothing left. A node that joins changes the pending
nodes, and detection starts again. A node that died stays pending, sends no heartbeats, and has a
new ``start`` after its restart. A node that is cut off hears nothing new, not even its own
heartbeats.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import ceil, copysign, floor, inf
from typing import TYPE_CHECKING

import xxhash

from krowlspider.cluster.ring.ring import (
    POINTS,
    BadRecordError,
    Counters,
    MemberRecord,
    Weight,
    load_counters,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class RegisterEntry:
    """A key of the register, held by ``session`` or None; ``modified`` grows with each change."""

    key: str
    value: bytes
    session: str | None
    modified: int

    @property
    def node(self) -> str:
        return self.key.rpartition("/")[2]


def dead_record(entry: RegisterEntry) -> MemberRecord | None:
    """Return the record of a node that died with claims; None for a live one, or one that left."""
    if entry.session:
        return None
    with suppress(BadRecordError):
        record = MemberRecord.loads(entry.node, entry.value)
        return replace(record, dead=True) if record.claims else None
    return None


class LiveMembers:
    """The members by the last reading: those whose key a session holds, and those that are dead.

    The key of a dead member has claims and no session. It stays a member until its key is deleted,
    which is `overdue` after ``delay`` seconds. It stays for ``ttl`` seconds in any case, as its
    lease may still be valid. All seconds count from the first reading that showed it dead.
    """

    def __init__(self, own: str, ttl: float, delay: float) -> None:
        self.members: Mapping[str, MemberRecord] = {}
        self.epoch = 0
        # Index in the register of the last change of our own key.
        self.modified = 0
        self._own = own
        self._ttl = ttl
        self._delay = max(ttl, delay)
        # Of each dead member: the index of its key, 0 for a deleted one, and when that was read.
        self._dead: dict[str, tuple[int, float]] = {}

    def update(self, epoch: int, entries: Sequence[RegisterEntry], now: float) -> bool:
        """Take a reading that has our own key. Return whether more than counters has changed.

        :raises BadRecordError: the record of a live member cannot be read; nothing is changed
        """
        by_id = {entry.node: entry for entry in entries}
        found = {
            node: MemberRecord.loads(node, entry.value)
            for node, entry in by_id.items()
            if entry.session
        }
        dead: dict[str, tuple[int, float]] = {}
        for node, entry in by_id.items():
            if (record := dead_record(entry)) is not None:
                index, since = self._dead.get(node, (0, now))
                dead[node] = entry.modified, since if index == entry.modified else now
                found[node] = record
        for node in self.members.keys() - by_id.keys():
            _, since = self._dead.get(node, (0, now))
            if now < since + self._ttl:
                dead[node] = 0, since
                found[node] = replace(self.members[node], dead=True)
        self._dead = dead
        before, self.epoch, self.modified = self.members, epoch, by_id[self._own].modified
        self.members = {
            node: replace(record, counters=before[node].counters) if node in before else record
            for node, record in found.items()
        }
        return before != self.members

    def news(self, before: Mapping[str, MemberRecord]) -> list[str]:
        """Return what has changed since the members were ``before``, a sentence for each node.

        If there were none, return only which members are dead.
        """
        told = []
        for node in sorted((self.members.keys() | before.keys()) - {self._own}):
            was, now = before.get(node), self.members.get(node)
            if now is None:
                is_dead = was is not None and was.dead
                how = "is dead: other nodes take its domains over" if is_dead else "has left"
                told.append(f"Node {node} {how}")
            elif now.dead:
                if was is None or not was.dead:
                    end = (
                        f" for up to {self._delay:g} s; `scrapy ring --forget {node}` ends the wait"
                    )
                    wait = "its domains wait for it" + (end if self._delay < inf else "")
                    told.append(f"Node {node} has lost its lease: {wait}")
            elif was is not None and was.dead:
                told.append(f"Node {node} is back")
            elif was is None:
                told += [f"Node {node} has joined"] if before else []
            elif now.leaving > was.leaving:
                told.append(f"Node {node} is leaving: it hands its hosts over")
        return told

    def is_stale(self, now: float) -> bool:
        """Return whether a new reading would drop a member whose key was deleted."""
        return any(not index and now >= since + self._ttl for index, since in self._dead.values())

    def overdue(self, now: float) -> dict[str, int]:
        """Return the dead members whose keys are to be deleted, and the index of each key."""
        ends = ((node, index, since + self._delay) for node, (index, since) in self._dead.items())
        return {node: index for node, index, end in ends if index and now >= end}

    def waits(self, now: float) -> dict[str, int]:
        """Return how many seconds are left until each dead member is overdue."""
        return {
            node: max(0, ceil(since + self._delay - now))
            for node, (index, since) in self._dead.items()
            if index and self._delay < inf
        }

    def count(self, heartbeats: Sequence[RegisterEntry]) -> None:
        """Take the counters of the members. Counters that cannot be read change nothing."""
        counted = dict(self.members)
        for heartbeat in heartbeats:
            if heartbeat.node in counted and heartbeat.session:
                with suppress(BadRecordError):
                    counters = load_counters(heartbeat.value)
                    counted[heartbeat.node] = replace(counted[heartbeat.node], counters=counters)
        self.members = counted


# URLs, queued or done, of the domains of the first step.
FIRST_URLS = 20_000
# Seconds that a step is to take.
STEP_SECONDS = 20.0
# Most by which one step is larger than the last, or smaller.
_CHANGE_MAX = 4.0


@dataclass
class Steps:
    """The steps by which a node comes to its ``target`` weight, 0 to leave.

    ``part`` is the share of all domains, 0 to 1, that one step moves. It never falls below
    ``least``: a step takes some seconds even if no host moves, so slow steps would shrink to zero.
    """

    target: Weight
    part: float = 1.0
    least: float = 0.0
    _begun: float = inf

    @classmethod
    def among(cls, target: Weight, urls: int) -> Steps:
        """Return the steps in a cluster whose nodes together have ``urls`` URLs."""
        first = FIRST_URLS / max(urls, FIRST_URLS)
        return cls(target, first, first)

    def next(self, weight: Weight, others: Weight, now: float) -> Weight:
        """Begin a step, with the sum of the weights of the ``others``; return the new weight.

        By the seconds that the last step took, this one is larger or smaller.
        """
        if now > self._begun:
            change = STEP_SECONDS / (now - self._begun)
            change = min(max(change, 1 / _CHANGE_MAX), _CHANGE_MAX)
            self.part = max(change * self.part, self.least)
        self._begun = now
        return self.after(weight, others)

    def after(self, weight: Weight, others: Weight) -> Weight:
        """Return the weight after a step from this one."""
        if not others:
            return self.target
        share = weight / (weight + others)
        change = self.target / (self.target + others) - share
        if abs(change) <= self.part:
            return self.target
        share += copysign(self.part, change)
        points, new = int(weight * POINTS), floor(others * share / (1 - share) * POINTS)
        new = max(new, points + 1) if change > 0 else min(new, points - 1)
        whole, rest = divmod(new, POINTS)
        return new / POINTS if rest else whole


# A heartbeat so many beats later was surely begun after the first one of another node was read: the
# next may have been on its way then.
_LATER = 2
# JSON readers keep whole numbers only up to 2^53.
_MASK = (1 << 52) - 1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of a node, sent every second.

    ``start`` is a random number of the process, ``beat`` counts its heartbeats, ``activity`` what
    it has done. ``idle``: frontier, outbox and inbox are empty, and nothing is in flight. ``over``
    is the `run_number` for which it knows that the crawl is over, else 0.
    """

    start: int
    beat: int
    idle: bool
    activity: int
    over: int = 0

    def counters(self) -> dict[str, int]:
        return {name: int(value) for name, value in asdict(self).items()}

    @classmethod
    def of(cls, counters: Counters) -> Heartbeat | None:
        """Return the heartbeat in a node's counters, None if there is none."""
        if "beat" not in counters:
            return None
        start, beat, activity, over = (
            int(counters.get(name, 0)) for name in ("start", "beat", "activity", "over")
        )
        return cls(start, beat, bool(counters.get("idle")), activity, over)


def run_number(heartbeats: Mapping[str, Heartbeat]) -> int:
    """Return a number of these processes of these nodes; other processes have another one."""
    text = ",".join(f"{node}={heartbeats[node].start}" for node in sorted(heartbeats)).encode()
    return (xxhash.xxh3_64_intdigest(text) & _MASK) or 1


class TerminationDetector:
    """Finds the end of the crawl from the heartbeats of all nodes, this node's among them.

    ``waiting_for`` are the pending nodes that are not live while all others have nothing left.
    """

    def __init__(self) -> None:
        # One idle heartbeat of each node, and the nodes that were pending at that time.
        self._first: dict[str, Heartbeat] | None = None
        self._pending_nodes: frozenset[str] = frozenset()
        self.waiting_for: tuple[str, ...] = ()

    def update(
        self,
        heartbeats: Mapping[str, Heartbeat | None],
        pending_nodes: frozenset[str] = frozenset(),
    ) -> int:
        """Take the last heartbeats of all members, None for those that have not sent any.

        Return the `run_number` for which the crawl is over, else 0.
        """
        if pending_nodes != self._pending_nodes:
            self._first, self._pending_nodes = None, pending_nodes
        run = self._idle_run(heartbeats)
        self.waiting_for = tuple(sorted(pending_nodes - heartbeats.keys())) if run else ()
        return 0 if self.waiting_for else run

    def _idle_run(self, heartbeats: Mapping[str, Heartbeat | None]) -> int:
        """Return the run of the members if all of them were idle at one moment, else 0."""
        sent = {node: heartbeat for node, heartbeat in heartbeats.items() if heartbeat is not None}
        if len(sent) < len(heartbeats) or not sent:
            self._first = None
            return 0
        run = run_number(sent)
        if any(heartbeat.over == run for heartbeat in sent.values()):
            return run
        first = self._first
        if first is None or not _is_unchanged(first, sent):
            all_idle = all(heartbeat.idle for heartbeat in sent.values())
            self._first = sent if all_idle else None
            return 0
        later = all(sent[node].beat >= heartbeat.beat + _LATER for node, heartbeat in first.items())
        return run if later else 0


def _is_unchanged(first: Mapping[str, Heartbeat], now: Mapping[str, Heartbeat]) -> bool:
    """Return whether all nodes are idle, and none has done anything since ``first``."""
    return first.keys() == now.keys() and all(
        heartbeat.idle
        and (heartbeat.start, heartbeat.activity) == (first[node].start, first[node].activity)
        for node, heartbeat in now.items()
    )
