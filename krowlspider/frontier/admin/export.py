"""Export a frontier's URLs, and import URLs: one JSON object a line, as `EntryLine`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from krowlspider.frontier.entry import EntryLine, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.stopped import dropped_in
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import all_entries
from krowlspider.frontier.store.schema import split_queue_key
from krowlspider.frontier.store.store import delete
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store.store import Store

# Lines that become one batch: about 1 MB.
_BATCH = 1000
# The beginning of a line of `url_items`.
_OF_URLFRONTIER = re.compile(rb'\s*{\s*"(discovered|known)"')


def export_lines(store: Store) -> Iterator[str]:
    """Yield a line for each queued entry, then for each poison one, by host."""
    poison = store.items(schema.POISON)
    for state, found in (("queued", all_entries(store)), ("poison", poison)):
        for key, value in found:
            priority = split_queue_key(key)[0]
            line = EntryLine.of_entry(entry_of(key, value), priority, state)
            yield msgspec.json.encode(line).decode()


@dataclass(slots=True)
class Imported:
    """What became of the lines of an import; ``refused`` is by the limit that refused them."""

    imported: int
    known: int
    refused: dict[str, int]
    bad: int

    @property
    def useless(self) -> bool:
        """Return whether there were lines, and all were bad."""
        return bool(self.bad and not (self.imported or self.known or self.refused))


def parse_line(
    line: bytes, identify: Callable[[Entry], bytes | None], *, url_max: int
) -> Candidate | None:
    """Return the candidate of a line; None for a blank line.

    ``identify`` returns the identity of an entry, None for one that is queued without, and raises
    ValueError for a request that cannot be imported.

    :raises ValueError: the line cannot be imported; the message says why
    """
    if not line.strip():
        return None
    try:
        found = msgspec.json.decode(line, type=EntryLine)
    except msgspec.ValidationError as error:
        if _OF_URLFRONTIER.match(line):
            raise ValueError(
                "a line for URLFrontier: export without --format urlfrontier, and import that"
            ) from error
        raise
    except msgspec.DecodeError as error:
        raise ValueError('not JSON: a line is {"url": "https://..."}') from error
    entry = found.entry(url_max)
    return Candidate(host_of(entry.url), identify(entry), entry, found.priority)


def import_lines(
    frontier: Frontier,
    store: Store,
    lines: Iterable[bytes],
    parse: Callable[[bytes], Candidate | None],
    complain: Callable[[int, str], None],
) -> Imported:
    """Queue the new URLs in lines, without the caps on queues.

    ``complain`` is called with the number and the mistake of each bad line. A known URL stays as it
    is, unless it is poison: then it goes back to the queue without strikes.
    """
    before = frontier.counters.copy()
    bad = 0
    # Few: each of them has cost three processes.
    poison = {entry_of(key, value).url: key for key, value in store.items(schema.POISON)}
    batch: list[Candidate] = []
    for number, line in enumerate(lines, 1):
        try:
            candidate = parse(line)
        except ValueError as error:
            complain(number, str(error))
            bad += 1
            continue
        if candidate is None:
            continue
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
    changes = frontier.counters - before
    commit = frontier.begin_commit()
    commit.write()
    frontier.end_commit(commit)
    return Imported(changes["queued"], changes["known"], dropped_in(changes), bad)
