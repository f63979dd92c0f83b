"""What the processes of a crawl have done together: status line, summary and exit code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from krowlspider.crawl.status import status_line
from krowlspider.errors import scrapy_with
from krowlspider.frontier.admin.words import counted, data_size
from krowlspider.node.tree import processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krowlspider.node.tree import Tree

# What a process has done since its start; the other figures are of the moment.
_COUNTS = ("done", "dropped", "archive_mb")
_OF_THE_MOMENT = ("queued", "deferred", "hosts", "due", "waiting", "in_flight", "pages_per_second")
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
        self._processes = processes
        # What former processes of each folder have done, which have died.
        self._before: dict[str, Counter[str]] = {name: Counter() for name in processes}

    def died(self, process: str) -> None:
        """Keep the figures of a process that has died: the next one counts from 0."""
        status = self._status(process)
        self._before[process].update({name: status.get(name, 0) for name in _COUNTS})

    def _status(self, process: str) -> dict[str, Any]:
        return self._tree.folder(process).read_status() or {}

    def of_processes(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each process since the start of the supervisor."""
        found = {}
        for process in self._processes:
            status = self._status(process)
            figures = {name: status.get(name, 0) for name in (*_COUNTS, *_OF_THE_MOMENT)}
            for name, count in self._before[process].items():
                figures[name] += count
            found[process] = figures
        return found

    def total(self) -> dict[str, Any]:
        """Return the sums of the figures of all processes."""
        total: Counter[str] = Counter()
        for figures in self.of_processes().values():
            total.update(figures)
        return {name: total[name] for name in (*_COUNTS, *_OF_THE_MOMENT)}

    def line(self, running: int) -> str:
        """Return the status line, of so many running processes."""
        total = self.total()
        so_far = f"{counted(total['done'], 'page')} by {processes(running)}"
        return status_line({**total, "so_far": so_far})

    def summary(self, reason: str, seconds: float, codes: Mapping[str, int]) -> str:
        """Return the lines that are logged at the end; ``codes`` are the exit codes."""
        total, each = self.total(), self.of_processes()
        left = total["queued"] + total["deferred"]
        rows = {
            "pages done": f"{total['done']:,} ({total['done'] / max(seconds, 0.001):.1f}/s)",
            "URLs": f"{total['dropped']:,} dropped, {left:,} left, {total['deferred']:,} of them"
            " deferred",
            "archive": data_size(total["archive_mb"] * 1e6),
        }
        for process, code in codes.items():
            folder = self._tree.folder(process).path
            rows[process] = f"{each[process]['done']:,} pages, exit code {code}, {folder}"
        title = f"Crawl of {processes(len(codes))} ended ({reason}) after {seconds:.1f} s"
        following = {"look": scrapy_with("frontier", self._tree.folder("p1").path)}
        if left:
            following["go on"] = "the same command and JOBDIR, with any number of processes"
        return "\n".join([title, *_table(rows), "Next:", *_table(following)])


def _table(rows: Mapping[str, str]) -> list[str]:
    return [f"  {name:12} {text}" for name, text in rows.items()]


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
