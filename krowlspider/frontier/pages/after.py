"""The row of a page after a fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.pages.row import COUNT_MAX, PageRow, second_of
from krowlspider.recrawl.estimate import Estimate, observe
from krowlspider.recrawl.prior import Site, prior
from krowlspider.recrawl.trust import after_content, after_not_modified
from krowlspider.recrawl.validators import Meaning, Validators

if TYPE_CHECKING:
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.fetched import Fetched
    from krowlspider.recrawl.trust import Trust


def row_after(row: PageRow | None, entry: Entry, fetched: Fetched) -> PageRow:
    """Return the row of a page after a fetch; ``row`` is the one before it, None without."""
    if row is not None and fetched.meaning is Meaning.NOT_MODIFIED:
        return _confirmed(row, fetched)
    if row is not None and fetched.meaning is Meaning.UNASKED:
        # What is known of the page stays, without the validators: it is asked in full.
        row.etag = row.modified = b""
        return _asked(row, fetched)
    started, receipt = fetched.started, fetched.receipt
    # The clock of the machine may say anything.
    second = second_of(started)
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
        text=fetched.text,
    )
    new.seed = entry.seed if row is None else row.seed
    if row is not None:
        if new.payload == row.payload:
            new.text = new.text or row.text
        new.first, new.depth = row.first, min(row.depth, entry.depth)
        new.fetches, new.unmodified = min(row.fetches + 1, COUNT_MAX), row.unmodified
        new.changes, new.changed = row.changes, row.changed
        new.estimate = _estimate(row, fetched, changed=has_changed(row, new))
        if has_changed(row, new):
            new.changes, new.changed = min(row.changes + 1, COUNT_MAX), second
    return new


def trust_after(trust: Trust, row: PageRow, fetched: Fetched) -> Trust:
    """Return what the validators of a host are worth after a fetch of a page with a row.

    Bytes that differ with the same main text are no lie. Where the text is not known, bytes that
    differ under a weak tag may be the same text (RFC 9110, section 8.8.1).
    """
    stored = Validators(row.etag, row.modified)
    if fetched.meaning is Meaning.NOT_MODIFIED:
        return after_not_modified(trust, stored)
    if fetched.status != row.status or not (row.payload and fetched.receipt.payload):
        return trust
    differs = fetched.receipt.payload != row.payload
    if row.text and fetched.text:
        text_changed = differs and fetched.text != row.text
    else:
        text_changed = differs and not row.etag.startswith(b"W/")
    return after_content(
        trust,
        stored,
        Validators(fetched.etag, fetched.modified),
        text_changed=text_changed,
        bytes_changed=differs,
    )


def has_changed(row: PageRow, new: PageRow) -> bool:
    """Return whether a page has another main text or status than before; where no text is known,
    whether it has another body."""
    if new.status != row.status:
        return True
    if new.payload == row.payload:
        return False
    return not (new.text and new.text == row.text)


def _estimate(row: PageRow, fetched: Fetched, *, changed: bool) -> tuple[float, float]:
    """Return the estimate of a page's rate of change after a fetch."""
    before = prior(row.kind, row.depth, Site()) if row.estimate is None else row.estimate
    return observe(Estimate(*before), fetched.started - row.last, changed=changed)


def _confirmed(row: PageRow, fetched: Fetched) -> PageRow:
    """Return the row of a page that has not changed. What the 304 says of its headers holds (RFC
    9111, section 3.2)."""
    row.estimate = _estimate(row, fetched, changed=False)
    row.unmodified = min(row.unmodified + 1, COUNT_MAX)
    row.etag = fetched.etag or row.etag
    row.modified = fetched.modified or row.modified
    return _asked(row, fetched)


def _asked(row: PageRow, fetched: Fetched) -> PageRow:
    row.last = fetched.started
    row.fetches = min(row.fetches + 1, COUNT_MAX)
    return row
