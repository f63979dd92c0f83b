"""What the processes of a crawl have done together: status line, summary and exit code."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.limits import progress, until_empty
from krowlspider.crawl.status import RATE_OVER, RECENT, SUMS, reasons_of_all, status_line
from krowlspider.errors import scrapy_with
from krowlspider.frontier.admin.words import also_fetched, counted, data_size, duration
from krowlspider.node.tree import processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krowlspider.crawl.limits import Limits
    from krowlspider.node.tree import Tree

# What a process has done since its start; the other figures are of the moment.
_COUNTS = ("done", "dropped", "archive_mb")
# Exit codes of `scrapy crawl`, the most serious first. With any of them the crawl has failed.
FAILURES = (3, 2, 1)
_GRAVEST = (*FAILURES, 6, 7, 5)
# With a higher one, the process has died.
LAST_CODE = 7
_NOTHING_FETCHED = 4


class Figures:
    """Adds up the status that the processes leave in their folders."""

    def __init__(self, tree: Tree, processes: Sequence[str]):
        self._tree = tree
        # What former processes of each folder have done, which have died.
        self._before: dict[str, Counter[str]] = {name: Counter() for name in processes}
        self._fetched_before: Counter[str] = Counter()
        # As of `Progress`.
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=RECENT)

    def died(self, process: str) -> None:
        """Keep the figures of a process that has died: the next one counts from 0."""
        status = self._status(process)
        self._before[process].update({name: status.get(name, 0) for name in _COUNTS})
        self._fetched_before.update(status.get("fetched", {}))

    def _status(self, process: str) -> dict[str, Any]:
        return self._tree.folder(process).read_status() or {}

    def of_processes(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each process since the start of the supervisor."""
        found = {}
        for process, before in self._before.items():
            status = self._status(process)
            found[process] = {name: status.get(name, 0) + before[name] for name in SUMS}
        return found

    def total(self) -> dict[str, Any]:
        """Return the sums of the figures of all processes."""
        each = self.of_processes().values()
        return {name: sum(figures[name] for figures in each) for name in SUMS}

    def before(self) -> Counter[str]:
        """Return what processes had done that have died."""
        return sum(self._before.values(), Counter[str]())

    def fetched(self) -> dict[str, int]:
        """Return how many URLs all processes have fetched, by kind, pages among them."""
        total = self._fetched_before.copy()
        for process in self._before:
            total.update(self._status(process).get("fetched", {}))
        return dict(total)

    def line(self, running: int) -> str:
        """Return the status line, of so many running processes."""
        total = self.total()
        so_far = f"{counted(total['done'], 'page')} by {processes(running)}"
        return status_line({**total, "so_far": so_far, "paused": self.paused()})

    def live_line(self, running: int, seconds: float, limits: Limits) -> str:
        """Return the status line ``seconds`` after the start, with the rate of the last seconds.

        Call it each second. ``limits`` are those at which the crawl ends.
        """
        total, paused = self.total(), self.paused()
        done = total["done"]
        self._recent.append((seconds, done, total["queued"]))
        since, before, _ = self._recent[max(0, len(self._recent) - RATE_OVER)]
        if seconds > since:
            total["pages_per_second"] = (done - before) / (seconds - since)
        so_far = progress(
            limits,
            pages=done,
            answers=0,
            seconds=seconds,
            queued=total["queued"],
            is_paused=bool(paused),
        )
        if not paused and (left := until_empty(list(self._recent))):
            so_far += f", queue empty in {duration(left)} at this rate"
        so_far += f", {processes(running)}"
        return status_line({**total, "so_far": so_far, "paused": paused})

    def paused(self) -> str:
        """Return which processes send no request, and why; usually empty."""
        return reasons_of_all({name: self._status(name).get("paused", "") for name in self._before})

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
    limits: Limits,
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
