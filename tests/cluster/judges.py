"""What was wrong with a crawl of several nodes: by the requests that the web got, the WARC files,
and how the processes ended. Each judge gives one line a fault, and none when all is well."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from krowlspider.archive.tools.check import check_folder
from tests.mockweb.identity import identity
from tests.support.archived import is_archived, stored
from tests.support.crawling import CONTACT
from tests.support.crawls import pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.mockweb.log import Entry
    from tests.support.crawling import Crawl


@dataclass
class Run:
    """One process of a node. ``end``: "running", "killed", or its finish reason; ``over_at``: when
    it said that the crawl of all is over, as `Entry` tells time."""

    node: str
    crawl: Crawl
    end: str = "running"
    over_at: float | None = None

    def ended(self) -> None:
        """It has ended by itself: see how."""
        self.end = self.crawl.stats["finish_reason"]
        if self.end == "finished":
            wall = datetime.fromisoformat(self.crawl.stats["finish_time"]).timestamp()
            self.over_at = wall - time.time() + time.monotonic()


def node_of(entry: Entry) -> str:
    """The node that asked, by the User-Agent that `Cluster` gives it."""
    return entry.ua.removeprefix("krowlspider/").removesuffix(f" (+{CONTACT})")


def repeated(entries: Iterable[Entry]) -> list[Entry]:
    """Requests for pages that any node had asked for before."""
    known: set[str] = set()
    again = []
    for entry in sorted(pages(list(entries)), key=lambda entry: entry.start):
        name = identity(entry.url) or entry.url
        if name in known:
            again.append(entry)
        known.add(name)
    return again


def too_often(entries: Iterable[Entry], most: int) -> list[str]:
    """More than ``most`` such requests, all together."""
    again = repeated(entries)
    if len(again) <= most:
        return []
    shown = ", ".join(f"{entry.url} by {node_of(entry)}" for entry in again[:5])
    return [f"{len(again)} pages fetched again instead of {most}: {shown}"]


def early_ends(entries: Iterable[Entry], runs: Sequence[Run]) -> list[str]:
    """What was fetched when a node had said that the crawl of all is over, and processes that ended
    in no such way."""
    wrong = [f"node {run.node}: {run.end}" for run in runs if run.end not in _ENDS]
    ends = [(run.over_at, run.node) for run in runs if run.over_at is not None]
    if not ends:
        return [*wrong, "no node has finished"]
    over, first = min(ends)
    late = [entry.url for entry in entries if entry.start > over]
    return [*wrong, *(f"{url} fetched when node {first} had finished" for url in late)]


# Killed, left, or over: the others go on after the first two.
_ENDS = ("killed", "shutdown", "finished")


def not_archived(entries: Iterable[Entry], jobs: Iterable[Path], *, exactly: bool) -> list[str]:
    """What was fetched and is in no node's WARC files, and what is wrong with these; ``exactly``:
    each answer is in them as often as it was given, byte for byte."""
    wrong: list[str] = []
    found: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        report = check_folder(job / "warc")
        wrong += [f"{job.name}: {problem}" for problem in report.problems]
        wrong += [f"{job.name}: an open file"] * report.open_files
        found += stored(job)
    asked = [entry for entry in entries if is_archived(entry)]
    if exactly:
        wanted = Counter((entry.url, entry.sha1) for entry in asked)
        wrong += [f"not archived: {url}" for url, _ in wanted - found]
        wrong += [f"archived, not fetched: {url}" for url, _ in found - wanted]
        return wrong
    there = {identity(url) for url, _ in found}
    urls = sorted({entry.url for entry in asked if identity(entry.url) not in there})
    return [*wrong, *(f"not archived: {url}" for url in urls)]
