"""Idle connections, kept for the next request to the same origin."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from krowlspider.fetch.connection import Connection
    from krowlspider.fetch.http.request import Origin
    from krowlspider.fetch.loop_clock import LoopClock


class Pool:
    """Keeps at most ``max_idle`` idle connections, each for at most ``idle_timeout`` seconds.

    Over ``max_idle``, the connection that was idle longest is closed. One connection is kept for
    each origin: a host has one request in flight, so a second would never be used.
    """

    def __init__(self, clock: LoopClock, *, max_idle: int, idle_timeout: float) -> None:
        self._clock = clock
        self._max_idle = max_idle
        self._idle_timeout = idle_timeout
        # In the order in which connections became idle, which is the order in which they expire.
        self._idle: OrderedDict[Origin, tuple[Connection, float]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, origin: Origin) -> Connection | None:
        """Return an open idle connection to ``origin``, or None; the caller owns it from now on.

        :raises FetchError: the ``fault`` of the connection: the server misbehaved while it was idle
        """
        connection, _ = self._idle.pop(origin, (None, 0.0))
        if connection is not None and connection.fault is not None:
            raise connection.fault
        if connection is not None and self._clock.held_long:
            # The server may have closed it, and the held event loop could not read that.
            connection.close()
        return None if connection is None or connection.closed else connection

    def put(self, connection: Connection) -> None:
        """Keep an idle connection; drop a closed one, unless its ``fault`` is to be raised."""
        if connection.closed and connection.fault is None:
            return
        displaced, _ = self._idle.pop(connection.origin, (None, 0.0))
        if displaced is not None:
            displaced.close()
        self._idle[connection.origin] = connection, self._clock.loop.time() + self._idle_timeout
        if len(self._idle) > self._max_idle:
            self._close_oldest()
        if self._timer is None and self._idle:
            self._arm()

    def close(self) -> None:
        while self._idle:
            self._close_oldest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_oldest(self) -> None:
        _, (connection, _) = self._idle.popitem(last=False)
        connection.close()

    def _arm(self) -> None:
        _, expires = next(iter(self._idle.values()))
        self._timer = self._clock.loop.call_at(expires, self._expire)

    def _expire(self) -> None:
        self._timer = None
        # An event loop may fire a timer early by its clock's resolution; uvloop's is 1 ms.
        now = self._clock.loop.time() + 0.001
        while self._idle and next(iter(self._idle.values()))[1] <= now:
            self._close_oldest()
        if self._idle:
            self._arm()
