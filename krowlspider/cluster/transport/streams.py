"""The forwarding of an outbox on disk: what to push to each owner, and what it has acknowledged.

An owner is sent a stream of numbered batches, each with its mark. Only the owner says what is
missing: its acknowledgement then has a gap, and all that it has not acknowledged is sent again, in
a new stream. While it acknowledges nothing, a mark without messages asks it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from krowlspider.cluster.transport.mark import (
    LIMIT,
    Mark,
    acknowledged_key,
    decode_acknowledgement,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

logger = logging.getLogger(__name__)

# Least and most seconds without an acknowledgement after which an owner is asked by a mark, and
# before messages are sent again that were lost again.
_WAIT = (3.0, 60.0)


class DurableOutbox(Protocol):
    """Messages on disk by owner, in the order of their sequences, as `frontier.outbox.Outbox`."""

    def owners(self) -> Iterable[str]: ...
    def after(self, owner: str, sequence: int, most: int) -> list[tuple[int, bytes]]: ...
    def note_sent(self, owner: str, sequence: int) -> None: ...
    def acknowledge(self, owner: str, last: int) -> Iterator[int]: ...


@dataclass(slots=True, eq=False)
class _Stream:
    """What one owner was sent: ``number`` batches of the stream ``id``, up to ``sent``.

    Up to ``acknowledged`` all is durable there. ``furthest`` is the last sequence of any stream.
    """

    id: int = field(default_factory=lambda: secrets.randbelow(LIMIT))
    number: int = 0
    sent: int = -1
    acknowledged: int = -1
    furthest: int = -1
    # When to ask, and how often this was done since the last acknowledgement.
    ask_at: float = 0.0
    asked: int = 0
    # How often messages were lost since the last acknowledgement; nothing is sent before ``since``.
    lost: int = 0
    since: float = 0.0


def _wait(times: int) -> float:
    least, most = _WAIT
    return min(most, least * (1 << min(times, 10)))


class Streams:
    """The `Source` of a `Forwarder` that sends ``outbox`` to the lists of ``spider``.

    ``own`` is the node that sends. ``again`` counts messages that were sent before.
    """

    def __init__(
        self,
        outbox: DurableOutbox,
        own: str,
        spider: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._own = own
        self._key = acknowledged_key(spider)
        self._clock = clock
        self._streams: dict[str, _Stream] = {}
        self.owners = outbox.owners
        self.again = 0

    def next(self, owner: str, most: int) -> tuple[Sequence[int], list[bytes]]:
        """Return sequences and messages to push now. Without any, a mark may be due."""
        stream = self._stream(owner)
        if self._clock() < stream.since:
            return (), []
        found = self._outbox.after(owner, stream.sent, most)
        return [sequence for sequence, _ in found], [message for _, message in found]

    def mark(self, owner: str, sequences: Sequence[int]) -> bytes | None:
        """Return the mark to push behind messages; None if there are no messages, and it is not
        time to ask."""
        stream = self._stream(owner)
        if not sequences and not (
            stream.acknowledged < stream.sent and self._clock() >= stream.ask_at
        ):
            return None
        last = sequences[-1] if sequences else stream.sent
        return encode(Mark(self._own, owner, stream.id, stream.number, last))

    def pushed(self, owner: str, sequences: Sequence[int]) -> None:
        """Note that messages, and their mark, are in the list of their owner."""
        stream = self._stream(owner)
        stream.number += 1
        if not sequences:
            stream.asked += 1
            stream.ask_at = self._clock() + _wait(stream.asked)
            return
        if stream.acknowledged == stream.sent:
            stream.ask_at = self._clock() + _wait(0)
        self.again += sum(sequence <= stream.furthest for sequence in sequences)
        stream.sent = sequences[-1]
        stream.furthest = max(stream.furthest, stream.sent)
        self._outbox.note_sent(owner, stream.sent)

    def question(self) -> tuple[str, ...]:
        """Return the command whose reply `hear` takes."""
        return "HGET", self._key, self._own

    async def hear(self, owner: str, reply: Any) -> None:
        """Take an acknowledgement: remove what is durable at its owner."""
        stream = self._stream(owner)
        heard = decode_acknowledgement(reply)
        if heard is None or heard.stream != stream.id:
            return
        last = min(heard.last, stream.sent)
        if last > stream.acknowledged:
            stream.acknowledged, stream.asked, stream.lost = last, 0, 0
            stream.ask_at = self._clock() + _wait(0)
            for _ in self._outbox.acknowledge(owner, last):
                await asyncio.sleep(0)
        if heard.has_gap:
            self._begin_again(owner, stream)

    def _begin_again(self, owner: str, stream: _Stream) -> None:
        logger.warning(
            "Sending URLs to node %s again: some have not reached it, as when its Redis crashes",
            owner,
        )
        self._outbox.note_sent(owner, stream.acknowledged)
        since = self._clock() + _wait(stream.lost - 1) if stream.lost else 0.0
        self._streams[owner] = _Stream(
            sent=stream.acknowledged,
            acknowledged=stream.acknowledged,
            furthest=stream.furthest,
            lost=stream.lost + 1,
            since=since,
        )

    def _stream(self, owner: str) -> _Stream:
        if owner not in self._streams:
            self._streams[owner] = _Stream()
        return self._streams[owner]
