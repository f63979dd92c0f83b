"""When pages are fetched again: next times in their rows, and buckets in which they come up.

A tick is a minute of the job clock, and a bucket is named by the tick at which it comes up. What is
farther away has wider buckets, rounded up to a sixteenth of the wait at most. So a commit writes
few keys, however many pages it plans, and no page is due before its time. Where the wider bucket
would be later than the page may wait, it is that of a minute.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import count
from math import ceil, inf
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from krowlspider.frontier.pages.hint_records import HintRecords, Trials
from krowlspider.frontier.pages.row import SECONDS_MAX, TICK, PageRow, read_row
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import due_again_key
from krowlspider.recrawl.estimate import Estimate
from krowlspider.recrawl.gone import PAGE_SIZE, SoftNotFound
from krowlspider.recrawl.hints import PUSHED
from krowlspider.recrawl.prior import SiteChanges, prior
from krowlspider.recrawl.threshold import EVERY, THRESHOLD_START, counted, demand, step
from krowlspider.recrawl.value import USUAL, due_time, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.recrawl.gone import Absence
    from krowlspider.recrawl.prior import PageKind
    from krowlspider.recrawl.value import Terms

    # Identities by tick and host.
    _Buckets = defaultdict[int, defaultdict[str, list[bytes]]]

COUNTED = (
    *("due", "asked", "not_modified", "changed", "postponed", "gone"),
    *("hinted", "hinted_changed"),
)
# Pages of a key: those of some milliseconds.
CHUNK = 200
# A bucket is at most this part of the wait wide, as the jitter is.
_PART = 16
# Steps of a host's threshold for the minutes since it was planned last: enough to arrive anywhere.
_STEPS_MAX = 60
# Seconds between two requests: a host without any affords no end of them.
_DELAY_MIN = 0.001
# Seconds of the wait that another node has planned: its clock may be ahead.
_WAIT_MAX = 366 * 86_400
_HOST = Struct(">ddffff")
_CRAWL = Struct(">dfd")


class HostDemand(NamedTuple):
    """The demand of a host's pages, and its part that counts for the crawl (`counted`).

    ``threshold`` is that of its politeness, at the time ``stepped`` of its last step, in minutes of
    the job clock. ``seen`` and ``expected`` are as of `Site`.
    """

    demand: float = 0.0
    counted: float = 0.0
    threshold: float = THRESHOLD_START
    stepped: float = 0.0
    seen: float = 0.0
    expected: float = 0.0

    def __bytes__(self) -> bytes:
        return _HOST.pack(*self)

    @classmethod
    def read(cls, data: bytes | None) -> Self:
        """Return what ``bytes`` made. None: nothing is known."""
        return cls() if data is None else cls(*_HOST.unpack(data))

    def at(self, now: float, requests: float) -> Self:
        """Return it ``now``, with ``requests`` a second that the host affords."""
        minute, threshold = now // EVERY, self.threshold
        if self.stepped:
            for _ in range(min(int(minute - self.stepped), _STEPS_MAX)):
                threshold = step(threshold, self.demand, requests)
        return self._replace(threshold=threshold, stepped=max(minute, self.stepped))

    @property
    def site(self) -> SiteChanges:
        """What is known of the changes of its pages."""
        return SiteChanges(self.seen, self.expected)


class Demand(NamedTuple):
    """The sum of what counts of the hosts, and the threshold of the crawl.

    ``stepped`` is the time of its last step, in seconds of the job clock.
    """

    total: float = 0.0
    threshold: float = THRESHOLD_START
    stepped: float = 0.0

    def __bytes__(self) -> bytes:
        return _CRAWL.pack(*self)


class Planner:
    """Plans the pages of a store. ``now`` returns the job clock in seconds, ``delay`` the seconds
    between two requests to a host; ``share`` is the part of its requests for pages that are fetched
    again, ``budget`` such requests a second of the whole crawl. ``generation`` is another number at
    each start.

    ``terms_of`` returns the terms of the site of a URL; None if no site has its own.
    ``host`` returns a host by its name.

    ``counts`` are of pages since this start, by the names in COUNTED. ``late`` is for how many
    seconds the pages that come up next have been due.

    `begin` is for one thread at a time, all else for any.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], float],
        host: Callable[[str], Host],
        delay: Callable[[Host], float],
        share: float,
        budget: float,
        generation: int,
        terms_of: Callable[[str], Terms] | None = None,
    ):
        self.store = store
        self.now = now
        self.terms_of = terms_of
        self._host = host
        self._delay = delay
        self._share = share
        self.budget = budget
        self.counts: Counter[str] = Counter()
        self.late = 0.0
        self.trials = Trials()
        self._numbers = count(generation << 32)
        # What counted of hosts that are forgotten.
        self._left: deque[float] = deque()
        # The demand of single pages that are forgotten.
        self._lost: deque[tuple[Host, float]] = deque()
        saved = store.get(schema.DEMAND)
        if saved is None:
            hosts = store.items(schema.DEMAND)
            self.crawl = Demand(sum(HostDemand.read(value).counted for _, value in hosts))
        else:
            self.crawl = Demand(*_CRAWL.unpack(saved))

    def requests(self, host: Host) -> float:
        """Return the requests a second that a host affords for pages that are fetched again."""
        return self._share / max(self._delay(host), _DELAY_MIN)

    def figures(self) -> dict[str, float]:
        """Return the stats of the schedule."""
        counts = {f"krowl/recrawl/{name}_count": self.counts[name] for name in COUNTED}
        threshold = round(self.crawl.threshold, 1)
        late = round(self.late, 1)
        return {**counts, "krowl/recrawl/late_seconds": late, "krowl/recrawl/threshold": threshold}

    def next_number(self) -> int:
        """Return the number of another key of a bucket."""
        return next(self._numbers)

    def begin(self, batch: Batch) -> Planning:
        """Return a planning whose pages are written with a batch. Call its `end` before."""
        left = sum(self._left.popleft() for _ in range(len(self._left)))
        total, threshold, stepped = self.crawl
        total = max(total - left, 0.0)
        now = self.now()
        if now - stepped >= EVERY:
            # A first step would answer to pages that are not planned yet.
            threshold = step(threshold, total, self.budget) if stepped else threshold
            stepped = now
        self.crawl = Demand(total, threshold, stepped)
        planning = Planning(self, batch)
        for _ in range(len(self._lost)):
            planning.lessen(*self._lost.popleft())
        return planning

    def take(
        self, name: str, rows: list[tuple[bytes, bytes]], batch: Batch
    ) -> list[tuple[bytes, bytes]]:
        """Put pages of a host that another node has planned into buckets here. Return their
        identities and stored rows, given as such too, with the times of these buckets.

        What is queued there comes up at the next tick: its entry may be lost on its way. Demands
        are counted when the pages come up.
        """
        now, found = self.now(), []
        buckets: _Buckets = defaultdict(lambda: defaultdict(list))
        for identity, data in rows:
            row = read_row(data, name, identity)
            if row is None or not row.is_planned:
                found.append((identity, data))
                continue
            # A clock that is ahead there delays no page for longer than any plan does.
            due = now + min(max(row.due - now, 0), _WAIT_MAX)
            tick = tick_at(due, now, due)
            row.due, row.planned = tick * TICK, 0
            buckets[tick][name].append(identity)
            found.append((identity, row.encode(name)))
        _put_buckets(buckets, self.next_number, batch)
        return found

    def forget(self, name: str, batch: Batch) -> None:
        """Remove the demand of a host with a batch."""
        key = schema.demand_key(name)
        if (found := self.store.get(key)) is not None:
            self._left.append(HostDemand.read(found).counted)
            batch.delete(key)

    def lessen(self, name: str, less: float) -> None:
        """Take the demand of a page that is forgotten off its host, with the next planning."""
        self._lost.append((self._host(name), less))


class Seen(NamedTuple):
    """What was known of a page before a fetch; its row may become the new one."""

    kind: PageKind
    depth: int
    rate: float
    last: float
    changes: int
    demand: float
    absence: Absence
    named: int
    tried: int
    text: bytes

    @classmethod
    def of(cls, row: PageRow) -> Self:
        rate, demand = estimate_of(row).mean, demand_of(row)
        known = (row.kind, row.depth, rate, row.last, row.changes, demand, row.absence)
        return cls(*known, row.named, row.tried, row.text)


class Planning:
    """Pages that are planned in one batch."""

    def __init__(self, planner: Planner, batch: Batch):
        self._planner = planner
        self._batch = batch
        self._hosts: dict[str, tuple[Host, HostDemand]] = {}
        self._buckets: _Buckets = defaultdict(lambda: defaultdict(list))
        self.now = planner.now()
        self.hints = HintRecords(planner.store, planner.trials)
        self._votes: dict[str, SoftNotFound] = {}

    def plan(
        self, host: Host, identity: bytes, row: PageRow, last: float, before: float = 0.0
    ) -> None:
        """Set when a page is due again, ``last`` being its last fetch on the job clock.

        ``before`` is what `demand_of` returned for the row before its fetch, or before this plan.
        """
        found = self._demand_of_host(host)
        if row.estimate is None:
            # What it adds to the demand must not change with its site.
            row.estimate = prior(row.kind, row.depth, found.site).rounded
        wait, latest = row.absence.wait, inf
        if wait is None:
            threshold = self.threshold(host)
            terms_of = self._planner.terms_of
            row.weight, least, most = USUAL if terms_of is None else terms_of(row.url)
            estimate, latest = estimate_of(row), last + most
            # A tick earlier: times are rounded up to one.
            most = max(most - TICK, least)
            due = due_time(estimate, row.weight, threshold, last, identity, least=least, most=most)
        else:
            due = last + wait
        tick = tick_at(due, self.now, latest)
        row.due, row.planned = tick * TICK, max(int(due - last), 1)
        self._add(host, found, demand_of(row) - before)
        self._buckets[tick][host.name].append(identity)
        self.hints.trials.end(host.name, row.tried)
        row.tried = 0

    def threshold(self, host: Host) -> float:
        """Return what a fetch of a page of a host must be worth."""
        return max(self._demand_of_host(host).threshold, self._planner.crawl.threshold)

    def bring_forward(
        self, host: Host, identity: bytes, row: PageRow, at: float, last: float
    ) -> None:
        """Have a page that is planned come up at a time, if that is before its own. ``last`` is its
        last fetch."""
        tick = tick_at(at, self.now)
        if tick * TICK >= row.due:
            return
        found, before = self._demand_of_host(host), demand_of(row)
        row.due, row.planned = tick * TICK, max(int(tick * TICK - last), 1)
        self._add(host, found, demand_of(row) - before)
        self._buckets[tick][host.name].append(identity)

    def restore(self, name: str, identity: bytes, row: PageRow) -> None:
        """Put a page that is planned into its bucket again, or into the next one if it was queued:
        its entry may be lost."""
        due = max(row.due, self.now)
        tick = tick_at(due, self.now, due)
        row.due = tick * TICK
        self._buckets[tick][name].append(identity)

    def fetched(self, host: Host, identity: bytes, row: PageRow, before: float) -> None:
        """Plan a page that was fetched now, or drop it from the schedule as it is gone."""
        if row.absence.is_dropped(row.last):
            self.lessen(host, before)
            self._planner.counts["gone"] += 1
        else:
            self.plan(host, identity, row, self.now, before)

    def lessen(self, host: Host, less: float) -> None:
        """Take demand off a host."""
        self._add(host, self._demand_of_host(host), -less)

    def learn(self, host: Host, before: Seen, fetched: float, *, changed: bool) -> None:
        """Learn how often the pages of a host change, from a page that was fetched again."""
        found = self._demand_of_host(host)
        kind, interval = before.kind, fetched - before.last
        site = found.site.observed(kind, before.depth, before.rate, interval, changed=changed)
        self._hosts[host.name] = host, found._replace(seen=site.seen, expected=site.expected)

    def is_error(self, name: str, before: bytes, text: bytes, identity: bytes) -> bool:
        """Return whether a page of a host is missing, as its text says. ``before`` is its text
        before the fetch. Either is empty if it is not known. A change of it is counted."""
        if not text:
            return False
        vote = self._votes.get(name)
        if vote is None:
            vote = SoftNotFound.read(self._planner.store.get(schema.soft_not_found_key(name)))
        if before and text != before:
            vote = self._votes[name] = vote.changed_into(text, before, identity[:PAGE_SIZE])
        return vote.is_error(text)

    def count(self, *, is_confirmed: bool, has_changed: bool) -> None:
        """Count a page that was fetched again."""
        counts = self._planner.counts
        counts["asked"] += 1
        counts["not_modified"] += is_confirmed
        counts["changed"] += has_changed

    def score(self, name: str, named: int, tried: int, *, changed: bool | None) -> None:
        """Score who named a page of a host, after its fetch, as `HintRecords.score`."""
        self.hints.score(name, named, tried, changed=changed)
        self._planner.counts["hinted_changed"] += bool(tried and changed)

    def adopt(self, host: Host, row: PageRow) -> None:
        """Count the demand of a page that another node has planned."""
        row.planned = TICK
        self._add(host, self._demand_of_host(host), demand_of(row))

    def is_worth(self, host: Host, row: PageRow) -> bool:
        """Return whether a page that comes up is asked, by the thresholds that hold now."""
        if not row.planned or row.absence.wait is not None:
            return True
        if row.tried & PUSHED:
            return True
        hinted = self.hints.probability(host.name, row.tried) if row.tried else 0.0
        terms_of = self._planner.terms_of
        weight, _, most = USUAL if terms_of is None else terms_of(row.url)
        threshold, elapsed = self.threshold(host), self.elapsed(row)
        return is_due(estimate_of(row), weight, threshold, elapsed, hinted, most=most)

    def elapsed(self, row: PageRow) -> float:
        """Return the seconds since the last fetch of a page that is due, on the job clock."""
        return row.planned + max(self.now - row.due, 0.0)

    def _demand_of_host(self, host: Host) -> HostDemand:
        found = self._hosts.get(host.name)
        if found is None:
            planner = self._planner
            saved = HostDemand.read(planner.store.get(schema.demand_key(host.name)))
            found = host, saved.at(self.now, planner.requests(host))
            self._hosts[host.name] = found
        return found[1]

    def _add(self, host: Host, found: HostDemand, more: float) -> None:
        self._hosts[host.name] = host, found._replace(demand=max(found.demand + more, 0.0))

    def end(self) -> None:
        """Put the buckets and what was learnt of the hosts into the batch."""
        planner, batch = self._planner, self._batch
        for name, vote in self._votes.items():
            batch.put(schema.soft_not_found_key(name), bytes(vote))
        self.hints.put(batch)
        _put_buckets(self._buckets, planner.next_number, batch)
        if not self._hosts:
            return
        total, threshold, stepped = planner.crawl
        for name, (host, found) in self._hosts.items():
            part = counted(found.demand, planner.requests(host), threshold)
            total += part - found.counted
            batch.put(schema.demand_key(name), bytes(found._replace(counted=part)))
        planner.crawl = Demand(max(total, 0.0), threshold, stepped)
        batch.put(schema.DEMAND, bytes(planner.crawl))


def _put_buckets(buckets: _Buckets, number: Callable[[], int], batch: Batch) -> None:
    """Put pages, by tick and host, into a batch: CHUNK pages a key."""
    for tick, by_host in buckets.items():
        for chunk in _chunks(by_host):
            batch.put(due_again_key(tick, number()), msgspec.msgpack.encode(chunk))


def _chunks(by_host: Mapping[str, list[bytes]]) -> Iterator[dict[str, bytes]]:
    chunk: dict[str, bytes] = {}
    room = CHUNK
    for name, identities in by_host.items():
        at = 0
        while at < len(identities):
            some = identities[at : at + room]
            chunk[name] = b"".join(some)
            at, room = at + len(some), room - len(some)
            if not room:
                yield chunk
                chunk, room = {}, CHUNK
    if chunk:
        yield chunk


def lessen_demand(store: Store, gone: Mapping[str, float], batch: Batch) -> None:
    """Take the demand of pages off their hosts, given by name, with a batch: they lose their plans
    without a schedule."""
    for name, less in gone.items():
        key = schema.demand_key(name)
        if less and (saved := store.get(key)) is not None:
            found = HostDemand.read(saved)
            batch.put(key, bytes(found._replace(demand=max(found.demand - less, 0.0))))


read_chunk = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def tick_at(due: float, now: float, latest: float = inf) -> int:
    """Return the tick of the bucket of a page that is due at a time, which is after ``now``.

    It begins after ``latest`` only if the tick of ``due`` does.
    """
    wait = max(due - now, 0.0)
    width = 1 << max(int(wait / TICK / _PART).bit_length() - 1, 0)
    tick = max(ceil(due / TICK), int(now // TICK) + 1)
    rounded = -(-tick // width) * width
    return min(rounded if rounded * TICK <= latest else tick, SECONDS_MAX // TICK)


def estimate_of(row: PageRow) -> Estimate:
    """Return the estimate of a page's rate of change; without one, what is expected."""
    if row.estimate is None:
        return prior(row.kind, row.depth, SiteChanges())
    return Estimate(*row.estimate)


def demand_of(row: PageRow | None) -> float:
    """Return what a page adds to the demand of its host: nothing if its change rate does not decide
    when it is fetched."""
    if row is None or not row.planned or row.absence.wait is not None:
        return 0.0
    return demand(estimate_of(row), row.weight, row.planned)
