"""What fetches the pages of a crawl: look-ups, connections, large responses, content codings."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from krowlspider.crawl.parts import fetch_client, resolver
from krowlspider.fetch.loop_clock import LoopClock
from krowlspider.fetch.spills import Spills

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from krowlspider.crawl.answers.decoders import Decoders


class Fetching:
    """The parts that fetch. Until the first fetch they hold nothing open but ``decoders``.

    ``spilled`` is the folder of large responses, ``monotonic`` returns seconds. ``on_answer`` and
    ``on_look_up`` are as in `Resolver`.
    """

    def __init__(
        self,
        settings: BaseSettings,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        *,
        decoders: Decoders,
        spilled: Path,
        on_answer: Callable[[str, list[tuple[str, float]]], None] | None,
        on_look_up: Callable[[float], None] | None,
    ):
        self._clock = LoopClock(loop, monotonic)
        self.resolver = resolver(settings, self._clock, on_answer, on_look_up)
        self.client = fetch_client(settings, self._clock, self.resolver)
        self.spills = Spills(loop, spilled)
        self.decoders = decoders

    def start(self) -> None:
        """Count no time in which the event loop is held."""
        self._clock.start()

    async def close(self) -> None:
        """Close each part, although another one fails."""
        async with AsyncExitStack() as parts:
            parts.callback(self._clock.stop)
            parts.callback(self.decoders.close)
            parts.push_async_callback(self.spills.close)
            parts.push_async_callback(self.resolver.close)
            parts.push_async_callback(self.client.close)
