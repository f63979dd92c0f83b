"""Export a frontier's URLs: one JSON object a line, as `EntryLine`. Import such lines, or seeds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from krowlspider.frontier.admin.page_lines import is_page_line, page_in, take_rows
from krowlspider.frontier.entry import Entry, EntryLine, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.pages.row import PageRow
from krowlspider.frontier.pages.seed_names import seed_reader
from krowlspider.frontier.stopped import dropped_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import all_entries
from krowlspider.frontier.store.schema import split_queue_key
from krowlspider.frontier.store.store import delete
from krowlspider.urls.host import host_of
from krowlspider.urls.seeds import Seed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store.store import Store

# Lines that become one batch: about 1 MB.
_BATCH = 1000
# The beginning of a file of a spreadsheet, and what may stand before an object.
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n" + _BOM
# The beginning of a line of `url_items`.
_OF_URLFRONTIER = re.compile(rb'\s*{\s*"(discovered|known)"')


def export_lines(store: Store) -> Iterator[str]:
    """Yield a line for each queued entry, then for each poison one, by host."""
    poison, seed_of = store.items(schema.POISON), seed_reader(store)
    for state, found in (("queued", all_entries(store)), ("poison", poison)):
        for key, value in found:
            priority = split_queue_key(key)[0]
            entry = entry_of(key, value)
            line = EntryLine.of_entry(entry, priority, state)
            if entry.seed:
                line.seed = seed_of(entry) or UNSET
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
) -> Candidate | PageRow | None:
    """Return the candidate of a line as `line_of` reads it, or the row of a page, as `page_lines`
    writes it; None for a blank line and a comment.

    ``identify`` returns the identity of an entry, None for one that is queued without, and raises
    ValueError for a request that cannot be imported. ``key_of_seed`` returns the key of a seed.

    :raises ValueError: the line cannot be imported; the message says why
    """
    if is_page_line(line):
        return page_in(line, url_max, key_of_seed)
    found = line_of(line, url_max)
    if found is None:
        return None
    if isinstance(found, Seed):
        entry, priority = Entry(found.url, bare=found.bare), 0
    else:
        entry, priority = found.entry(url_max, key_of_seed), found.priority
    return Candidate(host_of(entry.url), identify(entry), entry, priority)


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
