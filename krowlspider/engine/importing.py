"""Many URLs at once for a running crawl: lines of seeds, or of an export of a frontier."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy import Request

from krowlspider.engine.scheduler import Scheduler
from krowlspider.frontier.admin.export import line_of, said_in
from krowlspider.frontier.entry import Entry, EntryLine, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.stopped import dropped_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import delete
from krowlspider.job.crawls import crawl_of
from krowlspider.urls.canonical import host_of, normalise, queued_max
from krowlspider.urls.seeds import Seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.crawler import Crawler

    from krowlspider.frontier.outbox import Foreign
    from krowlspider.urls.seeds import SeedWords

# Bad lines that are named; further ones are counted.
BAD_NAMED = 100
# Bytes of a line; a whole request of an export may be long.
LINE_MAX = 1_000_000


@dataclass(slots=True)
class Taken:
    """What became of the lines so far, but for blank ones and comments.

    ``new`` were queued here, ``sent`` go to the nodes that own them, ``known`` were known or stand
    twice. ``refused`` is by reason. ``bad_lines`` has number and fault of the first bad ones.
    """

    good: int = 0
    new: int = 0
    sent: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    bad_lines: list[tuple[int, str]] = field(default_factory=list)

    @property
    def known(self) -> int:
        return self.good - self.new - self.sent - self.refused.total()


class LineIntake:
    """Takes lines into the crawl of a crawler, in their order. ``taken`` says what became of them.

    Seeds are treated as those of a start. A line of an export keeps its place: scope and exclusions
    hold, the limits on queues do not. A URL of another node goes into the outbox.
    """

    def __init__(self, crawler: Crawler):
        scheduler = Scheduler.of(crawler)
        crawl = crawl_of(crawler)
        self._job, self._node = crawl.job, crawl.node
        self._intake = scheduler.intake
        self._codec = scheduler.codec
        self._url_max = queued_max(crawler.settings.getint("URLLENGTH_LIMIT"))
        # Few: each of them has cost three processes.
        poison = self._job.store.items(schema.POISON)
        self._poison = {entry_of(key, value).url: key for key, value in poison}
        self._names = self._job.frontier.seed_names
        self._number = 0
        self.taken = Taken()

    def take(self, lines: Iterable[bytes]) -> None:
        """Take the next lines, all at once: some hundred take some milliseconds.

        :raises StoreError: the store cannot be written; the crawl has failed
        """
        taken, counters = self.taken, self._job.frontier.counters
        before = counters.copy()
        seeds: list[Seed] = []
        entries: list[tuple[Candidate, bytes | None]] = []
        for line in lines:
            self._number += 1
            try:
                if len(line) > LINE_MAX:
                    raise ValueError(f"longer than {LINE_MAX:,} bytes")
                found = line_of(line, self._url_max)
                if found is None:
                    continue
                if isinstance(found, Seed):
                    self._check_words(found.words)
                    seeds.append(found)
                else:
                    entries.append(self._candidate(found))
            except ValueError as error:
                taken.bad += 1
                if len(taken.bad_lines) < BAD_NAMED:
                    taken.bad_lines.append((self._number, str(error)))
                continue
            taken.good += 1
        if seeds:
            self._intake.give(seeds)
        if entries:
            self._queue(entries)
        changes = counters - before
        taken.new += changes["queued"]
        taken.sent += changes["foreign"]
        taken.refused.update(dropped_in(changes))

    def _check_words(self, words: SeedWords | None) -> None:
        """:raises ValueError: there are words, and no rows of pages, which they need"""
        if words is not None and self._names is None:
            raise ValueError("words of a seed need the rows of pages: set KROWL_PAGES=True")

    def promote_known(self) -> Iterator[None]:
        """Have seeds fetched first that were queued as links, as `Intake.promote_known`."""
        return self._intake.promote_known()

    def _candidate(self, line: EntryLine) -> tuple[Candidate, bytes | None]:
        """Return what a line queues, and the key of its page among those that were set aside.

        :raises ValueError: it cannot be imported; the message says why
        """
        entry = line.entry(self._url_max, self._intake.key_of_seed)
        self._check_words(words := said_in(line))
        identity = self._identity(entry)
        if words is not None:
            self._intake.give_words([(line.seed or entry.url, words)])
        if (aside := self._poison.pop(entry.url, None)) is not None:
            identity = None
        return Candidate(host_of(entry.url), identity, entry, line.priority), aside

    def _identity(self, entry: Entry) -> bytes | None:
        request = self._codec.portable(entry) if entry.request else Request(entry.url)
        if normalise(request.url) != entry.url:
            # The line's URL decides host and robots.txt, but the request would be fetched.
            raise ValueError("its request is for another URL")
        return None if request.dont_filter else self._intake.identify(request, entry.url)

    def _queue(self, entries: list[tuple[Candidate, bytes | None]]) -> None:
        node, intake = self._node, self._intake
        hosts = [candidate.host for candidate, _ in entries]
        owners = [None] * len(hosts) if node is None else node.foreign_owners(hosts)
        foreign: list[Foreign] = []
        sent: list[Entry] = []
        for (candidate, aside), owner in zip(entries, owners, strict=True):
            entry, host, key = candidate.entry, candidate.host, candidate.key
            reason = intake.refusal(
                entry.url,
                host,
                entry.depth,
                None,
                is_stray=entry.redirects > 0,
                is_requisite=entry.is_requisite,
            )
            if reason:
                intake.count_dropped(reason)
            elif owner is not None:
                foreign += intake.outgoing(
                    owner, host, key, entry, candidate.priority, always=key is None
                )
                sent.append(entry)
            elif key is None or not self._knows(key, host):
                # Queued before the other goes: a death in between leaves both, never none.
                queued = intake.add([candidate], is_exempt=True)
                if queued and aside is not None:
                    delete(self._job.store, [aside])
        if foreign:
            intake.add([], foreign)
            intake.give_sent(sent)
        intake.wake()

    def _knows(self, key: bytes, host: str) -> bool:
        return self._intake.knows((key,), lambda _: host)[0]
