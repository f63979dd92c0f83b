"""The row of a page after a fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.pages.row import COUNT_MAX, PageRow
from krowlspider.recrawl.validators import Meaning

if TYPE_CHECKING:
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.fetched import Fetched


def row_after(row: PageRow | None, entry: Entry, fetched: Fetched) -> PageRow:
    """Return the row of a page after a fetch; ``row`` is the one before it, None without."""
    if row is not None and fetched.meaning is Meaning.NOT_MODIFIED:
        return _confirmed(row, fetched)
    if row is not None and fetched.meaning is Meaning.UNASKED:
        # What is known of the page stays, without the validators: it is asked in full.
        row.etag = row.modified = b""
        return _asked(row, fetched)
    started, receipt = fetched.started, fetched.receipt
    second = int(started)
    new = PageRow(
        entry.url,
        fetched.status,
        second,
        started,
        entry.depth,
        second,
        receipt.date,
        "" if receipt.url == entry.url else receipt.url,
        fetched.etag,
        fetched.modified,
        receipt.payload,
    )
    if row is not None:
        new.first, new.depth = row.first, min(row.depth, entry.depth)
        new.fetches, new.unmodified = min(row.fetches + 1, COUNT_MAX), row.unmodified
        new.changes, new.changed = row.changes, row.changed
        if (new.payload, new.status) != (row.payload, row.status):
            new.changes, new.changed = min(row.changes + 1, COUNT_MAX), second
    return new


def _confirmed(row: PageRow, fetched: Fetched) -> PageRow:
    """Return the row of a page that has not changed. What the 304 says of its headers holds (RFC
    9111, section 3.2)."""
    row.unmodified = min(row.unmodified + 1, COUNT_MAX)
    row.etag = fetched.etag or row.etag
    row.modified = fetched.modified or row.modified
    return _asked(row, fetched)


def _asked(row: PageRow, fetched: Fetched) -> PageRow:
    row.last = fetched.started
    row.fetches = min(row.fetches + 1, COUNT_MAX)
    return row
