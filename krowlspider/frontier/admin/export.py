"""URLs out of a frontier and in again: one JSON object a line.

``url``, ``depth``, ``priority``, ``redirects``, ``retries``, ``throttling`` and ``bare`` are those of the entry,
``chain`` are the URLs that redirected to it, ``via`` is the URL that named it and ``hop`` how, and ``request`` is the whole request in base64, where the entry has
them; ``state`` is ``queued`` or ``poison``. Only ``url`` must be there to come in, and nothing else may: a name that
is misspelt would be lost without a word.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import all_entries
from krowlspider.frontier.store.schema import split_queue_key
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.store.store import Store

_STATES = ("queued", "poison")
# With the most that an entry holds of each.
_COUNTS = {"depth": 0xFFFF, "redirects": 0xFF, "retries": 0xFF, "throttling": 0xFF}
_KEYS = {"url", "priority", "bare", "chain", "via", "hop", "request", "state", *_COUNTS}
_HOPS = {"", "L", "M"}
# URLs of the longest chain that is taken: no crawl makes a longer one.
_CHAIN_MAX = 0xFF
# Lines that become one batch: about 1 MB.
_BATCH = 1000
# Batches between two commits.
_COMMIT_EVERY = 100


class BadLine(ValueError):
    """A line that cannot be imported; the message says why."""


@dataclass(slots=True)
class Imported:
    """What became of the lines of an import; ``refused`` is by the cap that refused."""

    imported: int = 0
    known: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bad: int = 0

    @property
    def useless(self) -> bool:
        """Whether there were lines, and every one was bad."""
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


def export_lines(store: Store) -> Iterator[str]:
    """A line for each queued URL, then for each poison one, by host."""
    poison = store.items(schema.POISON)
    for state, found in (("queued", all_entries(store)), ("poison", poison)):
        for key, value in found:
            yield json.dumps(as_line(split_queue_key(key)[1], entry_of(key, value), state))


def as_line(priority: int, entry: Entry, state: str) -> dict[str, object]:
    """What is said of an entry."""
    line: dict[str, object] = {"url": entry.url, "priority": priority, "bare": entry.bare}
    line |= {name: getattr(entry, name) for name in _COUNTS}
    if entry.chain:
        line["chain"] = entry.chain
    if entry.via:
        line |= {"via": entry.via, "hop": entry.hop}
    if entry.request:
        line["request"] = b64encode(entry.request).decode()
    return {**line, "state": state}


def parse_line(
    line: bytes,
    identify: Callable[[Entry], bytes | None],
    *,
    url_max: int,
) -> Candidate | None:
    """The candidate in a line, None for a blank one. ``identify`` gives the identity of an entry, None for one
    that is queued without, and raises ValueError for a request that cannot be taken.

    :raises BadLine: it is none
    """
    if not line.strip():
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine('not JSON: a line is {"url": "https://..."}') from error
    if not isinstance(said, dict):
        raise BadLine("not a JSON object with a url")
    priority, entry = read_entry(said, url_max=url_max)
    try:
        return Candidate(host_of(entry.url), identify(entry), entry, priority)
    except ValueError as error:
        raise BadLine(str(error)) from error


def read_entry(said: dict[str, Any], *, url_max: int) -> tuple[int, Entry]:
    """Priority and entry of a line, by its keys.

    :raises BadLine: it is none
    """
    if not isinstance(said.get("url"), str):
        raise BadLine("not a JSON object with a url")
    if "distress" in said:
        # The name of this count before version 0.2.0.
        said.setdefault("throttling", said.pop("distress"))
    _check_keys(said)
    url = normalise(said["url"])
    if url is None:
        raise BadLine(f"not an http or https URL, or one with a user name: {said['url'][:80]!r}")
    if len(url) > url_max:
        raise BadLine(f"a URL of more than {url_max} characters")
    counts = {name: whole(said, name, 0, most) for name, most in _COUNTS.items()}
    priority = whole(said, "priority", -schema.PRIORITY_LIMIT, schema.PRIORITY_LIMIT)
    bare = said.get("bare", False)
    if type(bare) is not bool:
        raise BadLine("bare is neither true nor false")
    entry = Entry(url, bare=bare, request=_request(said), chain=_chain(said, url_max))
    for name, count in counts.items():
        setattr(entry, name, count)
    entry.via, entry.hop = _via(said, url_max)
    return priority, entry


def _check_keys(said: dict[str, Any]) -> None:
    if unknown := sorted(said.keys() - _KEYS):
        raise BadLine(f"unknown key {unknown[0][:80]!r}: there are {', '.join(sorted(_KEYS))}")
    if said.get("state", "queued") not in _STATES:
        raise BadLine("state is neither queued nor poison")


def whole(said: dict[str, Any], name: str, least: int, most: int) -> int:
    """A whole number of a line, 0 where there is none.

    :raises BadLine: it is another thing, or out of range
    """
    value = said.get(name, 0)
    if type(value) is not int or not least <= value <= most:
        raise BadLine(f"{name} is not a whole number from {least} to {most}")
    return value


def _chain(said: dict[str, Any], url_max: int) -> tuple[str, ...]:
    value = said.get("chain", [])
    if not isinstance(value, list) or len(value) > _CHAIN_MAX:
        raise BadLine(f"chain is not a list of {_CHAIN_MAX} URLs at most")
    chain = [normalise(url) if isinstance(url, str) else None for url in value]
    if any(url is None or len(url) > url_max for url in chain):
        raise BadLine(
            f"chain holds something else than http and https URLs of {url_max} characters at most"
        )
    return tuple(url for url in chain if url)


def _via(said: dict[str, Any], url_max: int) -> tuple[str, str]:
    via, hop = said.get("via", ""), said.get("hop", "")
    if not isinstance(hop, str) or hop not in _HOPS:
        raise BadLine("hop is neither L (a link) nor M (a sitemap)")
    if via == "":
        return "", ""
    url = normalise(via) if isinstance(via, str) else None
    if url is None or len(url) > url_max:
        raise BadLine(f"via is not an http or https URL of {url_max} characters at most")
    return url, hop


def _request(said: dict[str, Any]) -> bytes:
    value = said.get("request", "")
    if not isinstance(value, str):
        raise BadLine("request is not a text")
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise BadLine("request is not base64") from error


def import_lines(
    frontier: Frontier,
    store: Store,
    lines: Iterable[bytes],
    parse: Callable[[bytes], Candidate | None],
    complain: Callable[[int, str], None],
) -> Imported:
    """Queue what is new in lines, in batches, as if it had been discovered; ``complain`` is told the number and
    the mistake of each bad one.

    A URL this frontier knows stays as it is, except one that lies in its poison: asked for by hand, it goes back
    to the queue with no strikes.
    """
    result = Imported()
    # Small: each of them has cost three processes.
    poison = {entry_of(key, value).url: key for key, value in store.items(schema.POISON)}
    batch: list[Candidate] = []
    for number, line in enumerate(lines, 1):
        try:
            candidate = parse(line)
        except BadLine as error:
            complain(number, str(error))
            result.bad += 1
            continue
        if candidate is None:
            continue
        if (key := poison.pop(candidate.entry.url, None)) is not None:
            _free(frontier, store, key, candidate, result)
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


def _free(
    frontier: Frontier, store: Store, key: bytes, candidate: Candidate, result: Imported
) -> None:
    """Put a poison URL back. Queued first: dying in between leaves it in both places, and never in none."""
    candidate.key = None
    if _add(frontier, [candidate], result):
        batch = store.batch()
        batch.delete(key)
        batch.write()


def _commit(frontier: Frontier) -> None:
    commit = frontier.begin_commit()
    commit.write()
    frontier.end_commit(commit)
