"""Fetch again what was fetched: the conditions of such a request, and the pass of a start."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.archive.payload import Original, label
from krowlspider.archive.write.records import warc_date
from krowlspider.frontier.due_pages import DuePages, RecrawlPass, leave_pass, leave_unplanned
from krowlspider.frontier.store.store import STORE_ERRORS
from krowlspider.recrawl.trust import trusted
from krowlspider.recrawl.validators import (
    NO_VALIDATORS,
    Asked,
    KnownPage,
    Meaning,
    Validators,
    conditions,
    meaning_of,
    validators_of,
)
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from scrapy.settings import BaseSettings

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.pages.hinted import Hint
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.pages.rows import PageRows
    from krowlspider.recrawl.value import Terms

OFF = "off"
ONCE = "once"
CONTINUOUS = "continuous"
# Rows that are looked at in one call: some milliseconds of the event loop, and the part of its time
# that all calls may take.
_STEP = 200
_LOOP_SHARE = 0.1
# Entries of sitemaps and feeds whose hints may wait: those of three of the largest.
HINTING_MAX = 150_000
# Seconds until a pass that waits for room looks again.
_FULL = 1.0


class Refetch(NamedTuple):
    """A request for a page that is fetched again: its row, and the conditions that are sent."""

    row: PageRow
    sent: Validators
    asked: Asked

    def meaning(self, status: int, etag: bytes, modified: bytes) -> Meaning:
        """Return what an answer with these validators means."""
        return meaning_of(status, self.sent, Validators(etag, modified))

    def original(self) -> Original | None:
        """Return the record that a 304 confirms; None if it is not known."""
        row = self.row
        if not (row.stored and row.payload):
            return None
        algorithm = "sha1" if len(row.payload) == 20 else "sha256"
        digest = label(row.payload, algorithm)
        return Original(row.elsewhere or row.url, warc_date(row.stored), digest=digest)


class Recrawl:
    """The pages that a start fetches again, queued by ``work``. While ``is_full`` returns true,
    none is queued. ``between_commits`` returns a context in which no commit is under way. ``fail``
    is called with an error of the frontier."""

    def __init__(
        self,
        work: RecrawlPass | DuePages,
        pages: PageRows,
        *,
        is_full: Callable[[], bool],
        wake: Callable[[], None],
        between_commits: Callable[[], AbstractAsyncContextManager[None]],
        fail: Callable[[Exception], None],
    ):
        self._pages = pages
        self._work = work
        self._is_full = is_full
        self._wake = wake
        self._between_commits = between_commits
        self._fail = fail
        # Hints that wait, and of how many entries they are.
        self._hints: deque[tuple[Iterator[Hint], int]] = deque()
        self._hinting = 0
        # What follows them.
        self.hinting: asyncio.Task[None] | None = None

    def text(self) -> str:
        """Return in words what this start asks again."""
        return self._work.text()

    @property
    def is_pending(self) -> bool:
        """Return whether pages are not queued yet."""
        return self._work.is_pending

    def refetch(self, url: str) -> Refetch | None:
        """Return how a page is asked that is fetched again; None if it has no row."""
        row = self._pages.get(url)
        if row is None:
            return None
        return Refetch(row, *self._conditions(row))

    def is_done(self, refetch: Refetch) -> bool:
        """Return whether the page was fetched already since it was queued."""
        return self._work.has_fetched(refetch.row)

    def _conditions(self, row: PageRow) -> tuple[Validators, Asked]:
        # Judged by our clock at the last fetch: the row has no Date of the server.
        etags, dates = [row.etag] * bool(row.etag), [row.modified] * bool(row.modified)
        kept, _ = validators_of(row.status, etags, dates, b"", row.last)
        if kept == NO_VALIDATORS or not row.stored:
            # A 304 would refer to no record.
            return NO_VALIDATORS, Asked.IN_FULL
        page = KnownPage(row.url, row.status, kept, row.fetches)
        trust = self._pages.trust(host_of(row.url))
        may = trusted(trust, kept)
        return conditions(page, row.url, row.url.encode(), may, hides=trust.hides_changes)

    def learn_nothing(self, refetch: Refetch) -> None:
        """Forget the validators of a page whose answer to them cannot be used, so that it is asked
        in full."""
        refetch.row.etag = refetch.row.modified = b""
        self._pages.write(refetch.row)

    async def run(self) -> None:
        """Queue pages, step by step, as long as there will be some.

        :raises StoreError: the store cannot be written
        """
        while self.is_pending:
            if self._is_full():
                await asyncio.sleep(_FULL)
                continue
            async with self._between_commits():
                begun = perf_counter()
                queued = self._work.step(_STEP)
                took = perf_counter() - begun
            if queued:
                self._wake()
            await asyncio.sleep(max(took / _LOOP_SHARE, self._work.rest))
        self._wake()

    @property
    def takes_hints(self) -> bool:
        """Return whether there is a schedule, in which hints bring pages forward."""
        return isinstance(self._work, DuePages)

    def key(self, url: str) -> bytes:
        """Return the key of the row of a URL, which need not exist."""
        return self._pages.key(url)

    def take_hints(self, hints: Iterator[Hint], entries: int) -> bool:
        """Have pages brought forward of which a document says that they have changed. Return at
        once: the document must not wait in its callback.

        ``entries`` is the number of its entries that it says so of. Return False if those that wait
        would be more than HINTING_MAX: then its hints are left out.
        """
        if self._hinting + entries > HINTING_MAX:
            return False
        self._hinting += entries
        self._hints.append((hints, entries))
        if self.hinting is None or self.hinting.done():
            self.hinting = asyncio.ensure_future(self._follow_hints())
        return True

    async def _follow_hints(self) -> None:
        """Follow all hints that wait, step by step."""
        try:
            while self._hints:
                hints, entries = self._hints.popleft()
                await self._follow(hints)
                self._hinting -= entries
        except STORE_ERRORS as error:
            self._fail(error)

    async def _follow(self, hints: Iterator[Hint]) -> None:
        assert isinstance(self._work, DuePages)
        while some := list(islice(hints, _STEP)):
            async with self._between_commits():
                begun = perf_counter()
                self._work.hinted.step(some)
                took = perf_counter() - begun
            await asyncio.sleep(took / _LOOP_SHARE)

    def end(self) -> None:
        """End a pass: the crawl has nothing left to fetch."""
        if not self.is_pending:
            self._work.end()


class Afforded(NamedTuple):
    """What a schedule may ask: the part of a host's requests, and requests a second in all."""

    share: float
    budget: float

    @classmethod
    def by(cls, settings: BaseSettings) -> Afforded:
        share = settings.getfloat("KROWL_RECRAWL_SHARE")
        # What is in flight takes about a second.
        return cls(share, settings.getint("CONCURRENT_REQUESTS") * share)


def recrawl_work(
    kind: str,
    frontier: Frontier,
    pages: PageRows | None,
    settings: BaseSettings,
    wall: Callable[[], float],
    *,
    terms_of: Callable[[str], Terms] | None = None,
) -> RecrawlPass | DuePages | None:
    """Return what a start with KROWL_RECRAWL asks again; None if it asks nothing.

    ``terms_of`` is as in `Planner`.
    """
    if kind != CONTINUOUS:
        leave_unplanned(frontier.store)
    if kind == ONCE and pages is not None:
        return RecrawlPass(frontier, pages)
    leave_pass(frontier.store)
    if kind == OFF or pages is None:
        return None
    share, budget = Afforded.by(settings)
    return DuePages(frontier, pages, wall=wall, share=share, budget=budget, terms_of=terms_of)
