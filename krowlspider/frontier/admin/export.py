"""Export a frontier's URLs, and import URLs: one JSON object a line, as `EntryLine`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.entry_line import EntryLine
from krowlspider.frontier.frontier import Candidate
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import all_entries
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store.store import Store

# Lines that become one batch: about 1 MB.
_BATCH = 1000
# Batches between two commits.
_COMMIT_EVERY = 100


def export_lines(store: Store) -> Iterator[str]:
    """Yield a line for each queued entry, then for each poison one, by host."""
    poison = store.items(schema.POISON)
    for state, found in (("queued", all_entries(store)), ("poison", poison)):
        for key, value in found:
            yield msgspec.json.encode(EntryLine.of(key, value, state)).decode()


@dataclass(slots=True)
class Imported:
    """What became of the lines of an import; ``refused`` is by the limit that refused them."""

    imported: int = 0
    known: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bad: int = 0

    @property
    def useless(self) -> bool:
        """Return whether there were lines, and all were bad."""
        return bool(self.bad and not (self.imported or self.known or self.refused))

    def as_dict(self) -> dict[str, object]:
        return {
            "imported": self.imported,
            "known": self.known,
            "refused": dict(self.refused),
            "bad": self.bad,
        }

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.refused.items())
        refused = f"refused {self.refused.total()}" + (f" ({reasons})" if reasons else "")
        return f"imported {self.imported}, known {self.known}, {refused}, bad {self.bad}"


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
        said = msgspec.json.decode(line, type=EntryLine)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise ValueError('not JSON: a line is {"url": "https://..."}') from error
    entry = said.entry(url_max)
    return Candidate(host_of(entry.url), identify(entry), entry, said.priority)


def import_lines(
    frontier: Frontier,
    store: Store,
    lines: Iterable[bytes],
    parse: Callable[[bytes], Candidate | None],
    complain: Callable[[int, str], None],
) -> Imported:
    """Queue the new URLs in lines as if they had been discovered.

    ``complain`` is called with the number and the mistake of each bad line. A known URL stays as it
    is, unless it is poison: then it goes back to the queue without strikes.
    """
    result = Imported()
    # Few: each of them has cost three processes.
    poison = {entry_of(key, value).url: key for key, value in store.items(schema.POISON)}
    batch: list[Candidate] = []
    for number, line in enumerate(lines, 1):
        try:
            candidate = parse(line)
        except ValueError as error:
            complain(number, str(error))
            result.bad += 1
            continue
        if candidate is None:
            continue
        if (key := poison.pop(candidate.entry.url, None)) is not None:
            _requeue(frontier, store, key, candidate, result)
            continue
        batch.append(candidate)
        if len(batch) == _BATCH:
            _add(frontier, batch, result)
            batch = []
            if number % (_BATCH * _COMMIT_EVERY) < _BATCH:
                _commit(frontier)
    _add(frontier, batch, result)
    _commit(frontier)
    return result


def _add(frontier: Frontier, batch: list[Candidate], result: Imported) -> int:
    before = frontier.counters.copy()
    added = frontier.add(batch)
    result.imported += added
    for name, count in (frontier.counters - before).items():
        if name == "known":
            result.known += count
        elif name.startswith("dropped/"):
            result.refused[name.removeprefix("dropped/")] += count
    return added


def _requeue(
    frontier: Frontier, store: Store, key: bytes, candidate: Candidate, result: Imported
) -> None:
    """Queue a poison URL, then remove the poison: a death in between leaves both, never none."""
    candidate.key = None
    if _add(frontier, [candidate], result):
        batch = store.batch()
        batch.delete(key)
        batch.write()


def _commit(frontier: Frontier) -> None:
    commit = frontier.begin_commit()
    commit.write()
    frontier.end_commit(commit)
