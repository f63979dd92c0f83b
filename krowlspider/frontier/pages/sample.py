"""A sample of the pages of a store, as the forecast needs it: some pages each of some hosts.

Places in the store are chosen at equal distances. A host is hit as often as it has pages there, so
it stands for as many hosts as its number of pages lets expect. A small store is walked over by its
keys; of a large one, LevelDB says at which bytes a key is.
"""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.pages.planner import estimate_of
from krowlspider.frontier.pages.row import read_row
from krowlspider.frontier.stopped import read_host
from krowlspider.frontier.store.schema import KEY_SIZE, PAGES, after_all, host_of_page, page_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.frontier.pages.row import PageRow
    from krowlspider.frontier.store.store import Store
    from krowlspider.recrawl.estimate import Estimate

# Places, and rows that are read at each, at some places of a host: the forecast is some percent off
# by them, and takes about a second.
PLACES = 400
_ROWS = 5
_HITS = 40
# Bytes of a store whose keys are all read: half a million pages.
_SMALL = 64_000_000
# Bytes within which a place is found, and rows behind it by which the size of a row is known.
_NEAR = 4096
_MEASURED = 100
# Pages of a host that are counted one by one.
_COUNTED = 1000
# Bytes of a key by which places are told apart.
_WIDTH = 64


class Sampled(NamedTuple):
    """A host of a sample, which stands for ``hosts`` like it. It has ``pages``, which come back by
    the schedule; ``estimates`` are of some of them. ``delay`` is in seconds."""

    hosts: float
    pages: float
    estimates: list[Estimate]
    delay: float


def sample(
    store: Store, delay: Callable[[Host], float], places: int = PLACES, small: int = _SMALL
) -> list[Sampled]:
    """Return a sample of the hosts with pages, by about so many places.

    ``delay`` returns the seconds between two requests to a host. All keys of a store are read whose
    rows have less than ``small`` bytes. Pages that are missing or have moved are left out, and
    so are sitemaps and feeds. Of a large store, what the last commits have written may be left out
    too.
    """
    size = store.size(PAGES, after_all(PAGES))
    keys, total, per_row = _keys(store, places) if size < small else _places(store, places, size)
    hits: dict[str, list[bytes]] = {}
    for key in keys:
        hits.setdefault(host_of_page(key), []).append(key)
    found = []
    for name, some in hits.items():
        rows = _rows_at(store, name, some)
        known = [row for row in rows if row and row.absence.wait is None and not row.listing]
        estimates = [estimate_of(row) for row in known]
        if estimates:
            # They may be removed while this reads.
            pages = max(_count(store, name, per_row), len(rows))
            hosts = len(some) * total / len(keys) / pages
            host = read_host(store, name) or Host(name)
            part = len(estimates) / len(rows)
            found.append(Sampled(hosts, pages * part, estimates, delay(host)))
    return found


def _keys(store: Store, places: int) -> tuple[list[bytes], float, float]:
    """Return keys of rows at equal distances, and the number of all rows."""
    keys: list[bytes] = []
    step, number = 1, 0
    for number, key in enumerate(store.keys(PAGES), 1):
        if number % step == 0:
            keys.append(key)
            if len(keys) >= 2 * places:
                del keys[::2]
                step *= 2
    return keys, float(number), 0.0


def _places(store: Store, places: int, size: int) -> tuple[list[bytes], float, float]:
    """Return keys of rows at equal distances of bytes, the number of all rows by their size, and
    that size."""
    chance, known = random.Random(1), dict[int, int]()
    keys: list[bytes] = []
    measured = rows = 0
    for number in range(places):
        start = _place_of(store, (number + 0.5) / places * size, known)
        some = list(islice(store.keys(PAGES, start), _MEASURED))
        if some:
            # The first rows of a block are no better than the others.
            keys.append(some[min(chance.randrange(_ROWS), len(some) - 1)])
            rows += len(some) - 1
            measured += store.size(some[0], some[-1])
    # A row has 50 bytes at least, whatever is measured.
    per_row = max(measured / max(rows, 1), 50.0)
    return keys, size / per_row, per_row


def _place_of(store: Store, offset: float, known: dict[int, int]) -> bytes:
    """Return a key with about ``offset`` bytes of rows before it. ``known`` are those of places
    that were looked at."""
    low, high = (int.from_bytes(each.ljust(_WIDTH, b"\0")) for each in (PAGES, after_all(PAGES)))
    before, behind = 0.0, float("inf")
    while high - low > 1 and behind - before > _NEAR:
        middle = (low + high) // 2
        if middle not in known:
            known[middle] = store.size(PAGES, middle.to_bytes(_WIDTH))
        if known[middle] <= offset:
            low, before = middle, known[middle]
        else:
            high, behind = middle, known[middle]
    return low.to_bytes(_WIDTH)


def _rows_at(store: Store, name: str, keys: list[bytes]) -> list[PageRow | None]:
    """Return rows of a host: at each key and behind it, and then the first ones."""
    found: dict[bytes, bytes] = {}
    prefix = page_prefix(name)
    for key in keys[:: -(-len(keys) // _HITS)]:
        # Identities are hashes: any run of them is a sample.
        some = dict(islice(store.items(prefix, _before(key)), _ROWS))
        some |= dict(islice(store.items(prefix), _ROWS - len(some)))
        found |= some
    return [read_row(value, name, key) for key, value in found.items()]


def _before(key: bytes) -> bytes:
    """Return a key right before the one of a row."""
    number = int.from_bytes(key[-KEY_SIZE:])
    return key[:-KEY_SIZE] + (number - 1).to_bytes(KEY_SIZE) if number else key[:-KEY_SIZE]


def _count(store: Store, name: str, per_row: float) -> float:
    """Return the number of a host's rows; of a large host in a large store, by their size."""
    prefix = page_prefix(name)
    keys: Iterator[bytes] = store.keys(prefix)
    count = sum(1 for _ in (islice(keys, _COUNTED) if per_row else keys))
    if per_row and count == _COUNTED:
        return max(store.size(prefix, after_all(prefix)) / per_row, _COUNTED)
    return count
