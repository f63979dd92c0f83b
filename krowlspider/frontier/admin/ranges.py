"""Parts of a frontier as the store has them, for a reader that is not the crawl.

What a pair of key and value says is read by that reader: it costs a running crawl next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import Store, all_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Pairs = Iterator[tuple[bytes, bytes]]


def _records(store: Store) -> Pairs:
    return (item for item in store.firsts(schema.QUEUE) if schema.is_record(item[0]))


# What there is, by its name: host records; queued entries, and those that are set aside; rows of
# pages; the URLs and the words of seeds.
RANGES: dict[str, Callable[[Store], Pairs]] = {
    "hosts": _records,
    "queue": all_entries,
    "poison": lambda store: store.items(schema.POISON),
    "pages": lambda store: store.items(schema.PAGES),
    "seeds": lambda store: store.items(schema.SEED_NAME),
    "words": lambda store: store.items(schema.SEED_WORDS),
}
