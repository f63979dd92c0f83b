"""Crawl a simulated web by the real frontier, on clocks that go from one event to the next.

The store is LevelDB. Buckets, plans, turns of hosts, delays, leases and commits are those of a
crawl. Only network, archive and clocks are simulated, and robots.txt is known from the beginning.
"""

from __future__ import annotations

import heapq
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.frontier.due_pages import DuePages
from krowlspider.frontier.entry import Entry, Fetched
from krowlspider.frontier.entry_queues import Candidate, Lease
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.limits import FrontierLimits
from krowlspider.frontier.pages.rows import PageRows, rows_in
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.store.store import LevelStore
from krowlspider.politeness.delay import DelayPolicy
from krowlspider.recrawl.validators import Meaning
from krowlspider.urls.canonical import IdentityHasher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.recrawlweb import Page
    from krowlspider.frontier.hosts.host import Host

SHARE = 0.5
_RULE = DelayPolicy(factor=5.0, minimum=0.25, maximum=30.0, crawl_delay_max=300.0)
_LIMITS = FrontierLimits(
    host_queue=100_000, total=50_000_000, domain_concurrency=2, slots=256, again_share=SHARE
)
# Seconds from an answer to the commit of its page (KROWL_COMMIT_INTERVAL).
_COMMIT = 5.0
# Rows that are looked at in one step, as in a crawl.
_STEP = 200
# Seconds until a host that found no room is looked at again.
_AGAIN = 0.001
# Seconds of an answer, by site; each tenth site asks for a Crawl-delay.
_LATENCIES = (0.05, 0.2, 0.5, 2.0)
_CRAWL_DELAY, _CRAWL_DELAY_EVERY = 20.0, 10
# Clocks may differ by the microseconds to which due times are rounded.
_TOLERANCE = 1e-5
_MONOTONIC, _WALL = 1000.0, 1_700_000_000.0


@dataclass(frozen=True)
class _Receipt:
    payload: bytes
    url: str
    date: float


class FrontierCrawl:
    """A crawl of pages whose changes are known, by successive processes in one folder.

    ``budget`` is the requests a second for pages that are fetched again. ``now`` is the time in
    seconds, from the begin of the web. ``asked`` has time and page of each request, the first ones
    included; ``hurried`` those that came sooner than the delay of their host, or while it was still
    asked. Tests set ``lead``, the seconds by which the clock of the machine is ahead.
    """

    def __init__(self, pages: Sequence[Page], folder: Path, budget: float):
        self.now, self.lead, self.budget = 0.0, 0.0, budget
        self.asked: list[tuple[float, int]] = []
        self.hurried: list[tuple[float, int]] = []
        self.again = 0
        self._pages, self._folder = pages, folder
        self._hasher = IdentityHasher(1)
        self._to_find = sorted(range(len(pages)), key=lambda at: -pages[at].found)
        self._last: dict[int, float] = {}
        self._fresh: Counter[str] = Counter()
        self._free: dict[int, float] = {}
        self._boot = 0
        self._open()

    def _open(self) -> None:
        path = self._folder / "db"
        store = LevelStore(path, create=not path.exists())
        rows = PageRows(store, self._hasher.key)
        self.frontier = Frontier(
            store,
            SeenSet(store, 100_000),
            _LIMITS,
            _RULE,
            monotonic=lambda: _MONOTONIC + self.now,
            wall=self._wall,
            boot=b"%d" % self._boot,
            pages=rows,
        )
        self.rows = rows
        self._due = DuePages(self.frontier, rows, wall=self._wall, share=SHARE, budget=self.budget)
        self._flights: list[tuple[float, int, Lease]] = []
        self._commit_at, self._step_at = inf, self.now

    def _wall(self) -> float:
        return _WALL + self.now + self.lead

    def kill(self) -> None:
        """End the process without a commit, and start the next one."""
        self.frontier.store.close()
        # Connections end with their process.
        self._free = {site: min(free, self.now) for site, free in self._free.items()}
        self._open()

    def restart_machine(self) -> None:
        """Kill the process with its machine: the job clock goes on by the clock of the machine."""
        self._boot += 1
        self.kill()

    def close(self) -> None:
        self.frontier.store.close()

    # --- time ---

    def run_until(self, end: float) -> None:
        """Crawl until a time."""
        schedule = self.frontier.schedule
        while self.now < end:
            self._find()
            if self.now >= self._step_at:
                self._due.step(_STEP)
                self._step_at = self.now + self._due.rest
                continue
            while (host := schedule.pop()) is not None:
                self._begin(host)
            due = schedule.next_due()
            wait = inf if due is None else max(due - self.frontier.now(), _AGAIN)
            found = self._pages[self._to_find[-1]].found if self._to_find else inf
            ended = self._flights[0][0] if self._flights else inf
            self.now = min(end, self.now + wait, self._step_at, found, ended, self._commit_at)
            while self._flights and self._flights[0][0] <= self.now:
                self._end(heapq.heappop(self._flights)[2])
            if self.now >= self._commit_at:
                self._commit()

    def _find(self) -> None:
        """Queue the pages that are found now, those of a site in one batch."""
        pages, found = self._pages, []
        while self._to_find and pages[self._to_find[-1]].found <= self.now:
            found.append(self._to_find.pop())
        for site, numbers in groupby(found, key=lambda number: pages[number].site):
            self.frontier.add([self._candidate(site, number) for number in numbers])

    def _candidate(self, site: int, number: int) -> Candidate:
        host = f"site{site}.test"
        url = f"http://{host}/{number}"
        return Candidate(host, self._hasher.key(url), Entry(url, self._pages[number].depth))

    # --- requests ---

    def _begin(self, host: Host) -> None:
        """Send the next request of a host."""
        lease = self.frontier.queues.pop(host)
        while lease is not None and lease.entry.is_again and self._is_done(lease):
            self.frontier.acknowledge(lease, "recrawled")
            lease = self.frontier.queues.pop(host)
        if lease is None:
            self.frontier.schedule.give_back(host)
            return
        number = _number(lease.entry.url)
        page = self._pages[number]
        self._judge(host, page.site, number)
        payload = page.version(self.now).to_bytes(20)
        lease.fetched = Fetched(
            self._wall(),
            200,
            b"",
            b"",
            Meaning.ORDINARY,
            _Receipt(payload, lease.entry.url, self._wall()),
        )
        latency = _LATENCIES[page.site % len(_LATENCIES)]
        self._free[page.site] = self.now + latency
        heapq.heappush(self._flights, (self.now + latency, number, lease))

    def _is_done(self, lease: Lease) -> bool:
        row = self.rows.get(lease.entry.url)
        return row is not None and self._due.has_fetched(row)

    def _judge(self, host: Host, site: int, number: int) -> None:
        """Count a request: what the copy before it was worth, and whether it came too soon."""
        page = self._pages[number]
        if number in self._last:
            self.again += 1
            self._fresh[page.kind] += page.fresh(self._last[number], self.now)
        self._last[number] = self.now
        self.asked.append((self.now, number))
        gap = self.now - self._free.get(site, -inf)
        if gap < _RULE.delay(host.rate) - _TOLERANCE:
            self.hurried.append((self.now, number))

    def _end(self, lease: Lease) -> None:
        host, site = lease.host, self._pages[_number(lease.entry.url)].site
        if site % _CRAWL_DELAY_EVERY == 0:
            host.rate.floor = _CRAWL_DELAY
        wait = _RULE.after_answer(host.rate, _LATENCIES[site % len(_LATENCIES)])
        self.frontier.schedule.release(host, wait)
        self.frontier.acknowledge(lease)
        self._commit_at = min(self._commit_at, self.now + _COMMIT)

    def _commit(self) -> None:
        commit = self.frontier.begin_commit()
        commit.write()
        self.frontier.end_commit(commit)
        self._commit_at = inf

    # --- figures ---

    def unplanned(self) -> list[int]:
        """Return the pages found that have no next time and are not queued for one."""
        rows = rows_in(self.frontier.store)
        planned = {_number(row.url) for row in rows if row is not None and row.is_planned}
        found = {number for number, page in enumerate(self._pages) if page.found <= self.now}
        return sorted(found - planned)

    def freshness(self) -> dict[str, tuple[float, float]]:
        """Return by kind of page the seconds in which copies were fresh, and all of them, since the
        pages were found."""
        fresh, whole = Counter(self._fresh), Counter[str]()
        for number, page in enumerate(self._pages):
            whole[page.kind] += max(self.now - page.found, 0.0)
            if number in self._last:
                fresh[page.kind] += page.fresh(self._last[number], self.now)
        return {kind: (fresh[kind], whole[kind]) for kind in sorted(whole)}


def _number(url: str) -> int:
    return int(url.rpartition("/")[2])


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder in memory, where there is one: a commit of each second would be synced."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="krowl-", dir=memory if memory.is_dir() else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)
