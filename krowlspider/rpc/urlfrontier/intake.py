"""URLs that clients report: discovered ones are queued, known ones are done or scheduled."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.frontier.entry import DEPTH_MAX, Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.rpc.urlfrontier.records import Item, Name, Phase, QueueLedger
from krowlspider.urls.canonical import host_of, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.rpc.urlfrontier.leases import Leases

# Bytes of the metadata of a URL, keys and values together.
METADATA_MAX = 16_384
# The latest time that is kept, in the year 2106: a later one counts as this.
TIME_MAX = 2**32 - 1


class AckStatus(Enum):
    """What becomes of a URL; the values are those of ``AckMessage.Status``."""

    OK = 0
    SKIPPED = 1
    FAIL = 2


class Report(NamedTuple):
    """A URL with its metadata. ``refetch`` is the time from which on a known URL is sent again, in
    epoch seconds, 0 for never; None for a discovered URL."""

    url: str
    metadata: dict[str, list[str]]
    refetch: float | None = None


class ReportIntake:
    """Takes reports into a frontier. Its parameters are as in `Leases`; ``url_max`` is the length
    of the longest URL. The frontier must have `admitted` as its ``on_admitted``."""

    def __init__(
        self,
        ledger: QueueLedger,
        key_of: Callable[[str], bytes],
        wall: Callable[[], float],
        url_max: int,
    ):
        self._ledger = ledger
        self._key_of = key_of
        self._wall = wall
        self._url_max = url_max
        # The discovered URLs that are being queued, and those of them that are.
        self._new: dict[Name, Report] = {}
        self._queued: set[Name] = set()
        self._frontier: Frontier
        self._leases: Leases

    def open(self, frontier: Frontier, leases: Leases) -> None:
        self._frontier, self._leases = frontier, leases

    def put(self, reports: Sequence[Report]) -> list[AckStatus]:
        """Take reports in their order, and return what becomes of each. They are durable after the
        next commit: acknowledge them only then.

        :raises StoreError: the store cannot be written; any of the reports may have been taken
        """
        found = [AckStatus.OK] * len(reports)
        names: list[Name | None] = []
        waiting: dict[int, Name] = {}
        for number, report in enumerate(reports):
            name, url = self._named(report)
            names.append(name)
            if name is None:
                found[number] = AckStatus.SKIPPED
            elif name[0] in self._ledger.leaving:
                found[number] = AckStatus.FAIL
            elif report.refetch is None:
                self._new.setdefault(name, report._replace(url=url))
                waiting[number] = name
            else:
                if name in self._new:
                    self._discover(waiting, found)
                self._know(name, report._replace(url=url))
        self._discover(waiting, found)
        self._ledger.write()
        return found

    def _named(self, report: Report) -> tuple[Name | None, str]:
        """Return host and identity of a URL, and its normal form; None if it cannot be taken."""
        url = normalise(report.url)
        if url is None or len(url) > self._url_max:
            return None, ""
        size = sum(
            len(key.encode()) + sum(len(value.encode()) for value in values)
            for key, values in report.metadata.items()
        )
        if size > METADATA_MAX:
            return None, ""
        return (host_of(url), self._key_of(url)), url

    # --- discovered ---

    def _discover(self, waiting: dict[int, Name], found: list[AckStatus]) -> None:
        """Queue the discovered URLs that are not known. One that a cap refuses has failed."""
        names, self._queued = list(self._new), set()
        known = self._frontier.knows([key for _, key in names], lambda at: names[at][0])
        state = self._ledger.state
        candidates = []
        for name, is_known in zip(names, known, strict=True):
            mark: bytes | None = name[1]
            if is_known:
                item = self._ledger.item(name) if state and state.has_purged else None
                if item is None or item.phase is not Phase.PURGED:
                    self._queued.add(name)
                    continue
                mark = None
            report = self._new[name]
            entry = Entry(report.url, _depth(report.metadata))
            candidates.append(Candidate(name[0], mark, entry))
        if candidates:
            self._frontier.queue(candidates)
        for number, name in waiting.items():
            if name not in self._queued:
                found[number] = AckStatus.FAIL
        self._new.clear()
        waiting.clear()

    def admitted(self, taken: list[Candidate]) -> None:
        """Write the items of candidates of one host that are queued next. They are written before
        the seen marks: an item without a mark means nothing."""
        if not taken:
            return
        host = self._frontier.schedule.cache.get(taken[0].host)
        tails: dict[int, int] = {}
        now = self._wall()
        for candidate in taken:
            priority = candidate.priority
            sequence = tails.get(priority)
            if sequence is None:
                sequence = host.queue.level(priority).tail
            tails[priority] = sequence + 1
            name = candidate.host, self._key_of(candidate.entry.url)
            report = self._new[name]
            item = Item(
                report.url,
                Phase.QUEUED,
                now,
                now,
                priority=priority,
                sequence=sequence,
                metadata=report.metadata,
            )
            self._ledger.put(name, item)
            self._queued.add(name)
        self._ledger.write()

    # --- known ---

    def _know(self, name: Name, report: Report) -> None:
        """Take what a client says of a URL: it is done, or is sent again from a time on."""
        before, now = self._ledger.item(name), self._wall()
        refetch = min(report.refetch or 0.0, TIME_MAX)
        item = Item(
            report.url if before is None or not before.url else before.url,
            Phase.SCHEDULED if refetch else Phase.DONE,
            before.created if before is not None and before.created else now,
            refetch,
            metadata=report.metadata,
        )
        self._ledger.put(name, item)
        if before is not None and before.phase in (Phase.QUEUED, Phase.LEASED):
            self._leases.done(name, before)
        self._mark(name)

    def _mark(self, name: Name) -> None:
        """Mark a URL as seen that was never queued here."""
        seen = self._frontier.seen
        if not seen.known(*name):
            batch = self._frontier.store.batch()
            seen.mark(name[0], [name[1]])
            seen.end_batch(batch)
            batch.write()


def _depth(metadata: dict[str, list[str]]) -> int:
    """Return the depth that StormCrawler gives, at least 1: URLs of clients are no seeds."""
    given = metadata.get("depth", [""])[:1]
    return min(max(int(given[0]), 1), DEPTH_MAX) if given and _is_number(given[0]) else 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5
