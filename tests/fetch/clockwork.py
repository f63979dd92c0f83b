"""An event loop without sockets, whose time and turns the test advances."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from krowlspider.fetch.connection import ExchangeOrder, OneByOne
from krowlspider.fetch.errors import LoopClock
from krowlspider.fetch.memory import FetchMemory, Memory, Spills

if TYPE_CHECKING:
    from collections.abc import Callable


class Wire(asyncio.Transport):
    """A transport that records what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Any] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def pause_reading(self) -> None:
        """Do nothing: tests hand in what comes."""

    def abort(self) -> None:
        self.aborted = True


class Clockwork:
    """Counts seconds from 0. ``timers`` are those still to fire, ``ready`` the callbacks of the
    next turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[asyncio.TimerHandle] = []
        self.ready: list[asyncio.Handle] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    @property
    def clock(self) -> LoopClock:
        return LoopClock(self.loop, self.time)

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.loop)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self.loop)
        self.timers.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args)

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        self.ready.append(asyncio.Handle(callback, args, self.loop))
        return self.ready[-1]

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for handle in ready:
            handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        # A timer may be cancelled once it has fired, as on any loop.
        if handle in self.timers:
            self.timers.remove(handle)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.when() <= self.now]:
            self.timers.remove(timer)
            timer._run()


def order(
    loop: asyncio.AbstractEventLoop,
    begun: float = 0.0,
    timeout: float = 60.0,
    first_byte: float = 30.0,
    *,
    memory: FetchMemory | None = None,
    rate_min: int = 0,
    large: OneByOne | None = None,
    spills: Spills | None = None,
) -> ExchangeOrder:
    """Return an exchange to make; ``begun`` is the time of its clock."""
    times = (begun, begun + timeout, first_byte)
    memory = memory or FetchMemory(Memory())
    large = large or OneByOne(loop)
    return ExchangeOrder("http://a.test/", b"GET", *times, memory, rate_min, large, spills)
