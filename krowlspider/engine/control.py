"""Questions to a running crawl: its figures, its hosts, and what becomes of one URL."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from krowlspider.archive.indexes import captures_of, indexes_in
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import error_text
from krowlspider.frontier.admin.edit import UnknownHostError, hosts_named
from krowlspider.frontier.admin.view import (
    HostRow,
    HostView,
    Reason,
    host_now,
    view_of,
    why_host_waits_now,
)
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.stopped import fetched_in
from krowlspider.job.crawls import crawl_of
from krowlspider.job.explain import Explainer, Explanation
from krowlspider.job.nodes.overview import NodeRow, node_rows
from krowlspider.job.parts import warc_folder
from krowlspider.job.recrawl import CONTINUOUS
from krowlspider.job.report import SeedReport, report_seeds
from krowlspider.job.status import by_last_part, counters_of, pause_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from scrapy.crawler import Crawler

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.outcomes import HostAnswer
    from krowlspider.job.forecasting import CrawlForecast
    from krowlspider.job.snapshots import Made
    from krowlspider.politeness.delay import DelayPolicy

# Hosts and entries in a list, and most hosts and most pages in one.
_MOST = 10
HOSTS_MAX = 200
PAGES_MAX = 100
SEEDS_MAX = 999
# Seeds of a report that are read at a time, and the pause after it, as a multiple of its time.
_SEEDS_AT_ONCE = 100
_RESTS = 3
# Indexes of the archive in which a URL is looked up: about 0.4 ms each.
_INDEXES = 100
# What hosts may be sorted by: fields of `HostRow`, and their values for a host and its policy.
_KEYS: dict[str, Callable[[Host, DelayPolicy], float]] = {
    "queued": lambda host, _: host.queue.queued,
    "done": lambda host, _: host.queue.pages,
    "dropped": lambda host, _: host.queue.dropped,
    "delay": lambda host, policy: policy.of(host.name).delay(host.rate),
    "due_in": lambda host, _: host.due,
    "errors": lambda host, _: host.rate.errors,
}
SORTED_BY = tuple(_KEYS)
STATES = tuple(state.value for state in SchedulingState)


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise ValueError(f"limit={limit}: give 1 to {most}")


@dataclass(frozen=True, slots=True)
class FinishedPage:
    """A page that is over: done, or the reason for which it was dropped.

    ``status``, ``size`` in bytes and ``latency`` in seconds are those of its last answer, 0 without
    one.
    """

    url: str
    outcome: str
    status: int
    size: int
    latency: float

    @classmethod
    def of(cls, lease: Lease, dropped: str | None) -> FinishedPage:
        answer = lease.answer
        last = (0, 0, 0.0) if answer is None else (answer.status, answer.size, answer.latency)
        return cls(lease.entry.url, dropped or "done", *last)


class Control:
    """Answers questions about a crawl that is open; it changes nothing.

    Each answer reads a bounded part of the frontier: at most some tens of milliseconds.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._crawl = crawl_of(crawler)
        self._job, self._node = self._crawl.job, self._crawl.node
        # One at a time, however many ask.
        self._reading_seeds = asyncio.Lock()

    def status(self) -> dict[str, Any]:
        """Return the figures of the crawl now, and why no request is sent, "" usually.

        Counts are since the start. ``done`` are pages, ``fetched`` has them and all else by kind.
        ``archive_mb`` is in 10**6 bytes, ``statuses`` and ``failed`` are counts by status and by
        kind of failure. ``policies`` is as of `SitePolicies.state`; ``counters`` and
        ``counters_before`` are as of `counters_of`.
        """
        scheduler, frontier = Scheduler.of(self._crawler), self._job.frontier
        counted, stats = scheduler.counted(), self._crawler.stats.get_stats()
        return {
            "spider": self._job.spider,
            "folder": str(self._job.folder.path),
            "seconds": round(self._job.wall() - self._job.began, 1),
            "done": counted["done"],
            "of": scheduler.budget.total,
            "fetched": fetched_in(counted),
            "queued": frontier.queued - frontier.deferred_queued,
            "deferred": frontier.deferred_queued,
            "hosts": frontier.schedule.host_count,
            "due": frontier.schedule.count_due(),
            "in_flight": scheduler.flights.on_the_wire,
            "dropped": by_last_part(counted, "dropped/"),
            "statuses": by_last_part(stats, "downloader/response_status_count/"),
            "failed": by_last_part(stats, "krowl/fetch/failed_count/"),
            "archive_mb": round(self._job.archive.stats.bytes_written / 1e6, 4),
            "paused": pause_reason(self._crawl),
            "policies": "" if self._job.policies is None else self._job.policies.state(),
            **counters_of(counted, frontier.counters),
        }

    async def forecast(self, target: str) -> CrawlForecast | None:
        """Return how fresh the pages stay, for a target such as TARGET. Without one, "", return
        None unless pages come back by the schedule.

        :raises KrowlError: the text is no target, or there are no pages
        """
        if not target and self._crawler.settings["KROWL_RECRAWL"] != CONTINUOUS:
            return None
        return await Scheduler.of(self._crawler).forecasts().of(target)

    async def seeds(self, tag: str | None, limit: int) -> SeedReport:
        """Return the first rows of seeds, and those of all tags, as of `report_seeds`.

        Many seeds take long: a quarter of the event loop's time is spent on them.

        :raises ValueError: ``limit`` is not 0 to SEEDS_MAX
        """
        if not 0 <= limit <= SEEDS_MAX:
            raise ValueError(f"limit={limit}: give 0 to {SEEDS_MAX}")
        budget = Scheduler.of(self._crawler).budget
        found: SeedReport | None = None
        async with self._reading_seeds:
            steps = report_seeds(self._job.store, tag, limit, is_spent=budget.is_spent)
            while True:
                begun = perf_counter()
                if not (some := list(islice(steps, _SEEDS_AT_ONCE))):
                    break
                found = some[-1]
                await asyncio.sleep(_RESTS * (perf_counter() - begun))
        assert found is not None
        return found

    def snapshot(self, target: Path) -> Made | None:
        """Return the snapshot that was begun to ``target``, None while it is under way.

        :raises JobError: it failed, or none was begun
        """
        return self._job.snapshot.outcome(target)

    def why_nothing_is_sent(self) -> str:
        """Return why the crawl may not fetch, or not send what it finds: a failure, a pause, its
        disk, its memory, the network, the cluster or its Redis; "" if it may."""
        failure, node = self._job.failure, self._node
        if failure:
            return f"failed: {error_text(failure)}"
        if reason := pause_reason(self._crawl):
            return reason
        lost = node is not None and node.running and node.inbox_length < 0
        return (
            "its Redis does not answer: URLs that other nodes have found for it wait"
            if lost
            else ""
        )

    def sample(self) -> dict[str, float]:
        """Return the figures of `History`."""
        status, stats = self.status(), self._crawler.stats
        return {
            **{name: status[name] for name in ("done", "in_flight", "queued", "archive_mb")},
            "failed": sum(status["failed"].values()),
            "lag_ms": stats.get_value("krowl/loop/recent_lag_p99_ms", 0.0),
        }

    def pages(self, limit: int = PAGES_MAX) -> list[FinishedPage]:
        """Return the last pages that were committed, the newest first.

        :raises ValueError: ``limit`` is not 1 to PAGES_MAX
        """
        _check_limit(limit, PAGES_MAX)
        recent = reversed(self._job.frontier.recent)
        return [FinishedPage.of(*each) for each in islice(recent, limit)]

    def hosts(self, sort: str = "queued", limit: int = _MOST, state: str = "") -> list[HostRow]:
        """Return the first hosts of those in memory, the greatest by a field first. With a
        ``state``, return only hosts in this scheduling state.

        :raises ValueError: ``sort`` is none of SORTED_BY, ``state`` none of STATES, or ``limit``
            not 1 to HOSTS_MAX
        """
        _check_limit(limit, HOSTS_MAX)
        if sort not in SORTED_BY:
            raise ValueError(f"hosts are sorted by one of {', '.join(SORTED_BY)}, not by {sort!r}")
        if state and state not in STATES:
            raise ValueError(f"a host is in one of the states {', '.join(STATES)}, not {state!r}")
        frontier, policy = self._job.frontier, self._job.rule
        now, key = frontier.now(), _KEYS[sort]
        hosts: Iterable[Host] = frontier.schedule.cache.hosts.values()
        if state:
            hosts = (host for host in hosts if host.state.value == state)
        found = nlargest(limit, hosts, key=lambda host: key(host, policy))
        return [HostRow.of(host, policy, now) for host in found]

    def host(self, name: str) -> HostView:
        """Return all that is known of a host.

        :raises UnknownHostError: the crawl does not know it
        """
        frontier = self._job.frontier
        host = host_now(frontier, name)
        if host is None:
            raise UnknownHostError(name, hosts_named(frontier.store, name))
        now = frontier.now()
        why = self._why(host)
        sheets = self._job.policies
        return view_of(
            self._job.store,
            host,
            self._job.rule,
            why,
            wall=now,
            most=_MOST,
            policies=None if sheets is None else sheets.policies,
        )

    def answers(self, name: str) -> list[HostAnswer]:
        """Return the last answers of a host, the newest first: those since it was first asked for,
        and before that those among `pages`.

        :raises UnknownHostError: the crawl does not know it
        """
        frontier = self._job.frontier
        if host_now(frontier, name) is None:
            raise UnknownHostError(name)
        return frontier.watched.of(name, frontier.recent, frontier.now())[::-1]

    def nodes(self) -> list[NodeRow]:
        """Return the nodes of the cluster; none without one."""
        node = self._node
        return [] if node is None else node_rows(node)

    def explain(self, url: str) -> Explanation:
        """Return where a URL is and why it is not being fetched, as `Explainer.explain`."""
        job, node, settings = self._job, self._node, self._crawler.settings
        intake = Scheduler.of(self._crawler).intake
        indexes = indexes_in(warc_folder(settings, job.folder.path), _INDEXES).there
        return Explainer(
            store=job.store,
            hasher=job.hasher,
            scope=intake.scope,
            exclusions=intake.exclusions,
            policies=None if job.policies is None else job.policies.policies,
            gate=job.robots,
            agent=settings["ROBOTSTXT_USER_AGENT"],
            obeys_robots=settings.getbool("ROBOTSTXT_OBEY"),
            captures=lambda url: captures_of(indexes, url, job.archive.lines_with),
            host_of_crawl=lambda name: host_now(job.frontier, name),
            why=self._why,
            is_seen=job.frontier.seen.known,
            owner=lambda name: None if node is None else node.foreign_owner(name),
            counters=lambda: job.frontier.counters,
            wall=job.frontier.now,
            recent=job.frontier.recent,
            newest=_INDEXES,
        ).explain(url)

    def _why(self, host: Host) -> Reason:
        if paused := pause_reason(self._crawl):
            return Reason(f"The crawl is {paused}.")
        signer = self._job.signer
        if signer is not None and (fault := signer.fault(host.name)):
            return Reason(f"It gets signed requests, and {fault}.", "KROWL_SIGN_KEY")
        now, seeds = self._job.frontier.now(), Scheduler.of(self._crawler).flights.seeds_first
        is_due = host.state is SchedulingState.SCHEDULED and host.due <= now
        if is_due and seeds.only() and not host.queue.waits_with_seed(now):
            return Reason("Seeds are fetched before it, as pages are limited.", "max_pages")
        return why_host_waits_now(self._job.frontier, host)
