"""The rows of pages in the store, and the row of a page after a fetch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from krowlspider.frontier.entry import FILES, SITEMAP, Entry, Fetched
from krowlspider.frontier.entry_queues import NOT_MODIFIED, PAGE, REDIRECT, Lease
from krowlspider.frontier.pages.planner import (
    Planner,
    Planning,
    Seen,
    demand_of,
    estimate_of,
    lessen_demand,
)
from krowlspider.frontier.pages.row import COUNT_MAX, PageRow, held, is_later, read_row
from krowlspider.frontier.pages.seed_names import SeedNames
from krowlspider.frontier.store.schema import KEY_SIZE, PAGES, host_of_page, page_prefix, trust_key
from krowlspider.frontier.store.store import Batch, Store, put
from krowlspider.politeness.gemini import DROPPED
from krowlspider.recrawl.estimate import Estimate, observe
from krowlspider.recrawl.gone import Absence, PageState, is_missing, may_pass
from krowlspider.recrawl.prior import SiteChanges, prior
from krowlspider.recrawl.trust import Trust, after_change, after_content, after_not_modified
from krowlspider.recrawl.validators import ASK_IN_FULL, Meaning, Validators
from krowlspider.urls.canonical import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def row_after(row: PageRow | None, entry: Entry, fetched: Fetched) -> PageRow:
    """Return the row of a page after a fetch; ``row`` is the one before it, None without."""
    if row is not None and fetched.meaning is Meaning.NOT_MODIFIED:
        return _confirmed(row, fetched)
    if row is not None and fetched.meaning is Meaning.UNASKED:
        # What is known of the page stays, without the validators: it is asked in full.
        row.etag = row.modified = b""
        return _asked(row, fetched)
    if row is not None and may_pass(fetched.status):
        return _failed(row, fetched)
    if row is not None and row.payload and is_missing(fetched.status) and not _was_missing(row):
        # What is known of the page stays until the next answer says the same.
        row.absence = Absence().answered(fetched.status, fetched.started)
        return _failed(row, fetched)
    started, receipt = held(fetched.started), fetched.receipt
    second = int(started)
    new = PageRow(
        entry.url,
        fetched.status,
        second,
        started,
        entry.depth,
        0 if may_pass(fetched.status) else second,
        receipt.date,
        "" if receipt.url == entry.url else receipt.url,
        fetched.etag,
        fetched.modified,
        receipt.payload,
        text=fetched.text,
        price=fetched.price,
    )
    new.seed = entry.seed if row is None else row.seed
    if row is not None:
        if new.payload == row.payload:
            new.text = new.text or row.text
        new.first, new.depth = row.first, min(row.depth, entry.depth)
        new.fetches, new.unmodified = min(row.fetches + 1, COUNT_MAX), row.unmodified
        new.changes, new.changed = row.changes, row.changed or second
        new.estimate = _estimate(row, fetched, changed=has_changed(row, new))
        if has_changed(row, new):
            new.changes, new.changed = min(row.changes + 1, COUNT_MAX), second
    return new


def _was_missing(row: PageRow) -> bool:
    return is_missing(row.status) or row.absence.state is PageState.MISSING


def trust_after(trust: Trust, row: PageRow, fetched: Fetched) -> Trust:
    """Return what the validators of a host are worth after a fetch of a page with a row.

    Bytes that differ with the same main text are no lie. Where the text is not known, bytes that
    differ under a weak tag may be the same text (RFC 9110, section 8.8.1).
    """
    stored = Validators(row.etag, row.modified)
    answered = Validators(fetched.etag, fetched.modified)
    if fetched.meaning is Meaning.NOT_MODIFIED:
        return after_not_modified(trust, stored)
    if fetched.status != row.status or not (row.payload and fetched.receipt.payload):
        return trust
    differs = fetched.receipt.payload != row.payload
    if row.text and fetched.text:
        text_changed = differs and fetched.text != row.text
        if text_changed and fetched.asked is not None:
            trust = after_change(trust, stored, answered, fetched.asked)
    else:
        text_changed = differs and not row.etag.startswith(b"W/")
    return after_content(
        trust,
        stored,
        answered,
        text_changed=text_changed,
        bytes_changed=differs,
    )


def has_changed(row: PageRow, new: PageRow) -> bool:
    """Return whether a page has another main text or status than before; where no text is known,
    whether it has another body. An error that may pass is no status of the page, nor is the first
    answer that it is missing."""
    if not row.changed:
        return False
    is_known = not (may_pass(row.status) or row.absence.is_doubtful)
    if new.status != row.status and is_known:
        return True
    if new.payload == row.payload:
        return False
    return not (new.text and new.text == row.text)


def _estimate(row: PageRow, fetched: Fetched, *, changed: bool) -> tuple[float, float]:
    """Return the estimate of a page's rate of change after a fetch."""
    before = prior(row.kind, row.depth, SiteChanges()) if row.estimate is None else row.estimate
    interval = held(fetched.started) - row.last
    return observe(Estimate(*before), interval, changed=changed).rounded


def _confirmed(row: PageRow, fetched: Fetched) -> PageRow:
    """Return the row of a page that has not changed. What the 304 says of its headers holds (RFC
    9111, section 3.2)."""
    row.estimate = _estimate(row, fetched, changed=False)
    row.unmodified = min(row.unmodified + 1, COUNT_MAX)
    row.etag = fetched.etag or row.etag
    row.modified = fetched.modified or row.modified
    return _asked(row, fetched)


def _failed(row: PageRow, fetched: Fetched) -> PageRow:
    """Return the row of a page after an error that may pass: what is known of the page stays,
    without its validators."""
    row.estimate = _estimate(row, fetched, changed=False)
    row.status, row.etag, row.modified, row.price = fetched.status, b"", b"", fetched.price
    return _asked(row, fetched)


def _asked(row: PageRow, fetched: Fetched) -> PageRow:
    row.last = held(fetched.started)
    row.fetches = min(row.fetches + 1, COUNT_MAX)
    return row


_KINDS = {PAGE, REDIRECT, NOT_MODIFIED}
_SITEMAP = FILES[SITEMAP]
# Before the first fetch of a page.
_NO_PAGE = PageRow("", 0, 0, 0.0)


def _has_row(lease: Lease) -> bool:
    """Return whether a page that was fetched has a row. A sitemap has one if it is fetched again by
    a schedule."""
    is_list = lease.kind == _SITEMAP and (lease.listing or lease.entry.is_again)
    return lease.kind in _KINDS or bool(is_list)


def _is_answer(dropped: str) -> bool:
    """Return whether a page was dropped for its answer, which says how the page is."""
    return dropped.startswith(DROPPED)


class PageRows:
    """The rows of a frontier; ``key_of`` returns the identity of a URL.

    A row is written with the acknowledgement of its page. It is under a key of its own: the seen
    marks of a page's links are joined, and most have no key to share. ``pass_number`` is that of
    the pass that is under way, 0 for none. ``planner`` plans when pages are fetched again, None
    without a schedule. ``seeds`` names the seeds in them.
    """

    def __init__(self, store: Store, key_of: Callable[[str], bytes]):
        self._store = store
        self._key_of = key_of
        self.pass_number = 0
        self.planner: Planner | None = None
        self.seeds = SeedNames(store, key_of)

    def key(self, url: str) -> bytes:
        """Return the key of the row of a URL, which need not exist."""
        return page_prefix(host_of(url)) + self._key_of(url)

    @staticmethod
    def identity(key: bytes) -> bytes:
        """Return the identity in the key of a row."""
        return key[-KEY_SIZE:]

    def get(self, url: str) -> PageRow | None:
        """Return the row of a URL; None without one that this version can read."""
        key = self.key(url)
        found = self._store.get(key)
        return None if found is None else read_row(found, host_of(url), key)

    def put(self, acknowledged: Iterable[tuple[Lease, str | None]], batch: Batch) -> None:
        """Put the rows of pages that are done into the batch that acknowledges them.

        Call it when their records are durable. A plain entry is the first of its page: only for the
        others an earlier row is read.
        """
        trusts: dict[str, Trust] = {}
        # The demand of pages that lose their plans, as there is no schedule.
        gone: defaultdict[str, float] = defaultdict(float)
        planning = None if self.planner is None else self.planner.begin(batch)
        for lease, dropped in acknowledged:
            fetched = lease.fetched
            is_over = dropped is None or _is_answer(dropped)
            if fetched is None or not is_over or not _has_row(lease):
                if lease.entry.is_again:
                    self._put_unfetched(lease, planning, gone, batch)
                continue
            entry, host = lease.entry, lease.host.name
            identity, row = self._key_of(entry.url), None
            key = page_prefix(host) + identity
            if entry.request and (found := self._store.get(key)) is not None:
                if is_later(found):
                    continue
                row = read_row(found, host, identity)
                if planning is None:
                    gone[host] += demand_of(row)
                if row is not None and (row.etag or row.modified):
                    trust = trusts.get(host) or self.trust(host)
                    trusts[host] = trust_after(trust, row, fetched)
            new = self._row_after(row, lease, fetched, planning, identity)
            batch.put(key, new.encode(host))
        for host, trust in trusts.items():
            batch.put(trust_key(host), bytes(trust))
        if planning is not None:
            planning.end()
        lessen_demand(self._store, gone, batch)

    def _row_after(
        self,
        row: PageRow | None,
        lease: Lease,
        fetched: Fetched,
        planning: Planning | None,
        identity: bytes,
    ) -> PageRow:
        """Return the row of a page that was fetched, and plan when that is done again."""
        entry = lease.entry
        # What was known of the page: its row may be the new one.
        before = _NO_PAGE if row is None else row
        listing = lease.listing or (before.listing if entry.request and entry.file else b"")
        if planning is None:
            new = row_after(row, entry, fetched)
        else:
            seen = Seen.of(before)
            new = row_after(row, entry, fetched)
            failed = may_pass(fetched.status)
            missing = not failed and planning.is_error(
                lease.host.name, seen.text, new.text, identity
            )
            new.absence = seen.absence.answered(fetched.status, new.last, soft_404=missing)
        new.passed, new.listing = self.pass_number, listing
        new.due = new.planned = new.named = new.tried = 0
        if planning is not None:
            has_changed = new.changes > seen.changes
            in_full = fetched.meaning in ASK_IN_FULL
            if row is not None and not in_full:
                planning.learn(lease.host, seen, new.last, changed=has_changed)
            if seen.named or seen.tried:
                failed |= new.absence.is_doubtful
                says = None if in_full or failed else has_changed
                planning.score(lease.host.name, seen.named, seen.tried, changed=says)
            planning.fetched(lease.host, identity, new, seen.demand)
            if entry.is_again:
                is_confirmed = fetched.meaning is Meaning.NOT_MODIFIED
                planning.count(is_confirmed=is_confirmed, has_changed=has_changed)
        return new

    def _put_unfetched(
        self, lease: Lease, planning: Planning | None, gone: defaultdict[str, float], batch: Batch
    ) -> None:
        """Plan a page anew that was to be fetched again, and was not, as one that did not change:
        it backs off. Without a schedule, a later one finds it as a page that is not planned."""
        key, name = self.key(lease.entry.url), lease.host.name
        found = self._store.get(key)
        row = None if found is None else read_row(found, name, key)
        if row is None or row.due or not row.planned:
            # It is planned already, or never was.
            return
        before = demand_of(row)
        if planning is None:
            gone[name] += before
            row.due = row.planned = 0
        else:
            # ``last`` stays: the plan has the seconds since the last try.
            row.estimate = observe(estimate_of(row), row.planned, changed=False).rounded
            planning.plan(lease.host, self.identity(key), row, planning.now, before)
        batch.put(key, row.encode(name))

    def trust(self, host: str) -> Trust:
        """Return what the validators of a host are worth."""
        return Trust.read(self._store.get(trust_key(host)) or b"")

    def write(self, row: PageRow) -> None:
        """Replace the row of a page in a batch of its own."""
        put(self._store, self.key(row.url), row.encode(host_of(row.url)))

    def forget(self, urls: Iterable[str], batch: Batch) -> None:
        """Remove the rows of URLs with a batch, and their demand from that of their hosts."""
        gone: defaultdict[str, float] = defaultdict(float)
        for url in urls:
            gone[host_of(url)] += demand_of(self.get(url))
            batch.delete(self.key(url))
        if self.planner is None:
            lessen_demand(self._store, gone, batch)
            return
        for name, less in gone.items():
            if less:
                self.planner.lessen(name, less)


def rows_in(store: Store, host: str | None = None) -> Iterator[PageRow | None]:
    """Yield the rows of a host, or of all hosts; None for one that cannot be read."""
    prefix = PAGES if host is None else page_prefix(host)
    for key, value in store.items(prefix):
        yield read_row(value, host_of_page(key), key)
