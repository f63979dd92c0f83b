"""An event loop in simulated time: it jumps to its next timer when nothing is ready.

A crawl on it takes only the CPU time of its work, without its waits. Its servers are on the same
loop, behind a network in memory.
"""

from __future__ import annotations

import asyncio
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.support.simulated_net import HOP, join

if TYPE_CHECKING:
    from asyncio import BaseProtocol, BaseTransport, Future

_LOOK_AT_CLOCK = 1e-5
# Sockets of the loop itself: that by which threads wake it.
_OWN_SOCKETS = 1
# Most seconds that the loop waits for a thread, and those between two checks.
_TIMEOUT = 60.0
_LOOK_AT_THREADS = 0.05


class Clocks:
    """The clocks of the simulated machine, in seconds. They continue from crawl to crawl.

    Each reading advances them a little, so that no two times are equal.
    """

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.show_real_time()

    def show_real_time(self) -> None:
        """Set the wall clock to that of real processes, such as commands on a crawl's folder."""
        self._epoch = time.time() - self.now

    def monotonic(self) -> float:
        self.now += _LOOK_AT_CLOCK
        return self.now

    def wall(self) -> float:
        return self.monotonic() + self._epoch


clocks = Clocks()
# Makes the server's protocol of a connection; by port, at any address.
Server = Callable[[], "BaseProtocol"]
servers: dict[int, Server] = {}
# Ports whose packets are dropped, with the attempts to connect.
silent: dict[int, int] = {}
# An address at which no port is open, and one without TLS.
DEAD = "127.0.0.255"
NO_TLS = "127.0.0.254"
# Scripts of the next loop. A script continues once the condition that it yields is true, or after
# so many seconds.
Script = Iterator[Callable[[], bool] | float]
scripts: list[Script] = []
# Seconds between two checks of a condition.
_LOOK = 0.01
_ports = count(32_768)


class _Selector(selectors.DefaultSelector):
    """Advances the clocks while nothing is ready.

    ``threads_work`` returns whether threads have work that ends soon, ``is_real`` whether the loop
    waits for something in real time. ``longest_turn`` is the longest time between two checks of
    the sockets, in CPU seconds, on which other load of the machine has no effect.
    """

    threads_work: Callable[[], bool]
    is_real: Callable[[], bool]

    def __init__(self) -> None:
        super().__init__()
        self.longest_turn = 0.0
        self._begun = time.thread_time()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.longest_turn = max(self.longest_turn, time.thread_time() - self._begun)
        try:
            return self._select(timeout)
        finally:
            self._begun = time.thread_time()

    def _select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        begun = time.monotonic()
        # Only a thread can make something ready.
        while not ready and (timeout is None or self.threads_work()):
            assert time.monotonic() - begun < _TIMEOUT, "a thread has not answered the loop"
            ready = super().select(_LOOK_AT_THREADS)
        if ready or timeout is None:
            return ready
        # A real socket may be that of a name server.
        if self.is_real() or len(self.get_map()) > _OWN_SOCKETS:
            begun = time.monotonic()
            ready = super().select(timeout)
            clocks.now += time.monotonic() - begun
        else:
            clocks.now += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """``failure`` is the failed assertion of a script."""

    def __init__(self) -> None:
        self._jumping = _Selector()
        self._calls = 0
        self.wait_for(lambda: False, lambda: False)
        self.failure: AssertionError | None = None
        super().__init__(self._jumping)
        while scripts:
            self.call_later(_LOOK, self._go_on, scripts.pop())

    def wait_for(self, has_work: Callable[[], bool], is_real: Callable[[], bool]) -> None:
        """Set when the loop waits for other threads: see `_Selector`."""
        self._jumping.threads_work = lambda: self._calls > 0 or has_work()
        self._jumping.is_real = is_real

    @property
    def longest_turn(self) -> float:
        """Return the longest time between two looks at the sockets, in CPU seconds."""
        return self._jumping.longest_turn

    def _go_on(self, script: Script) -> None:
        try:
            awaited = next(script, None)
        except AssertionError as error:
            self.failure = error
            signal.raise_signal(signal.SIGINT)
        else:
            if isinstance(awaited, float | int):
                self.call_later(awaited, self._go_on, script)
            elif awaited is not None:
                self._wait(awaited, script)

    def _wait(self, condition: Callable[[], bool], script: Script) -> None:
        if condition():
            self._go_on(script)
        else:
            self.call_later(_LOOK, self._wait, condition, script)

    def close(self) -> None:
        """Close the loop, after the servers have seen that the last connections closed."""
        if not self.is_closed():
            self.wait_for(lambda: False, lambda: False)
            self.run_until_complete(asyncio.sleep(3 * HOP))
        super().close()

    def time(self) -> float:
        return clocks.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._calls += 1
        future.add_done_callback(self._called)
        return future

    def _called(self, _: Future[Any]) -> None:
        self._calls -= 1

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Server, host: str, port: int, **_: Any
    ) -> tuple[BaseTransport, BaseProtocol]:
        await asyncio.sleep(HOP)
        if port in silent:
            silent[port] += 1
            await self.create_future()
        server = servers.get(port)
        if server is None or host == DEAD or (host == NO_TLS and port == 443):
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        ends = ("127.0.0.1", next(_ports)), (host, port)
        return join(self, protocol_factory, server, ends)
