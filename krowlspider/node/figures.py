"""What the processes of a crawl have done together, and what they answer as one."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from krowlspider.errors import also_fetched, counted, data_size, duration, scrapy_with
from krowlspider.frontier.stopped import dropped_in, fetched_in
from krowlspider.job.limits import CrawlLimits, progress, until_empty
from krowlspider.job.status import RATE_OVER, RECENT, by_last_part, reasons_of_all, status_line
from krowlspider.node.tree import Tree, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_OF_THE_MOMENT = ("queued", "deferred", "hosts", "due", "waiting", "in_flight", "pages_per_second")
# Exit codes of `scrapy crawl`, the most serious first. With any of them the crawl has failed.
FAILURES = (3, 2, 1)
_GRAVEST = (*FAILURES, 6, 7, 5)
# With a higher one, the process has died.
LAST_CODE = 7
_NOTHING_FETCHED = 4


class OneProcess:
    """The figures of one process since the start of the supervisor, over its deaths.

    The counters of its frontier tell what it has done: those of its first start are the base. What
    is counted in memory alone, ``own``, is kept from before each death.
    """

    def __init__(self) -> None:
        self._base: Counter[str] | None = None
        self._counters: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        # The last status, the seconds for which the process had run, and its own counts.
        self.status: dict[str, Any] = {}
        self._own: Counter[str] = Counter()
        self._ran = 0.0

    def take(self, status: Mapping[str, Any], ran: float, own: Mapping[str, float]) -> None:
        """Take a status, which the process has given after it ``ran`` so many seconds."""
        if ran < self._ran:
            self.end()
        self.status, self._ran = dict(status), ran
        self._own = Counter(own)
        earlier = Counter(status.get("counters_before", {}))
        if self._base is None:
            self._base = earlier
        found = earlier + Counter(status.get("counters", {})) - self._base
        # What was not committed at a death is done again.
        self._counters |= found

    def end(self) -> None:
        """Note that the process has died: the next one counts from 0."""
        self._before.update(self._own)
        self._own, self._ran = Counter(), 0.0

    @property
    def counters(self) -> Counter[str]:
        """What was fetched and dropped, by the names of the frontier's counters."""
        return self._counters

    @property
    def own(self) -> Counter[str]:
        return self._before + self._own

    def begin_as(self, other: OneProcess) -> None:
        """Have the base of another one that was there first."""
        if self._base is None and other._base is not None:
            self._base = other._base


class Figures:
    """Adds up the status that the processes leave in their folders."""

    def __init__(self, tree: Tree, processes: Sequence[str]):
        self._tree = tree
        self.processes = {name: OneProcess() for name in processes}
        self._gone: set[str] = set()
        # When each first wrote since it was started, by its clock.
        self._began: dict[str, float] = {}
        # As of `Progress`.
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=RECENT)
        self._done: tuple[float, int] = (0.0, 0)

    def died(self, process: str) -> None:
        """Take the last figures of a process that has died."""
        self._read(process).end()
        self._began.pop(process, None)

    def left(self, process: str) -> None:
        """Note that a process has handed everything over, so that it waits for nothing."""
        self._gone.add(process)

    def _read(self, process: str) -> OneProcess:
        """Return the figures of a process, as of what it has last written. While it is started
        again it has written nothing, and the last ones hold."""
        found = self.processes[process]
        status = self._tree.folder(process).read_status()
        if status is not None and status["time"] != found.status.get("time"):
            written = float(str(status["time"]))
            began = self._began.setdefault(process, written)
            archived = float(str(status["archive_mb"]))
            found.take(status, written - began, {"archive_mb": archived})
        return found

    def of_processes(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each process since the start of the supervisor."""
        found: dict[str, dict[str, Any]] = {}
        for process in self.processes:
            read = self._read(process)
            found[process] = {
                "done": read.counters["done"],
                "dropped": sum(dropped_in(read.counters).values()),
                "archive_mb": read.own["archive_mb"],
                **{name: read.status.get(name, 0) for name in _OF_THE_MOMENT},
            }
        return found

    def total(self) -> dict[str, Any]:
        """Return the sums of the figures of all processes."""
        each = list(self.of_processes().values())
        return {name: sum(figures[name] for figures in each) for name in each[0]}

    def fetched(self) -> dict[str, int]:
        """Return how many URLs all processes have fetched, by kind, pages among them."""
        every = [self._read(process).counters for process in self.processes]
        return fetched_in(sum(every, Counter()))

    def line(self, running: int) -> str:
        """Return the status line, of so many running processes."""
        total = self.total()
        so_far = f"{counted(total['done'], 'page')} by {processes(running)}"
        return status_line({**total, "so_far": so_far, "paused": self.paused()})

    def live_line(self, running: int, seconds: float, limits: CrawlLimits) -> str:
        """Return the status line ``seconds`` after the start, with the rate of the last seconds.

        Call it each second. ``limits`` are those at which the crawl ends.
        """
        total, paused = self.total(), self.paused()
        done = total["done"]
        self._recent.append((seconds, done, total["queued"]))
        since, before, _ = self._recent[max(0, len(self._recent) - RATE_OVER)]
        if seconds > since:
            total["pages_per_second"] = (done - before) / (seconds - since)
        if done != self._done[1]:
            self._done = seconds, done
        so_far = progress(
            limits,
            pages=done,
            answers=0,
            seconds=seconds,
            queued=total["queued"],
            is_paused=bool(paused),
            since=seconds - self._done[0],
        )
        if not paused and (left := until_empty(list(self._recent))):
            so_far += f", queue empty in {duration(left)} at this rate"
        so_far += f", {processes(running)}"
        return status_line({**total, "so_far": so_far, "paused": paused})

    def paused(self) -> str:
        """Return which processes send no request, and why; usually empty."""
        there = self.processes.keys() - self._gone
        read = {name: self._read(name).status for name in sorted(there)}
        return reasons_of_all({name: status.get("paused", "") for name, status in read.items()})

    def summary(self, reason: str, seconds: float, codes: Mapping[str, int], seeds: str) -> str:
        """Return the lines that are logged at the end; ``codes`` are the exit codes, ``seeds`` the
        file of the table of seeds, "" without one."""
        total, each = self.total(), self.of_processes()
        left = total["queued"] + total["deferred"]
        rows = {
            "pages done": f"{total['done']:,} ({total['done'] / max(seconds, 0.001):.1f}/s)",
            "also fetched": also_fetched(self.fetched()),
            "URLs": f"{total['dropped']:,} dropped, {left:,} left, {total['deferred']:,} of them"
            " deferred",
            "archive": data_size(total["archive_mb"] * 1e6),
            "seeds": seeds,
        }
        for process, code in codes.items():
            folder = self._tree.folder(process).path
            rows[process] = f"{counted(each[process]['done'], 'page')}, exit code {code}, {folder}"
        title = f"Crawl of {processes(len(codes))} ended ({reason}) after {seconds:.1f} s"
        following = {"look": scrapy_with("frontier", self._tree.path)}
        if left:
            following["go on"] = "the same command and JOBDIR, with any number of processes"
        return "\n".join([title, *_table(rows), "Next:", *_table(following)])


def _table(rows: Mapping[str, str]) -> list[str]:
    return [f"  {name:12} {text}" for name, text in rows.items() if text]


def reason(
    codes: Iterable[int],
    total: Mapping[str, int],
    limits: CrawlLimits,
    seconds: float,
    *,
    stopped: bool,
) -> str:
    """Return why a crawl of ``seconds`` has ended: "failed", "stopped", the limit it has reached by
    Scrapy's name, or "finished"."""
    if any(code in FAILURES for code in codes):
        return "failed"
    if stopped:
        return "stopped"
    if limits.seconds and seconds >= limits.seconds:
        return "closespider_timeout"
    # Processes that share a limit may end a few pages below it, and leave what is queued.
    return "max_pages" if limits.pages and total["queued"] else "finished"


def exit_code(codes: Iterable[int], total: Mapping[str, int], *, stopped: bool) -> int:
    """Return the exit code of a crawl: the gravest of its processes' codes."""
    codes = list(codes)
    for code in _GRAVEST:
        if code in codes:
            return code
    if any(codes):
        return 1
    # A process alone does not know what the others have fetched.
    is_idle = not stopped and not total["done"] and (total["dropped"] or total["deferred"])
    return _NOTHING_FETCHED if is_idle else 0


if TYPE_CHECKING:
    Answers = Mapping[str, Any]

_SUMS = ("queued", "deferred", "hosts", "due", "in_flight")
# Counts that no store keeps.
OWN = ("statuses", "failed")
# Samples that are of the time since the one before, and seconds after which they hold no more.
_OF_THE_MOMENT_IN_PAGE = ("pages_per_second", "failed_per_second", "in_flight", "lag_ms")
_GONE_AFTER = 15.0
# Seconds between two samples of all, at least.
_APART = 1.5


@dataclass(frozen=True, slots=True)
class Served:
    """A crawl of ``processes`` in ``tree``, of at most ``max_pages`` pages, 0 for no limit.

    The processes may become fewer. ``restarts`` returns how many processes were started again.
    """

    tree: Tree
    processes: Sequence[str]
    figures: Figures
    spider: str
    max_pages: int
    restarts: Callable[[], int]


def status_of_all(processes: Mapping[str, OneProcess]) -> dict[str, Any]:
    """Return the figures of processes together, by the names of `Control.status`."""
    every = [each.status for each in processes.values()]
    counters = sum((each.counters for each in processes.values()), Counter[str]())
    own = sum((each.own for each in processes.values()), Counter[str]())
    return {
        **{name: each for name, each in every[0].items() if not name.startswith("counters")},
        **{name: sum(each[name] for each in every) for name in _SUMS},
        "done": counters["done"],
        "fetched": fetched_in(counters),
        "dropped": dropped_in(counters),
        **{name: by_last_part(own, f"{name}/") for name in OWN},
        "archive_mb": round(own["archive_mb"], 4),
        "seconds": max(each["seconds"] for each in every),
        **{
            text: reasons_of_all({name: each.status[text] for name, each in processes.items()})
            for text in ("paused", "policies")
        },
    }


def own_counts(status: Mapping[str, Any]) -> dict[str, float]:
    """Return what a process counts in memory alone."""
    found = {f"{name}/{key}": count for name in OWN for key, count in status[name].items()}
    return {**found, "archive_mb": status["archive_mb"]}


def hosts_of_all(answers: Answers, sort: str, limit: int) -> list[dict[str, Any]]:
    """Return the rows that are the greatest by ``sort``. A host that an order puts off has no due
    time: it comes first."""
    rows = chain.from_iterable(answers.values())
    key = lambda row: float("inf") if row[sort] is None else row[sort]
    return sorted(rows, key=key, reverse=True)[:limit]


def pages_of_all(answers: Answers, limit: int) -> list[dict[str, Any]]:
    """Return the last pages, those of each process in their order."""
    rows = chain.from_iterable(zip_longest(*answers.values()))
    return [row for row in rows if row is not None][:limit]


def history_of_all(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the samples of processes added up, at the times of all of them.

    Processes that were started at different times take samples at different ones.
    """
    every = list(answers)
    fields: list[str] = every[0]["fields"]
    rows = [answer["samples"] for answer in every]
    times = sorted({row[0] for each in rows for row in each})
    at = [0] * len(rows)
    samples: list[list[float]] = []
    for time in times:
        for number, each in enumerate(rows):
            while at[number] < len(each) and each[at[number]][0] <= time:
                at[number] += 1
        if samples and time - samples[-1][0] < _APART:
            samples.pop()
        last = [each[now - 1] for each, now in zip(rows, at, strict=True) if now]
        samples.append([time, *_added(fields, last, time)[1:]])
    return {"fields": fields, "samples": samples}


def _added(fields: list[str], rows: list[list[float]], time: float) -> list[float]:
    found = []
    # Of a process that is gone, nothing goes on.
    present = [row for row in rows if time - row[0] <= _GONE_AFTER]
    for number, name in enumerate(fields):
        values = [row[number] for row in (present if name in _OF_THE_MOMENT_IN_PAGE else rows)]
        found.append(max(values, default=0.0) if name == "lag_ms" else sum(values))
    return found
