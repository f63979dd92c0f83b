"""The rows of pages in the store, under their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.entry_queues import NOT_MODIFIED, PAGE, REDIRECT
from krowlspider.frontier.pages.after import row_after, trust_after
from krowlspider.frontier.pages.planner import demand_of
from krowlspider.frontier.pages.row import PageRow, read_row
from krowlspider.frontier.store.schema import (
    KEY_SIZE,
    PAGES,
    host_of_page,
    page_prefix,
    soft_not_found_key,
    trust_key,
)
from krowlspider.frontier.store.store import put
from krowlspider.recrawl.gone import Absence, SoftNotFound
from krowlspider.recrawl.trust import Trust
from krowlspider.recrawl.validators import Meaning
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.pages.planner import Planner, Planning
    from krowlspider.frontier.store.store import Batch, Store

_KINDS = {PAGE, REDIRECT, NOT_MODIFIED}


class PageRows:
    """The rows of a frontier; ``key_of`` returns the identity of a URL.

    A row is written with the acknowledgement of its page. It is under a key of its own: the seen
    marks of a page's links are joined, and most have no key to share. ``pass_number`` is that of
    the pass that is under way, 0 for none. ``planner`` plans when pages are fetched again, None
    without a schedule.
    """

    def __init__(self, store: Store, key_of: Callable[[str], bytes]):
        self._store = store
        self._key_of = key_of
        self.pass_number = 0
        self.planner: Planner | None = None

    def key(self, url: str) -> bytes:
        """Return the key of the row of a URL, which need not exist."""
        return page_prefix(host_of(url)) + self._key_of(url)

    @staticmethod
    def identity(key: bytes) -> bytes:
        """Return the identity in the key of a row."""
        return key[-KEY_SIZE:]

    def get(self, url: str) -> PageRow | None:
        """Return the row of a URL; None without one that this version can read."""
        host = host_of(url)
        found = self._store.get(page_prefix(host) + self._key_of(url))
        return None if found is None else read_row(found, host)

    def put(self, acknowledged: Iterable[tuple[Lease, str | None]], batch: Batch) -> None:
        """Put the rows of pages that are done into the batch that acknowledges them.

        Call it when their records are durable. A plain entry is the first of its page: only for the
        others an earlier row is read.
        """
        trusts: dict[str, Trust] = {}
        votes: dict[str, SoftNotFound] = {}
        planning = None if self.planner is None else self.planner.begin(batch)
        for lease, dropped in acknowledged:
            fetched = lease.fetched
            if fetched is None or dropped is not None or lease.kind not in _KINDS:
                if lease.entry.is_again:
                    self._put_unfetched(lease, planning, batch)
                continue
            entry, host = lease.entry, lease.host.name
            identity, row, planned = self._key_of(entry.url), None, 0.0
            key = page_prefix(host) + identity
            if entry.request and (found := self._store.get(key)) is not None:
                row = read_row(found, host)
                if row is None:
                    continue
                if row.etag or row.modified:
                    trust = trusts.get(host) or self.trust(host)
                    trusts[host] = trust_after(trust, row, fetched)
            if planning is not None:
                planned = demand_of(row)
                absence = Absence() if row is None else row.absence
                changes = 0 if row is None else row.changes
                text = b"" if row is None else row.text
            new = row_after(row, entry, fetched)
            new.passed = self.pass_number
            new.due = new.planned = 0
            if planning is not None:
                is_error = bool(new.text) and self._is_error(host, text, new.text, votes)
                new.absence = absence.answered(fetched.status, new.last, soft_404=is_error)
                planning.fetched(lease.host, identity, new, planned)
                if entry.is_again:
                    is_confirmed = fetched.meaning is Meaning.NOT_MODIFIED
                    planning.count(is_confirmed=is_confirmed, has_changed=new.changes > changes)
            batch.put(key, new.encode(host))
        for host, trust in trusts.items():
            batch.put(trust_key(host), bytes(trust))
        for host, vote in votes.items():
            batch.put(soft_not_found_key(host), bytes(vote))
        if planning is not None:
            planning.end()

    def _is_error(
        self, host: str, before: bytes, text: bytes, votes: dict[str, SoftNotFound]
    ) -> bool:
        """Return whether a page with a text is missing. ``before`` is its text before, empty if it
        is not known. A change is counted in ``votes``, of hosts."""
        vote = votes.get(host)
        if vote is None:
            vote = SoftNotFound.read(self._store.get(soft_not_found_key(host)))
        if before and text != before:
            vote = votes[host] = vote.changed_into(text, before)
        return vote.is_error(text)

    def _put_unfetched(self, lease: Lease, planning: Planning | None, batch: Batch) -> None:
        """Plan a page anew that was to be fetched again, and was not. Without a schedule, a later
        one finds it as a page that is not planned."""
        key, name = self.key(lease.entry.url), lease.host.name
        found = self._store.get(key)
        row = None if found is None else read_row(found, name)
        if row is None or row.due or not row.planned:
            # It is planned already, or never was.
            return
        before = demand_of(row)
        if planning is None:
            row.due = row.planned = 0
        else:
            planning.plan(lease.host, self.identity(key), row, planning.now, before)
        batch.put(key, row.encode(name))

    def trust(self, host: str) -> Trust:
        """Return what the validators of a host are worth."""
        return Trust.read(self._store.get(trust_key(host)) or b"")

    def write(self, row: PageRow) -> None:
        """Replace the row of a page in a batch of its own."""
        put(self._store, self.key(row.url), row.encode(host_of(row.url)))

    def forget(self, urls: Iterable[str], batch: Batch) -> None:
        """Remove the rows of URLs with a batch."""
        for url in urls:
            batch.delete(self.key(url))


def rows_in(store: Store, host: str | None = None) -> Iterator[PageRow | None]:
    """Yield the rows of a host, or of all hosts; None for one of a later version."""
    prefix = PAGES if host is None else page_prefix(host)
    for key, value in store.items(prefix):
        yield read_row(value, host_of_page(key))
