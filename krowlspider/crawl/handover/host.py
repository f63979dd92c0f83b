"""One host on its way to its new owner: what was sent of it, and what has arrived there."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from krowlspider.cluster.transport.inbox import MAX_CHUNK
from krowlspider.crawl.handover.receiver import arrived_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.crawl.handover.loop_share import LoopShare
    from krowlspider.frontier.handover.departure import Departure

logger = logging.getLogger(__name__)

# Most chunks of one host that are sent and not acknowledged.
_AHEAD = 8


class TooLongError(Exception):
    """An entry of the host is too long for a chunk."""


class HostHandover:
    """A host under way.

    ``arrived`` of its chunks are acknowledged. The next ones are sent; ``sizes`` has their bytes.
    ``since`` is when one was last sent or acknowledged, ``key`` where the owner acknowledges them.
    """

    def __init__(self, name: str, departure: Departure, spider: str, clock: Callable[[], float]):
        self.name = name
        self.departure = departure
        self.arrived = 0
        self.sizes: list[int] = []
        self.since = clock()
        self._spider = spider
        self._clock = clock
        self._all_sent = False

    @property
    def key(self) -> str:
        return arrived_key(self._spider, self.name, self.departure.transfer.hex())

    @property
    def has_next(self) -> bool:
        """Return whether to call `next_chunk` before more is acknowledged."""
        return not self.sizes or (not self._all_sent and len(self.sizes) < _AHEAD)

    @property
    def is_delivered(self) -> bool:
        """Return whether all chunks have arrived, after `next_chunk` has returned None."""
        return self._all_sent and not self.sizes

    async def next_chunk(self, share: LoopShare) -> bytes | None:
        """Return the next chunk, counted as sent; None if there is none to send now.

        :raises TooLongError: the chunk can never be sent
        """
        position = self.arrived + len(self.sizes)
        steps = self.departure.skip(position)
        is_over = False
        while not is_over:
            async with share:
                is_over = next(steps, True) is True
        async with share:
            try:
                chunk = self.departure.chunk(position)
            except LookupError:
                logger.warning(
                    "Sending %s again: more of it is acknowledged than exists", self.name
                )
                self.departure.begin_again()
                self.arrived = 0
                self.send_again()
                return None
            if chunk is None:
                self._all_sent = True
                return None
            data = msgspec.json.encode(chunk)
        if len(data) > MAX_CHUNK:
            raise TooLongError
        self.sizes.append(len(data))
        self._all_sent = chunk["last"]
        self.since = self._clock()
        return data

    def send_again(self) -> None:
        """Send the chunks that are not acknowledged once more."""
        self.sizes.clear()
        self._all_sent = False

    def acknowledge(self, value: bytes | None) -> bool:
        """Take the number of arrived chunks; return whether it has changed."""
        # Anybody may have written it. A number that is too high fails in `Departure.chunk`.
        if value is None or not value.isdigit() or len(value) > 9:
            return False
        arrived = int(value)
        if arrived == self.arrived:
            return False
        if arrived < self.arrived:
            # The other node has lost what it had.
            self.send_again()
        else:
            del self.sizes[: arrived - self.arrived]
        self.arrived, self.since = arrived, self._clock()
        return True

    async def remove(self, share: LoopShare) -> None:
        """Remove the host here.

        A cancellation waits for the end: `Departures.stop` would remove the rest in one long step.
        """
        steps = self.departure.end()
        cancelled: asyncio.CancelledError | None = None
        is_over = False
        while not is_over:
            try:
                async with share:
                    is_over = next(steps, True) is True
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
