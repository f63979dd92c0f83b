"""Pages that are queued again: those due by the schedule, or all in one pass.

One pass over the rows of pages: each page that was fetched before it is queued once again. How far
the pass has come is written in the batch that queues its pages. So a start after a death goes on
where the last one was.

Pages that are due again by the schedule come up from their buckets, and are queued. What is taken
out of the buckets and what is queued are one batch. So a start after a death goes on where the last
one was.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import AGAIN_PRIORITY, DEFERRED, Host
from krowlspider.frontier.pages.hinted import HintedRows
from krowlspider.frontier.pages.planner import Planner, Planning, demand_of, read_chunk
from krowlspider.frontier.pages.row import TICK, PageRow, entry_again, read_row
from krowlspider.frontier.store.schema import (
    DUE_AGAIN,
    DUE_PLACE,
    KEY_SIZE,
    PAGES,
    RECRAWL_PASS,
    due_again_key,
    host_of_page,
    page_prefix,
    split_keys,
    tick_of,
)
from krowlspider.frontier.store.store import Batch, Store, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.pages.rows import PageRows
    from krowlspider.recrawl.value import Terms

# The numbers of passes begin anew after this one.
PASSES_MAX = 0xFFFF


class _State(Struct):
    """``number`` is from 1 to PASSES_MAX, ``after`` the key of the last row that was looked at.
    ``is_walked``: all were. ``is_over``: all pages are done too. ``host``: the one whose pages were
    queued last: the next row may be of it. ``is_left``: a start without a pass came after the last
    one of this pass, and may have fetched what was queued for it."""

    number: int
    after: bytes = PAGES
    is_walked: bool = False
    is_over: bool = False
    host: str = ""
    is_left: bool = False


def leave_pass(store: Store) -> None:
    """Note that a start begins which has no pass."""
    saved = store.get(RECRAWL_PASS)
    if saved is not None:
        state = msgspec.json.decode(saved, type=_State)
        if not (state.is_over or state.is_left):
            state.is_left = True
            put(store, RECRAWL_PASS, msgspec.json.encode(state))


class RecrawlPass:
    """A pass over the rows of a frontier: that of the store if it is not over, else a new one.

    A row has the number of the pass in which its page was fetched. So no clock decides which pages
    are left. ``is_resumed``: an earlier start began it.
    """

    def __init__(self, frontier: Frontier, pages: PageRows):
        self._frontier = frontier
        self._store: Store = frontier.store
        saved = self._store.get(RECRAWL_PASS)
        state = None if saved is None else msgspec.json.decode(saved, type=_State)
        if state is not None and state.is_left:
            # Another start may have fetched all that was queued.
            state.is_over |= state.is_walked and not frontier.pending
        self.is_resumed = not (state is None or state.is_over)
        if state is None or state.is_over:
            state = _State(1 if state is None else state.number % PASSES_MAX + 1)
        if state.is_left or not self.is_resumed:
            state.is_left = False
            put(self._store, RECRAWL_PASS, msgspec.json.encode(state))
        self._state = state
        pages.pass_number = state.number

    # Seconds until there is work for `step`.
    rest = 0.0

    def text(self) -> str:
        """Return in words which pass this is."""
        begun = "goes on" if self.is_resumed else "begins"
        return f"what earlier starts have fetched; pass {self._state.number} {begun}"

    def has_fetched(self, row: PageRow) -> bool:
        """Return whether a page was fetched in this pass."""
        return row.passed == self._state.number

    @property
    def is_pending(self) -> bool:
        """Return whether pages of the pass are not queued yet."""
        return not self._state.is_walked

    def step(self, most: int) -> int:
        """Look at the next rows, ``most`` of them, and queue their pages. Return how many are
        queued.

        They go behind what their hosts have queued, and no cap is asked: they were admitted once.
        Those of deferred hosts that have other entries are left out.

        :raises StoreError: the store cannot be written
        """
        state, frontier = self._state, self._frontier
        rows = list(islice(self._store.items(PAGES, state.after), most))
        by_host: dict[str, list[Candidate]] = {}
        for key, value in rows:
            name = host_of_page(key)
            page = read_row(value, name, key)
            if page is not None and not self.has_fetched(page):
                by_host.setdefault(name, []).append(Candidate(name, None, entry_again(page)))
        state.after, state.is_walked = (rows[-1][0] if rows else state.after), len(rows) < most
        cache, batch = frontier.schedule.cache, self._store.batch()
        cache.evict()
        hosts = [cache.get(name) for name in by_host]
        hosts = [
            host
            for host in hosts
            if host.name == state.host or not (host.state is DEFERRED and host.queue.queued)
        ]
        state.host = hosts[-1].name if hosts else ""
        for host in hosts:
            frontier.queues.append(host, by_host[host.name], batch)
        cache.record(hosts, batch)
        batch.put(RECRAWL_PASS, msgspec.json.encode(state))
        batch.write()
        return sum(len(by_host[host.name]) for host in hosts)

    def end(self) -> None:
        """End the pass, as all its pages are done: the next start begins another one."""
        self._state.is_over = True
        put(self._store, RECRAWL_PASS, msgspec.json.encode(self._state))


class _Place(Struct):
    """``starts`` counts starts, ``tick`` is the first tick that may have pages. ``after`` is the
    key of the last row that was looked at for one without a plan; ``is_filled``: all were.
    ``is_new``: those with a plan are in no bucket for certain, as no earlier place is known."""

    starts: int = 0
    tick: int = 0
    after: bytes = PAGES
    is_filled: bool = False
    is_new: bool = False


def leave_unplanned(store: Store) -> None:
    """Note that pages get rows without a plan from now on, if a start before had a schedule."""
    if (place := _read(store)) is not None and (place.is_filled or place.after != PAGES):
        place.after, place.is_filled = PAGES, False
        put(store, DUE_PLACE, msgspec.json.encode(place))


def _read(store: Store) -> _Place | None:
    saved = store.get(DUE_PLACE)
    return None if saved is None else msgspec.json.decode(saved, type=_Place)


class DuePages:
    """The pages of a frontier that come up, and at first those whose rows have no plan yet.

    ``wall`` returns the time of rows in epoch seconds. ``share``, ``budget`` and ``terms_of``
    are as in `Planner`, which ``pages`` has from now on.
    """

    def __init__(
        self,
        frontier: Frontier,
        pages: PageRows,
        *,
        wall: Callable[[], float],
        share: float,
        budget: float,
        terms_of: Callable[[str], Terms] | None = None,
    ):
        self._frontier = frontier
        self._pages = pages
        self._wall = wall
        self._store: Store = frontier.store
        self._place = _read(self._store) or _Place(is_new=True)
        self._place.starts += 1
        put(self._store, DUE_PLACE, msgspec.json.encode(self._place))
        rule = frontier.schedule.rule
        self._planner = pages.planner = Planner(
            self._store,
            now=frontier.now,
            host=frontier.schedule.cache.get,
            delay=lambda host: rule.of(host.name).delay(host.rate),
            share=share,
            budget=budget,
            generation=self._place.starts,
            terms_of=terms_of,
        )
        self.hinted = HintedRows(
            self._store, self._planner, frontier.schedule.cache.get, self._wall
        )
        self._has_more = True

    def text(self) -> str:
        """Return in words what is done."""
        return "each page by how often it changes, until the crawl is stopped"

    @property
    def is_pending(self) -> bool:
        """Return whether pages will be queued: as long as the crawl runs."""
        return True

    def has_fetched(self, row: PageRow) -> bool:
        """Return whether a queued page has been planned since: it is queued twice."""
        return row.due > 0

    @property
    def rest(self) -> float:
        """Seconds until there is work for `step`."""
        if self._has_more or not self._place.is_filled:
            return 0.0
        return TICK - self._frontier.now() % TICK

    def end(self) -> None:
        """Do nothing: what is planned stays."""

    def step(self, most: int) -> int:
        """Look at about ``most`` pages that are due, in the order of their times, and queue them;
        also at as many rows that may need a plan. Return how many pages are queued.

        No commit may be under way: it plans pages too.

        :raises StoreError: the store cannot be written
        """
        batch = self._store.batch()
        planning = self._planner.begin(batch)
        self._frontier.schedule.cache.evict()
        # A row that is put into its bucket again must not be taken out of it in the same batch.
        queued = 0 if self._place.is_new else self._take(planning, batch, most)
        if not self._place.is_filled:
            self._fill(planning, batch, most)
        planning.end()
        batch.put(DUE_PLACE, msgspec.json.encode(self._place))
        batch.write()
        return queued

    # --- pages that are due ---

    def _take(self, planning: Planning, batch: Batch, most: int) -> int:
        """Queue the pages of the next buckets that are due, and return how many."""
        place, now = self._place, int(planning.now // TICK)
        looked_at, self._has_more = 0, False
        by_host: dict[str, list[Candidate]] = {}
        taken: set[bytes] = set()
        for key, value in self._store.items(DUE_AGAIN, due_again_key(place.tick)):
            tick = tick_of(key)
            if tick > now:
                break
            if looked_at >= most:
                self._has_more = True
                break
            place.tick = tick
            batch.delete(key)
            for name, identities in read_chunk(value).items():
                looked_at += len(identities) // KEY_SIZE
                for page_key, row in self._rows(name, identities):
                    if row.due != tick * TICK or page_key in taken:
                        # A later fetch has put it elsewhere.
                        continue
                    taken.add(page_key)
                    host = self._frontier.schedule.cache.get(name)
                    if self._is_asked(planning, host, page_key, row):
                        candidate = Candidate(name, None, entry_again(row), AGAIN_PRIORITY)
                        by_host.setdefault(name, []).append(candidate)
                    batch.put(page_key, row.encode(name))
        self._planner.late = planning.now - place.tick * TICK if self._has_more else 0.0
        if not self._has_more:
            place.tick = max(place.tick, now + 1)
        self._queue(by_host, batch)
        return sum(map(len, by_host.values()))

    def _rows(self, name: str, identities: bytes) -> Iterator[tuple[bytes, PageRow]]:
        """Yield key and row of those pages of a host that have one."""
        prefix = page_prefix(name)
        keys = sorted(prefix + identity for identity in split_keys(identities))
        for key, value in zip(keys, self._store.read(keys), strict=True):
            row = None if value is None else read_row(value, name, key)
            if row is not None:
                yield key, row

    def _is_asked(self, planning: Planning, host: Host, key: bytes, row: PageRow) -> bool:
        """Return whether a page that comes up is asked. Else it is planned anew."""
        identity, before = self._pages.identity(key), demand_of(row)
        if not planning.is_worth(host, row):
            planning.plan(host, identity, row, planning.now - planning.elapsed(row), before)
            self._planner.counts["postponed"] += 1
            return False
        if host.state is DEFERRED and host.queue.queued:
            # What it has queued is tried first.
            planning.plan(host, identity, row, planning.now, before)
            return False
        if not row.planned:
            planning.adopt(host, row)
        row.due = 0
        self._planner.counts["due"] += 1
        return True

    def _queue(self, by_host: dict[str, list[Candidate]], batch: Batch) -> None:
        """Put entries into the queues of their hosts. No cap is asked: they were admitted once."""
        frontier = self._frontier
        cache = frontier.schedule.cache
        hosts = [cache.get(name) for name in by_host]
        for host in hosts:
            frontier.queues.append(host, by_host[host.name], batch)
        cache.record(hosts, batch)

    # --- rows without a plan ---

    def _fill(self, planning: Planning, batch: Batch, most: int) -> None:
        """Plan the pages of the next rows that have no plan."""
        place, wall = self._place, self._wall()
        rows = list(islice(self._store.items(PAGES, place.after), most))
        for key, value in rows:
            name = host_of_page(key)
            row = read_row(value, name, key)
            if row is not None and row.is_planned and place.is_new:
                planning.restore(name, self._pages.identity(key), row)
                batch.put(key, row.encode(name))
                continue
            if row is None or row.is_planned or row.absence.is_dropped(wall):
                continue
            host = self._frontier.schedule.cache.get(name)
            last = planning.now - max(wall - row.last, 0.0)
            planning.plan(host, self._pages.identity(key), row, last)
            batch.put(key, row.encode(name))
        place.after, place.is_filled = (rows[-1][0] if rows else place.after), len(rows) < most
        place.is_new = place.is_new and not place.is_filled
