"""What the URLFrontier service keeps of a crawl as a whole, for a later crawl by Scrapy too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from krowlspider.frontier.store.schema import SERVED

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store

_STATE = SERVED + b"s"


class CrawlState(Struct, array_like=True, frozen=True):
    """``crawl_id``, the least delay of all queues in seconds, and whether URLs were purged."""

    crawl_id: str
    delay: float = 0.0
    has_purged: bool = False


_DECODER = msgspec.msgpack.Decoder(CrawlState)


def read_state(store: Store) -> CrawlState | None:
    """Return the state of a crawl; None if it was never served."""
    saved = store.get(_STATE)
    return None if saved is None else _DECODER.decode(saved)


def put_state(store: Store, state: CrawlState) -> None:
    """Replace the state of a crawl, durably."""
    batch = store.batch(sync=True)
    batch.put(_STATE, msgspec.msgpack.encode(state))
    batch.write()
