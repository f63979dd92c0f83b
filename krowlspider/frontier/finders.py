"""Which batches of forwarded URLs this frontier has, by the node that found them.

A finder numbers the batches of a stream from 0 on. The last one that has come without a gap is kept
in the store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.frontier.store.schema import FINDER, finder_key

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Batch, Store

# Finders that are known. Of one that is forgotten, the next batch has a gap before it.
FINDERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Arrived:
    """The batches of ``stream`` up to ``number`` are here, with URLs up to the sequence ``last``.

    ``number`` and ``last`` are -1 if there is none.
    """

    stream: int
    number: int = -1
    last: int = -1


class Finders:
    """The streams of the finders that have sent URLs to a frontier."""

    def __init__(self, store: Store):
        # The finder whose batch came last is the last one.
        self._arrived = {
            key[1:].decode(): Arrived(*json.loads(value)) for key, value in store.items(FINDER)
        }

    def take(
        self, finder: str, stream: int, number: int, last: int, batch: Batch
    ) -> tuple[Arrived, bool]:
        """Note that the URLs of a batch of a stream are written; return what has arrived of it.

        The second value is whether an earlier batch is missing: then this one does not count.
        ``batch`` must be synced: the note must not outlive the URLs.
        """
        before = self._arrived.get(finder)
        if before is None or before.stream != stream:
            before = Arrived(stream)
        if number > before.number + 1:
            return before, True
        arrived = Arrived(stream, max(before.number, number), max(before.last, last))
        self._arrived.pop(finder, None)
        self._arrived[finder] = arrived
        text = json.dumps([arrived.stream, arrived.number, arrived.last])
        batch.put(finder_key(finder), text.encode())
        if len(self._arrived) > FINDERS_MAX:
            oldest = next(iter(self._arrived))
            del self._arrived[oldest]
            batch.delete(finder_key(oldest))
        return arrived, False
