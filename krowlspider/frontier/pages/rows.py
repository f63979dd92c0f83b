"""The rows of pages in the store, under their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.entry_queues import NOT_MODIFIED, PAGE, REDIRECT
from krowlspider.frontier.pages.after import row_after, trust_after
from krowlspider.frontier.pages.row import LaterRow, PageRow, decode_row
from krowlspider.frontier.store.schema import KEY_SIZE, PAGES, host_of_page, page_prefix, trust_key
from krowlspider.frontier.store.store import put
from krowlspider.recrawl.trust import Trust
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.store.store import Batch, Store

_KINDS = {PAGE, REDIRECT, NOT_MODIFIED}


class PageRows:
    """The rows of a frontier; ``key_of`` returns the identity of a URL.

    A row is written with the acknowledgement of its page. It is under a key of its own: the seen
    marks of a page's links are joined, and most have no key to share. ``pass_number`` is that of
    the pass that is under way, 0 for none.
    """

    def __init__(self, store: Store, key_of: Callable[[str], bytes]):
        self._store = store
        self._key_of = key_of
        self.pass_number = 0

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
        return None if found is None else _read(found, host)

    def put(self, acknowledged: Iterable[tuple[Lease, str | None]], batch: Batch) -> None:
        """Put the rows of pages that are done into the batch that acknowledges them.

        Call it when their records are durable. A plain entry is the first of its page: only for the
        others an earlier row is read.
        """
        trusts: dict[str, Trust] = {}
        for lease, dropped in acknowledged:
            fetched = lease.fetched
            if fetched is None or dropped is not None or lease.kind not in _KINDS:
                continue
            entry, host = lease.entry, lease.host.name
            key, row = page_prefix(host) + self._key_of(entry.url), None
            if entry.request and (found := self._store.get(key)) is not None:
                row = _read(found, host)
                if row is None:
                    continue
                if row.etag or row.modified:
                    trust = trusts.get(host) or self.trust(host)
                    trusts[host] = trust_after(trust, row, fetched)
            new = row_after(row, entry, fetched)
            new.passed = self.pass_number
            batch.put(key, new.encode(host))
        for host, trust in trusts.items():
            batch.put(trust_key(host), bytes(trust))

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


def _read(data: bytes, host: str) -> PageRow | None:
    try:
        return decode_row(data, host)
    except LaterRow:
        return None


def rows_in(store: Store, host: str | None = None) -> Iterator[PageRow | None]:
    """Yield the rows of a host, or of all hosts; None for one of a later version."""
    prefix = PAGES if host is None else page_prefix(host)
    for key, value in store.items(prefix):
        yield _read(value, host_of_page(key))
