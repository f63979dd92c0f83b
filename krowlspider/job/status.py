"""The progress of a crawl: status line, stats, summary, and commands to paste."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from krowlspider.archive.cdxj import INDEX, WARC, IndexLine, parse
from krowlspider.errors import also_fetched, counted, data_size, duration, lacks_room, scrapy_with
from krowlspider.frontier.hosts.host import PUT_OFF_ELSEWHERE
from krowlspider.frontier.stopped import fetched_in
from krowlspider.job.limits import CrawlLimits, may_end, progress, until_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scrapy.statscollectors import StatsCollector

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.job.crawls import Crawl

# Words of a command line that may hold a secret, which must not get into the log.
_SECRET = re.compile(r"auth|cookie|credential|key|pass|secret|token|://[^/\s]*@", re.IGNORECASE)
# Scrapy's options that overwrite a feed, and those that append to it.
_APPENDING = {"-O": "-o", "--overwrite-output": "--output"}
# Index lines read to find a page.
_LINES_READ = 2000


def same_again(spider: str, jobdir: Path) -> str:
    """Return the command that started this crawl, with its folder; in words if it may hold a
    secret. It appends to a feed that the first start has overwritten."""
    # Scrapy has removed the name of its command.
    words = [_APPENDING.get(word, word) for word in sys.argv[1:]]
    if any(word.startswith("_job=") for word in words):
        # scrapyd gave this argument. Outside of it there may be no such command.
        return f"the same schedule.json with setting=JOBDIR={jobdir}"
    folders = sum(word.startswith("JOBDIR=") for word in words)
    # `scrapy node` adds a second one for a process: its own command goes on.
    if spider not in words or folders > 1 or any(map(_SECRET.search, words)):
        return "the same command and JOBDIR"
    if not folders:
        # The folder is temporary, or comes from the project's settings.
        words += ["-s", f"JOBDIR={jobdir}"]
    return scrapy_with("crawl", *words)


def archive_commands(jobdir: Path, archive: Path) -> dict[str, str]:
    """Return how to print a page of the archive and how to replay it; nothing without a page."""
    page = _archived_page(archive)
    if page is None:
        return {}
    # By a JOBDIR the commands find its own folder of WARC files; any other is given to them.
    place = jobdir if archive == jobdir / "warc" else archive
    packed = jobdir / "crawl.wacz"
    return {
        "print a page": scrapy_with("warc", "cat", page.url, place),
        "pack": scrapy_with("warc", "wacz", place, "-o", packed),
        "replay": f"open {packed} at https://replayweb.page",
    }


def _archived_page(archive: Path) -> IndexLine | None:
    """Return a page in the newest finished file that has one near the start of its index."""
    for index in sorted(archive.glob(f"*{INDEX}"), reverse=True):
        if not index.with_name(index.name.removesuffix(INDEX) + WARC).exists():
            continue
        with suppress(OSError, ValueError), index.open("rb") as file:
            for line in map(parse, islice(file, _LINES_READ)):
                if line.status == "200" and line.mime == "text/html":
                    return line
    return None


logger = logging.getLogger(__name__)

# Signal sent before the stats are read: components that count elsewhere then write their numbers to
# the stats.
figures_wanted = object()

_MB = 1e6
# Figures of a status line that are added up for a crawl of several processes.
SUMS = (
    *("done", "dropped", "archive_mb", "queued", "deferred", "hosts", "due", "waiting"),
    *("in_flight", "pages_per_second"),
)
# Looks at the crawl that are kept for its live line, one a second, and those of its rate.
RECENT = 60
RATE_OVER = 10


def publish(stats: StatsCollector, figures: Mapping[str, object]) -> None:
    for name, value in figures.items():
        stats.set_value(name, value)


class Progress:
    """Tells how far a crawl is. ``now`` is in monotonic seconds.

    ``measure`` returns what the frontier has counted since the start, and the number of requests
    that are sent and not ended. ``limits`` are those at which the crawl ends.
    """

    def __init__(
        self,
        crawl: Crawl,
        stats: StatsCollector,
        measure: Callable[[], tuple[Counter[str], int]],
        now: float,
        limits: CrawlLimits,
    ):
        self._crawl = crawl
        self._job = crawl.job
        self._limits = limits
        self._stats = stats
        self._measure = measure
        self._started = now
        # Time, and pages done, at the last status line; with URLs queued, in the last minute.
        self._last: tuple[float, int] = (now, 0)
        # When the number of pages done was last seen to change, and the number.
        self._done: tuple[float, int] = (now, 0)
        self._began = time.monotonic()
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=RECENT)
        # Why the crawl ended, when, and what was counted then.
        self._end: tuple[str, float, Counter[str]] | None = None

    def begin(self, now: float) -> None:
        """Publish and write the first figures now, before the disk can fill."""
        self.publish()
        self.line(now)

    def publish(self) -> None:
        counted, in_flight = self._measure()
        publish(self._stats, figures_of(self._crawl, counted, in_flight))
        self._stats.set_value("krowl/crawl/ending", int(self._may_end(counted["done"], in_flight)))

    def _may_end(self, done: int, in_flight: int) -> bool:
        """Return whether the crawl is being stopped, or may soon end by itself."""
        job, node, seconds = self._job, self._crawl.node, time.monotonic() - self._began
        if self._crawl.stopping() or self._limits.is_stopping or (node is not None and node.over):
            return True
        left = job.frontier.queued - job.frontier.deferred_queued + in_flight
        # What is queued here is not all of a cluster.
        return may_end(self._limits, done, left if node is None else None, seconds)

    def due_line(self, now: float, interval: float) -> str:
        """Publish the figures, and return the status line that is due each ``interval`` seconds;
        empty when it came just now."""
        # A timer of uvloop may end a millisecond early, and Scrapy's looping call calls again then.
        if now - self._last[0] < interval / 2:
            return ""
        self.publish()
        return self.line(now)

    def line(self, now: float) -> str:
        """Return the status line, and leave its figures in the job folder."""
        before, self._last = self._last, (now, self._measure()[0]["done"])
        figures = self._figures(now, before)
        try:
            self._job.folder.write_status(figures)
        except OSError as error:
            # The status line reports the pause for a full disk.
            if not lacks_room(error):
                logger.warning("The figures for scrapy frontier cannot be written: %s", error)
        return status_line(figures)

    def live_line(self, now: float) -> str:
        """Return the status line now, with the rate of the last seconds. Call it each second."""
        frontier = self._job.frontier
        queued = frontier.queued - frontier.deferred_queued
        self._recent.append((now, self._measure()[0]["done"], queued))
        first = self._recent[max(0, len(self._recent) - RATE_OVER)]
        figures = self._figures(now, first[:2])
        if not figures["paused"] and (left := until_empty(list(self._recent))):
            figures["so_far"] += f", queue empty in {duration(left)} at this rate"
        # A terminal may be too narrow for the end of the line.
        if paused := figures["paused"]:
            figures |= {"so_far": f"{figures['so_far']} | {paused}", "paused": ""}
        return status_line(figures)

    def _figures(self, now: float, since: tuple[float, int]) -> dict[str, Any]:
        """Return the figures, with the rate ``since`` a time at which so many pages were done."""
        counted, in_flight = self._measure()
        seconds, pages = now - since[0], counted["done"] - since[1]
        frontier = self._job.frontier
        queued, due = frontier.queued - frontier.deferred_queued, frontier.schedule.count_due()
        paused = pause_reason(self._crawl)
        due_at = frontier.schedule.next_due() if queued and not due and not in_flight else None
        # No host is due before the pauses of people end.
        held = due_at is not None and due_at >= PUT_OFF_ELSEWHERE
        if counted["done"] != self._done[1]:
            self._done = now, counted["done"]
        return {
            "time": time.time(),
            "so_far": progress(
                self._limits,
                pages=counted["done"],
                answers=self._stats.get_value("response_received_count", 0),
                seconds=now - self._started,
                queued=queued,
                is_paused=bool(paused) or held,
                since=now - self._done[0],
                wait=0.0 if due_at is None else max(0.0, due_at - frontier.now()),
            ),
            **counters_of(counted, frontier.counters),
            "paused": paused,
            "pages_per_second": round(pages / seconds, 1) if seconds else 0.0,
            "done": counted["done"],
            "fetched": fetched_in(counted),
            "queued": queued,
            "held": held,
            "deferred": frontier.deferred_queued,
            "hosts": frontier.schedule.host_count,
            "due": due,
            "waiting": max(0, frontier.schedule.host_count - due),
            "in_flight": in_flight,
            "dropped": sum(by_last_part(counted, "dropped/").values()),
            "archive_mb": round(self._job.archive.stats.bytes_written / _MB, 4),
        }

    def end(self, reason: str, now: float) -> None:
        """Leave the last figures in the job folder: the crawl has ended for a reason."""
        self.line(now)
        self._end = reason, now, self._measure()[0]

    def summary(self) -> str:
        """Return the lines that are logged after a crawl; "" if it has not ended."""
        if self._end is None:
            return ""
        reason, ended, numbers = self._end
        stats, seconds = self._stats.get_stats(), ended - self._started
        frontier, archive = self._job.frontier, self._job.archive.stats
        path = self._job.folder.path
        done, reasons = numbers["done"], by_last_part(numbers, "dropped/")
        answers = _listing(by_last_part(stats, "downloader/response_status_count/")) or "none"
        late, worst = stats.get("krowl/loop/lag_p99_ms"), stats.get("krowl/loop/lag_max_ms")
        rows = {
            "pages done": f"{done:,} ({done / max(seconds, 0.001):.1f}/s)",
            "also fetched": also_fetched(fetched_in(numbers)),
            "answers": f"{answers} (robots.txt and retries included)",
            "URLs": f"{numbers['queued']:,} queued, {numbers['known']:,} known already,"
            f" {sum(reasons.values()):,} dropped, {frontier.pending:,} left",
            "no answer": _listing(by_last_part(stats, "krowl/fetch/failed_count/")),
            "dropped": _listing(reasons),
            "hooks": self._job.hooks is not None
            and (cut := "; ".join(self._job.hooks.cut_off())) != ""
            and f"cut off: {cut}",
            "archive": f"{counted(archive.records, 'record')} in"
            f" {counted(archive.files, 'file')},"
            f" {data_size(archive.bytes_written)}",
            "event loop": late is not None
            and f"late by {late:.1f} ms (99th percentile), {worst:.1f} ms at most",
            "paused": self._job.is_paused
            and "by a person, and still at the next start: the button of the live page or"
            " krowl.resume() lets it go on",
            "deferred": frontier.deferred_queued
            and f"{frontier.deferred_queued:,} of the URLs left: no answer of the host, tried again"
            f" later; {scrapy_with('frontier', path, '--host', 'NAME')} says when",
            "folder": str(path),
            "report": _report(path),
            "WARC files": _finished_files(self._job.archive.directory),
        }
        following = {
            "look": scrapy_with("frontier", path),
            **archive_commands(path, self._job.archive.directory),
            "go on": frontier.pending and same_again(self._job.spider, path),
        }
        title = f"Crawl ended ({reason}) after {seconds:.1f} s"
        return "\n".join([title, *_table(rows), "Next:", *_table(following)])


_HELD = "paused or blocked"


def status_line(figures: Mapping[str, Any]) -> str:
    """Return the figures that `Progress.line` leaves in the job folder, as a line for people."""
    parts = [
        figures["so_far"],
        f"{figures['pages_per_second']:.1f} pages/s",
        f"{counted(figures['queued'], 'URL')} queued on {counted(figures['hosts'], 'host')}",
        figures["in_flight"] and f"{figures['in_flight']:,} in flight",
        figures["deferred"] and f"{figures['deferred']:,} deferred, as hosts do not answer",
        figures["dropped"] and f"{figures['dropped']:,} dropped",
        f"WARC {data_size(figures['archive_mb'] * _MB)}",
        # Missing in the figures of an older release.
        figures.get("paused")
        or (
            not (figures["pages_per_second"] or figures["due"] or figures["in_flight"])
            and figures["queued"]
            and f"every host is {_HELD if figures.get('held') else 'within its delay'}"
        ),
    ]
    return " | ".join(part for part in parts if part)


def total_status(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last figures of several processes, by name, as those of one: they are as old as
    the oldest."""
    every = list(statuses.values())
    total: dict[str, Any] = {name: sum(each[name] for each in every) for name in SUMS}
    pages = counted(total["done"], "page")
    return {
        "time": min(each["time"] for each in every),
        "so_far": f"{pages} by {counted(len(every), 'process')}",
        "paused": reasons_of_all({name: each["paused"] for name, each in statuses.items()}),
        **total,
        "pages_per_second": round(total["pages_per_second"], 1),
        "archive_mb": round(total["archive_mb"], 4),
        "fetched": dict(sum((Counter(each["fetched"]) for each in every), Counter[str]())),
        "held": all(each["held"] for each in every if each["queued"]),
    }


def reasons_of_all(reasons: Mapping[str, str]) -> str:
    """Return why processes send no request, with their names where it does not hold for all."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason:
            names.setdefault(reason, []).append(name)
    return "; ".join(
        reason if len(each) == len(reasons) else f"{', '.join(each)} {reason}"
        for reason, each in names.items()
    )


def pause_reason(crawl: Crawl) -> str:
    """Return why no request is sent; usually empty."""
    job, node = crawl.job, crawl.node
    if stopping := crawl.stopping():
        return stopping
    if job.is_paused:
        return (
            "paused by a person: the button of the live page or krowl.resume() at the telnet"
            " console lets it go on"
        )
    if node is not None and node.is_paused:
        return (
            "paused by a person at all nodes: the button of a live page, krowl.resume() or scrapy"
            " ring --signal RUNNING lets them go on"
        )
    if (full := job.full) is not None:
        return f"paused: no room in {full}"
    if job.outages.is_out:
        return f"paused: {job.outages.what}"
    if job.memory.keeps_out:
        return "waits: bodies in memory take KROWL_MEMORY_LIMIT"
    waits = "" if node is None or not node.running else node.waits_for
    return f"waits {waits}" if waits else ""


def _report(folder: Path) -> str:
    report = folder / "reports" / "report.html"
    return str(report) if report.exists() else ""


def _finished_files(archive: Path) -> str:
    """Return how many finished WARC files a folder has, and their size; "" without any."""
    if not (sizes := [file.stat().st_size for file in archive.glob(f"*{WARC}")]):
        return ""
    size = data_size(sum(sizes))
    return f"{len(sizes):,} finished, {size}, in {archive}; the index of each is its {INDEX}"


def _recrawl_figures(frontier: Frontier) -> dict[str, float]:
    planner = None if frontier.pages is None else frontier.pages.planner
    return {} if planner is None else planner.figures()


def figures_of(crawl: Crawl, counted: Counter[str], in_flight: int) -> dict[str, object]:
    """Return the stats of a crawl; the arguments are as in `Progress`."""
    job, node = crawl.job, crawl.node
    frontier, archive, names = job.frontier, job.archive.stats, job.fetching.resolver.stats
    seen = frontier.seen
    figures: dict[str, object] = {
        "scheduler/enqueued": counted["queued"],
        "dupefilter/filtered": counted["known"],
        "krowl/frontier/done_count": counted["done"],
        **{
            f"krowl/frontier/fetched_count/{kind}": number
            for kind, number in fetched_in(counted).items()
        },
        **_recrawl_figures(frontier),
        "krowl/frontier/queued": frontier.queued,
        "krowl/frontier/hosts": frontier.schedule.host_count,
        "krowl/frontier/due": frontier.schedule.count_due(),
        "krowl/frontier/in_flight": in_flight,
        "krowl/frontier/deferred": frontier.deferred_queued,
        "krowl/seeds/fallback_count": counted["fallback"],
        "krowl/seen/keys": len(seen),
        "krowl/seen/layers": seen.filter.layers,
        "krowl/seen/fill": round(seen.filter.fill, 4),
        "krowl/seen/expected_losses": seen.expected_losses,
        "krowl/seen/false_positives_count": seen.false_positives,
        "krowl/archive/records_count": archive.records,
        "krowl/archive/revisits_count": archive.revisits,
        "krowl/archive/bytes_count": archive.bytes_written,
        "krowl/archive/files_count": archive.files,
        "krowl/disk/pauses_count": job.pauses,
        "krowl/memory/held_bytes": job.memory.used,
        "krowl/memory/waits_count": job.memory.waits,
        "krowl/politeness/outages_count": job.outages.begun,
        "krowl/dns/question_count": names.questions,
        "krowl/dns/cached_count": names.cached,
        "krowl/dns/joined_count": names.joined,
        "krowl/dns/wait_seconds": round(names.waited, 3),
    }
    for reason, count in by_last_part(counted, "dropped/").items():
        figures[f"krowl/frontier/dropped_count/{reason}"] = count
    if counted["robots_overridden"]:
        figures["krowl/robots/overridden_count"] = counted["robots_overridden"]
    for kind, count in names.failures.items():
        figures[f"krowl/dns/failed_count/{kind}"] = count
    if (policies := job.policies) is not None:
        figures["krowl/policies/sheets"] = len(policies.policies.sheets)
        figures["krowl/policies/reload_count"] = policies.reload_count
        figures["krowl/policies/failed_count"] = policies.failed_count
        figures["krowl/policies/faulty"] = int(bool(policies.fault))
    if node is not None and node.running:
        figures["krowl/frontier/foreign_count"] = counted["foreign"]
        figures["krowl/frontier/outbox"] = frontier.outbox.depth
        figures |= {f"krowl/cluster/{name}": count for name, count in node.counts().items()}
    return figures


def counters_of(counted: Counter[str], counters: Counter[str]) -> dict[str, dict[str, int]]:
    """Return what was fetched and dropped since this start of a process, and before it, by the
    names of the frontier's counters: ``counted`` are those since the start, ``counters`` all."""
    return {
        name: {key: each[key] for key in each if key.partition("/")[0] in ("done", "dropped")}
        for name, each in (("counters", counted), ("counters_before", counters - counted))
    }


def by_last_part(numbers: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return the numbers whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): count
        for name, count in numbers.items()
        if name.startswith(prefix)
    }


def _table(rows: Mapping[str, object]) -> list[str]:
    """Return a line for each row that has a text."""
    return [f"  {name:12} {text}" for name, text in rows.items() if text]


def _listing(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(numbers.items()))
