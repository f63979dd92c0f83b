"""A resolver that asks the name servers of a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import LoopClock
from krowlspider.fetch.resolver import Resolver
from tests.fetch.machine import routed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from krowlspider.fetch.tcp import Routes
    from tests.fetch.nameserver import Zone


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def resolver(
    zone: Zone | list[int],
    clock: Clock | None = None,
    cache_size: int = 100,
    timeout: float = 3,
    on_answer: Callable[[str, list[tuple[str, float]]], None] | None = None,
    *,
    on_look_up: Callable[[float], None] | None = None,
    routes: Routes | None = None,
) -> AsyncIterator[Resolver]:
    """Open a resolver that asks ``zone``, or the servers at these ports of 127.0.0.1."""
    ports = zone if isinstance(zone, list) else [zone.port]
    loop_clock = LoopClock(asyncio.get_running_loop())
    loop_clock.start()
    made = Resolver(
        overrides={"fixed.test": "10.0.0.9"},
        servers=[f"127.0.0.1:{port}" for port in ports],
        cache_size=cache_size,
        timeout=timeout,
        loop_clock=loop_clock,
        routes=routes or routed(4),
        clock=clock or Clock(),
        on_answer=on_answer,
        on_look_up=on_look_up,
    )
    try:
        yield made
    finally:
        await made.close()
        loop_clock.stop()
