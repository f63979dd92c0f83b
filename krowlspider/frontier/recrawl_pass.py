"""One pass over the rows of pages: each page that was fetched before it is queued once again.

How far the pass has come is written in the batch that queues its pages. So a start after a death
goes on where the last one was.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.hosts.host import DEFERRED
from krowlspider.frontier.pages.row import LaterRow, decode_row, entry_again
from krowlspider.frontier.store.schema import PAGES, RECRAWL_PASS, host_of_page
from krowlspider.frontier.store.store import put

if TYPE_CHECKING:
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.pages.rows import PageRows
    from krowlspider.frontier.store.store import Store


# The numbers of passes begin anew after this one.
PASSES_MAX = 0xFFFF


class _State(Struct):
    """``number`` is from 1 to PASSES_MAX, ``after`` the key of the last row that was looked at.
    ``is_walked``: all were. ``is_over``: all pages are done too. ``host``: the one whose pages were
    queued last: the next row may be of it. ``is_left``: a start without a pass came after the last
    one of this pass, and may have fetched what was queued for it."""

    number: int
    after: bytes = PAGES
    is_walked: bool = False
    is_over: bool = False
    host: str = ""
    is_left: bool = False


def leave_pass(store: Store) -> None:
    """Note that a start begins which has no pass."""
    saved = store.get(RECRAWL_PASS)
    if saved is not None:
        state = msgspec.json.decode(saved, type=_State)
        if not (state.is_over or state.is_left):
            state.is_left = True
            put(store, RECRAWL_PASS, msgspec.json.encode(state))


class RecrawlPass:
    """A pass over the rows of a frontier: that of the store if it is not over, else a new one.

    A row has the number of the pass in which its page was fetched. So no clock decides which pages
    are left. ``is_resumed``: an earlier start began it.
    """

    def __init__(self, frontier: Frontier, pages: PageRows):
        self._frontier = frontier
        self._store: Store = frontier.store
        saved = self._store.get(RECRAWL_PASS)
        state = None if saved is None else msgspec.json.decode(saved, type=_State)
        if state is not None and state.is_left:
            # Another start may have fetched all that was queued.
            state.is_over |= state.is_walked and not frontier.pending
        self.is_resumed = not (state is None or state.is_over)
        if state is None or state.is_over:
            state = _State(1 if state is None else state.number % PASSES_MAX + 1)
        if state.is_left or not self.is_resumed:
            state.is_left = False
            put(self._store, RECRAWL_PASS, msgspec.json.encode(state))
        self._state = state
        pages.pass_number = state.number

    # Seconds until there is work for `step`.
    rest = 0.0

    def text(self) -> str:
        """Return in words which pass this is."""
        begun = "goes on" if self.is_resumed else "begins"
        return f"what earlier starts have fetched; pass {self._state.number} {begun}"

    def has_fetched(self, row: PageRow) -> bool:
        """Return whether a page was fetched in this pass."""
        return row.passed == self._state.number

    @property
    def is_pending(self) -> bool:
        """Return whether pages of the pass are not queued yet."""
        return not self._state.is_walked

    def step(self, most: int) -> int:
        """Look at the next rows, ``most`` of them, and queue their pages. Return how many are
        queued.

        They go behind what their hosts have queued, and no cap is asked: they were admitted once.
        Those of deferred hosts that have other entries are left out.

        :raises StoreError: the store cannot be written
        """
        state, frontier = self._state, self._frontier
        rows = list(islice(self._store.items(PAGES, state.after), most))
        by_host: dict[str, list[Candidate]] = {}
        for key, value in rows:
            name = host_of_page(key)
            if (entry := self._entry(value, name)) is not None:
                by_host.setdefault(name, []).append(Candidate(name, None, entry))
        state.after, state.is_walked = (rows[-1][0] if rows else state.after), len(rows) < most
        cache, batch = frontier.schedule.cache, self._store.batch()
        cache.evict()
        hosts = [cache.get(name) for name in by_host]
        hosts = [
            host
            for host in hosts
            if host.name == state.host or not (host.state is DEFERRED and host.queue.queued)
        ]
        state.host = hosts[-1].name if hosts else ""
        for host in hosts:
            frontier.queues.append(host, by_host[host.name], batch)
        cache.record(hosts, batch)
        batch.put(RECRAWL_PASS, msgspec.json.encode(state))
        batch.write()
        return sum(len(by_host[host.name]) for host in hosts)

    def _entry(self, row: bytes, host: str) -> Entry | None:
        """Return the entry of a page that is asked again; None for one that is not."""
        try:
            page = decode_row(row, host)
        except LaterRow:
            return None
        if self.has_fetched(page):
            return None
        return entry_again(page)

    def end(self) -> None:
        """End the pass, as all its pages are done: the next start begins another one."""
        self._state.is_over = True
        put(self._store, RECRAWL_PASS, msgspec.json.encode(self._state))
