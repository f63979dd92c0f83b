"""Print the rows of pages as JSON, one object a line, and take such lines in."""

from __future__ import annotations

from base64 import b32decode, b32encode
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from krowlspider.frontier.due_pages import leave_unplanned
from krowlspider.frontier.fetched import ETAG_MAX, MODIFIED_MAX
from krowlspider.frontier.pages.planner import demand_of, lessen_demand
from krowlspider.frontier.pages.row import COUNT_MAX, PageRow, read_row
from krowlspider.frontier.pages.rows import rows_in
from krowlspider.frontier.pages.seed_names import seed_reader
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store.store import Store

_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
# What a 4-byte float may have.
_Positive = Annotated[float, Meta(gt=0, le=1e30)]
_Digest = Annotated[str, Meta(pattern="^(sha1:[A-Z2-7]{32}|sha256:[0-9a-f]{64})$")]

_TextDigest = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class PageLine(Struct, kw_only=True, forbid_unknown_fields=True):
    """A row as JSON. Dates are in UTC; octets of ``etag`` and ``last_modified`` are characters.

    ``warc_date`` is the WARC-Date of the record that has the payload. ``warc_url`` is its URL if it
    is another one. ``text_digest`` is that of the main text. ``estimate``: changes seen, and in how
    many seconds. ``seed``: the URL of the seed that it came from, which may be itself; missing
    where that is not known.
    """

    url: str
    seed: str | UnsetType = UNSET
    status: Annotated[int, Meta(ge=0, le=999)]
    depth: Annotated[int, Meta(ge=0, le=0xFFFF)] = 0
    first_fetch: datetime
    last_fetch: datetime
    last_change: datetime
    fetches: _Count
    not_modified: _Count
    changes: _Count
    etag: Annotated[str, Meta(max_length=ETAG_MAX)] | UnsetType = UNSET
    last_modified: Annotated[str, Meta(max_length=MODIFIED_MAX)] | UnsetType = UNSET
    payload_digest: _Digest | UnsetType = UNSET
    text_digest: _TextDigest | UnsetType = UNSET
    warc_date: datetime | UnsetType = UNSET
    warc_url: str | UnsetType = UNSET
    estimate: tuple[_Positive, _Positive] | UnsetType = UNSET

    @classmethod
    def of_row(cls, row: PageRow, seed: str) -> Self:
        return cls(
            url=row.url,
            seed=seed or UNSET,
            status=row.status,
            depth=row.depth,
            first_fetch=_date(row.first),
            last_fetch=_date(row.last),
            last_change=_date(row.changed),
            fetches=row.fetches,
            not_modified=row.unmodified,
            changes=row.changes,
            etag=row.etag.decode("latin-1") or UNSET,
            last_modified=row.modified.decode("latin-1") or UNSET,
            payload_digest=_labelled(row.payload) if row.payload else UNSET,
            text_digest=row.text.hex() or UNSET,
            warc_date=_date(row.stored) if row.stored else UNSET,
            warc_url=row.elsewhere or UNSET,
            estimate=row.estimate or UNSET,
        )

    def row(self, url_max: int, key_of_seed: Callable[[str], bytes]) -> PageRow:
        """Return the row, which names no record: that is in the archive of another crawl, and a
        revisit here must not refer to it. ``key_of_seed`` returns the key of a seed.

        :raises ValueError: a value cannot be that of a row; the message says why
        """
        seed = self.seed or self.url
        for url in (self.url, self.warc_url or self.url, seed):
            if normalise(url) != url or len(url) > url_max:
                raise ValueError(f"not a normalised URL of {url_max} characters: {url[:80]!r}")
        return PageRow(
            self.url,
            self.status,
            int(_seconds(self.first_fetch)),
            _seconds(self.last_fetch),
            self.depth,
            int(_seconds(self.last_change)),
            0.0,
            "",
            (self.etag or "").encode("latin-1"),
            (self.last_modified or "").encode("latin-1"),
            _raw(self.payload_digest) if self.payload_digest else b"",
            self.fetches,
            self.not_modified,
            self.changes,
            self.estimate or None,
            text=bytes.fromhex(self.text_digest or ""),
            seed=b"" if seed == self.url else key_of_seed(seed),
        )


def page_lines(
    store: Store, host: str | None = None, status: int | None = None, since: float = 0.0
) -> Iterator[str | None]:
    """Yield a line for each row of a page, by host; None for one of another version.

    ``host``, ``status`` and ``since``: only those of a host, with a status, and fetched last at a
    time in seconds since the epoch or after it.
    """
    seed_of = seed_reader(store)
    for row in rows_in(store, host):
        if row is None:
            yield None
        elif row.listing:
            # A sitemap or a feed is no page.
            continue
        elif (status is None or row.status == status) and row.last >= since:
            yield msgspec.json.encode(PageLine.of_row(row, seed_of(row))).decode()


def is_page_line(line: bytes) -> bool:
    """Return whether a line is one of `page_lines`, and not of an entry."""
    return b'"first_fetch"' in line


def page_in(line: bytes, url_max: int, key_of_seed: Callable[[str], bytes]) -> PageRow:
    """Return the row in a line of `page_lines`; ``key_of_seed`` returns the key of a seed.

    :raises ValueError: it is none; the message says why
    """
    return msgspec.json.decode(line, type=PageLine).row(url_max, key_of_seed)


def take_rows(frontier: Frontier, rows: Iterable[PageRow]) -> int:
    """Put rows into a frontier that keeps rows, with the seen marks of their URLs, in one batch.
    Return how many.

    A URL that is known and has no row is queued, or was dropped: it is left out, so that it is not
    asked twice. Each host gets a record, so that it can be handed over.
    """
    pages = frontier.pages
    assert pages is not None
    cache, batch = frontier.schedule.cache, frontier.store.batch()
    cache.evict()
    by_host: dict[str, list[PageRow]] = {}
    for row in rows:
        by_host.setdefault(host_of(row.url), []).append(row)
    hosts = [cache.get(name) for name in by_host]
    taken = 0
    gone: defaultdict[str, float] = defaultdict(float)
    for name, some in by_host.items():
        keys = [pages.key(row.url) for row in some]
        known = frontier.seen.marked_among(name, map(pages.identity, keys))
        for key, row in zip(keys, some, strict=True):
            identity = pages.identity(key)
            if identity in known:
                if (found := frontier.store.get(key)) is None:
                    continue
                gone[name] += demand_of(read_row(found, name))
            taken += 1
            frontier.seen.restore(name, identity)
            batch.put(key, row.encode(name))
    frontier.seen.end_batch(batch)
    cache.record(hosts, batch)
    lessen_demand(frontier.store, gone, batch)
    batch.write()
    leave_unplanned(frontier.store)
    return taken


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _seconds(date: datetime) -> float:
    """:raises ValueError: it is not from 1970 to 2106"""
    seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < 2**32:
        raise ValueError(f"a date outside 1970 to 2106: {date}")
    return seconds


def _labelled(raw: bytes) -> str:
    """Return a digest as in WARC fields."""
    return f"sha1:{b32encode(raw).decode()}" if len(raw) == 20 else f"sha256:{raw.hex()}"


def _raw(labelled: str) -> bytes:
    name, _, digits = labelled.partition(":")
    return b32decode(digits) if name == "sha1" else bytes.fromhex(digits)
