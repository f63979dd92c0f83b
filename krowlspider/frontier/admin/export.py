"""Export URLs and rows of pages as JSON lines, for URLFrontier too, and import such lines.

For URLFrontier, lines are as its client's PutURLs reads them: a line is the message URLItem of
https://github.com/crawler-commons/url-frontier in the JSON mapping of Protocol Buffers. Names of
metadata are those of StormCrawler.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from krowlspider.frontier.due_pages import leave_unplanned
from krowlspider.frontier.entry import ETAG_MAX, MODIFIED_MAX, Entry, EntryLine, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.pages.planner import demand_of, lessen_demand
from krowlspider.frontier.pages.row import COUNT_MAX, PageRow, read_row
from krowlspider.frontier.pages.rows import rows_in
from krowlspider.frontier.pages.seed_names import seed_reader, words_reader
from krowlspider.frontier.stopped import dropped_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import host_in, split_queue_key
from krowlspider.frontier.store.store import Store, all_entries, delete
from krowlspider.recrawl.gone import Absence, PageState
from krowlspider.urls.canonical import host_of, normalise
from krowlspider.urls.page.headers import PRICE_MAX
from krowlspider.urls.seeds import TAG_MAX, Seed, SeedWords, parse_seed, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    from krowlspider.frontier.frontier import Frontier

    class GiveWords(Protocol):
        def __call__(self, seed: str, words: SeedWords, /, *, is_tag: bool) -> object: ...


_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
# A row keeps the nearest value that it can hold.
_Positive = Annotated[float, Meta(gt=0, le=1e30)]
_Digest = Annotated[str, Meta(pattern="^(sha1:[A-Z2-7]{32}|sha256:[0-9a-f]{64})$")]

_TextDigest = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class AbsenceLine(Struct, kw_only=True, forbid_unknown_fields=True):
    """Answers in a row that say that a page is missing or moved, and the time of the first."""

    state: Literal["missing", "moved"]
    answers: Annotated[int, Meta(ge=1, le=0xFF)]
    since: datetime

    @classmethod
    def of(cls, absence: Absence) -> Self:
        state: Literal["missing", "moved"] = (
            "missing" if absence.state is PageState.MISSING else "moved"
        )
        return cls(state=state, answers=absence.answers, since=_date(absence.since))

    @property
    def absence(self) -> Absence:
        return Absence(PageState[self.state.upper()], self.answers, _seconds(self.since))


class PageLine(Struct, kw_only=True, forbid_unknown_fields=True):
    """A row as JSON. Dates are in UTC; octets of ``etag`` and ``last_modified`` are characters.

    ``warc_date`` is the WARC-Date of the record that has the payload. ``warc_url`` is its URL if it
    is another one. ``text_digest`` is that of the main text. ``estimate``: changes seen, and in how
    many seconds. ``next_fetch``: when the schedule fetches it again, by the job clock; missing
    without a plan, and not imported. ``seed``: the URL of the seed that it came from, which may be
    itself; missing where that is not known. ``tag``: that of this seed; missing without one.
    ``price``: what the page asks for, as the site wrote it; missing without one. ``absence``:
    missing for a page that is there.
    """

    url: str
    seed: str | UnsetType = UNSET
    tag: Annotated[str, Meta(max_length=TAG_MAX)] | UnsetType = UNSET
    status: Annotated[int, Meta(ge=0, le=999)]
    depth: Annotated[int, Meta(ge=0, le=0xFFFF)] = 0
    first_fetch: datetime
    last_fetch: datetime
    last_change: datetime | UnsetType = UNSET
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
    next_fetch: datetime | UnsetType = UNSET
    price: Annotated[str, Meta(max_length=PRICE_MAX, pattern="^[ -~]*$")] | UnsetType = UNSET
    absence: AbsenceLine | UnsetType = UNSET

    @classmethod
    def of_row(cls, row: PageRow, seed: str, tag: str = "") -> Self:
        return cls(
            url=row.url,
            seed=seed or UNSET,
            tag=tag or UNSET,
            status=row.status,
            depth=row.depth,
            first_fetch=_date(row.first),
            last_fetch=_date(row.last),
            last_change=_date(row.changed) if row.changed else UNSET,
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
            next_fetch=_date(row.next_fetch) if row.is_planned else UNSET,
            price=row.price or UNSET,
            absence=AbsenceLine.of(row.absence) if row.absence.answers else UNSET,
        )

    @property
    def words(self) -> SeedWords | None:
        """Return what is known of the words of its seed."""
        return words_of({"tag": self.tag}) if self.tag else None

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
            int(_seconds(self.last_change)) if self.last_change else 0,
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
            price=self.price or "",
            absence=self.absence.absence if self.absence else Absence(),
        )


def page_lines(
    store: Store, host: str | None = None, status: int | None = None, since: float = 0.0
) -> Iterator[str | None]:
    """Yield a line for each row of a page, by host; None for one that cannot be read.

    ``host``, ``status`` and ``since``: only those of a host, with a status, and fetched last at a
    time in seconds since the epoch or after it.
    """
    seed_of, words = seed_reader(store), words_reader(store)
    for row in rows_in(store, host):
        if row is None:
            yield None
        elif row.listing:
            # A sitemap or a feed is no page.
            continue
        elif (status is None or row.status == status) and row.last >= since:
            said = None if words is None else words(row)
            line = PageLine.of_row(row, seed_of(row), "" if said is None else said.tag)
            yield msgspec.json.encode(line).decode()


def is_page_line(line: bytes) -> bool:
    """Return whether a line is one of `page_lines`, and not of an entry."""
    return b'"first_fetch"' in line


def page_in(
    line: bytes,
    url_max: int,
    key_of_seed: Callable[[str], bytes],
    give_words: GiveWords = lambda *_, is_tag: None,
) -> PageRow:
    """Return the row in a line of `page_lines`; the functions are as in `parse_line`.

    :raises ValueError: it is none; the message says why
    """
    found = msgspec.json.decode(line, type=PageLine)
    words, row = found.words, found.row(url_max, key_of_seed)
    if words is not None:
        give_words(found.seed or row.url, words, is_tag=True)
    return row


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
                gone[name] += demand_of(read_row(found, name, identity))
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


# Lines that become one batch: about 1 MB.
_BATCH = 1000
# The beginning of a file of a spreadsheet, and what may stand before an object.
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n" + _BOM
# The beginning of a line of `url_items`.
_OF_URLFRONTIER = re.compile(rb'\s*{\s*"(discovered|known)"')


def export_lines(store: Store) -> Iterator[str]:
    """Yield a line for each queued entry, then for each poison one, by host."""
    poison = store.items(schema.POISON)
    seed_of, words = seed_reader(store), words_reader(store)
    for state, found in (("queued", all_entries(store)), ("poison", poison)):
        for key, value in found:
            priority = split_queue_key(key)[0]
            entry = entry_of(key, value)
            line = EntryLine.of_entry(entry, priority, state)
            if entry.seed:
                line.seed = seed_of(entry) or UNSET
            if words is not None and (said := words(entry)) is not None:
                line.words = msgspec.to_builtins(said)
            yield msgspec.json.encode(line).decode()


@dataclass(slots=True)
class Imported:
    """What became of the lines of an import; ``refused`` is by what refused them, ``sent`` those of
    other nodes, ``pages`` the rows of pages."""

    imported: int
    known: int
    refused: dict[str, int]
    bad: int
    sent: int = 0
    pages: int = 0

    @property
    def useless(self) -> bool:
        """Return whether there were lines, and all were bad."""
        good = self.imported or self.known or self.refused or self.sent or self.pages
        return bool(self.bad and not good)


def line_of(line: bytes, url_max: int) -> EntryLine | Seed | None:
    """Return what a line names: an entry in JSON, as `export_lines` writes it, or a seed as in a
    file of seeds. None for a blank line and a comment.

    :raises ValueError: the line is neither; the message says why
    """
    if is_page_line(line):
        raise ValueError("the row of a page: import it while no crawl runs")
    if not line.lstrip(_BLANKS).startswith((b"{", b'"')):
        seed = parse_seed(line)
        if seed is not None and len(seed.url) > url_max:
            raise ValueError(f"a URL of more than {url_max} characters")
        return seed
    try:
        return msgspec.json.decode(line.removeprefix(_BOM), type=EntryLine)
    except msgspec.ValidationError as error:
        if _OF_URLFRONTIER.match(line):
            raise ValueError(
                "a line for URLFrontier: export without --format urlfrontier, and import that"
            ) from error
        raise
    except msgspec.DecodeError as error:
        raise ValueError('not JSON: a line is {"url": "https://..."}, or a seed') from error


def parse_line(
    line: bytes,
    identify: Callable[[Entry], bytes | None],
    *,
    url_max: int,
    key_of_seed: Callable[[str], bytes] = lambda _: b"",
    give_words: GiveWords = lambda *_, is_tag: None,
) -> Candidate | PageRow | None:
    """Return the candidate of a line as `line_of` reads it, or the row of a page, as `page_lines`
    writes it; None for a blank line and a comment.

    ``identify`` returns the identity of an entry, None for one that is queued without, and raises
    ValueError for a request that cannot be imported. ``key_of_seed`` returns the key of a seed.
    ``give_words`` is called with the URL of a seed and its words, of which ``is_tag`` only the tag
    is known.

    :raises ValueError: the line cannot be imported; the message says why
    """
    if is_page_line(line):
        return page_in(line, url_max, key_of_seed, give_words)
    found = line_of(line, url_max)
    if found is None:
        return None
    if isinstance(found, Seed):
        entry, priority = Entry(found.url, bare=found.bare), 0
        seed, words = found.url, found.words
    else:
        entry, priority = found.entry(url_max, key_of_seed), found.priority
        seed, words = found.seed or entry.url, said_in(found)
    candidate = Candidate(host_of(entry.url), identify(entry), entry, priority)
    if words is not None:
        give_words(seed, words, is_tag=False)
    return candidate


def said_in(line: EntryLine) -> SeedWords | None:
    """Return the words of a line's seed.

    :raises ValueError: they are none
    """
    return None if line.words is UNSET else words_of(line.words)


def import_lines(
    frontier: Frontier,
    store: Store,
    lines: Iterable[bytes],
    parse: Callable[[bytes], Candidate | PageRow | None],
    complain: Callable[[int, str], None],
) -> Imported:
    """Queue the new URLs in lines, without the caps on queues. Take in rows of pages, whose URLs
    become known.

    ``complain`` is called with the number and the mistake of each bad line. A known URL stays as it
    is, unless it is poison: then it goes back to the queue without strikes.
    """
    before = frontier.counters.copy()
    bad = good = rows = taken = 0
    # Few: each of them has cost three processes.
    poison = {entry_of(key, value).url: key for key, value in store.items(schema.POISON)}
    batch: list[Candidate] = []
    pages: list[PageRow] = []
    for number, line in enumerate(lines, 1):
        try:
            candidate = parse(line)
        except ValueError as error:
            complain(number, str(error))
            bad += 1
            continue
        if candidate is None:
            continue
        if isinstance(candidate, PageRow):
            pages.append(candidate)
            rows += 1
            if len(pages) == _BATCH:
                taken += take_rows(frontier, pages)
                pages = []
            continue
        good += 1
        if (key := poison.pop(candidate.entry.url, None)) is not None:
            candidate.key = None
            # Queued first: a death in between leaves both, never none.
            if frontier.add([candidate], is_exempt=True):
                delete(store, [key])
            continue
        batch.append(candidate)
        if len(batch) == _BATCH:
            frontier.add(batch, is_exempt=True)
            batch = []
    frontier.add(batch, is_exempt=True)
    taken += take_rows(frontier, pages)
    changes = frontier.counters - before
    commit = frontier.begin_commit()
    commit.write()
    frontier.end_commit(commit)
    refused = dropped_in(changes)
    # The others are known, or stand twice.
    known = good - changes["queued"] - sum(refused.values()) + rows - taken
    return Imported(changes["queued"], known, refused, bad, pages=taken)


# The name of URLFrontier for a crawl without a name.
_CRAWL = "DEFAULT"
_PORT = re.compile(r":\d+$")


def url_items(store: Store, now: float) -> Iterator[str | None]:
    """Yield a line for each queued entry, then for each poison one; None for a whole request.

    ``now`` is the time in epoch seconds. A retry that is not due is known, and refetchable from its
    due time on. A poison page is known and never refetchable.
    """
    for key, value in all_entries(store):
        entry = entry_of(key, value)
        later = entry.due if entry.due > now else 0
        yield _line(entry, host_in(key), is_known=later > 0, later=later)
    for key, value in store.items(schema.POISON):
        yield _line(entry_of(key, value), host_in(key), is_known=True)


def _line(entry: Entry, host: str, *, is_known: bool, later: float = 0) -> str | None:
    if not entry.is_plain:
        return None
    # Without a port: that is how URLFrontier and StormCrawler name the queue of a URL.
    info = {
        "url": entry.url,
        "key": _PORT.sub("", host),
        "metadata": {name: {"values": values} for name, values in _metadata(entry).items()},
        "crawlID": _CRAWL,
    }
    item: dict[str, Any] = {"info": info}
    if later:
        # Rounded up, because the date has whole seconds.
        item["refetchable_from_date"] = int(later) + 1
    return msgspec.json.encode({"known" if is_known else "discovered": item}).decode()


def _metadata(entry: Entry) -> dict[str, list[str]]:
    found = {"depth": [str(entry.depth)]}
    if path := [*([entry.via] if entry.via else []), *entry.chain]:
        found["url.path"] = path
    if errors := entry.retries + entry.throttling:
        found["fetch.error.count"] = [str(errors)]
    return found
