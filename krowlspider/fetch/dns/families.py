"""Ask for the addresses of a name: those of one family, and those of the other where it pays."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import NameNotFound, NameServerFailed, NameTimeout
from krowlspider.fetch.tcp.order import Order
from krowlspider.fetch.tcp.race import Race

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from krowlspider.fetch.loop_clock import LoopClock
    from krowlspider.fetch.tcp.routes import Routes

    # (address, TTL in seconds) of each record.
    Records = list[tuple[str, float]]

KINDS = {4: "A", 6: "AAAA"}


class _NoRecord(Exception):
    """The name has no record of a kind."""


# After these the other kind is asked for: without and with a route for its family.
_NEXT = (_NoRecord, NameServerFailed)
_NEXT_ON_BOTH = (*_NEXT, NameTimeout)


class Families:
    """Asks for A, and for AAAA if there is none; the other way round where only IPv6 has a route.

    ``ask`` is as `NameServers.ask`. ``timeout`` is in seconds of ``clock``, for both questions
    together. If the first answer is late by a third of it, the second question goes out too, where
    this machine has a route for that family.
    """

    def __init__(
        self,
        ask: Callable[[str, str], Awaitable[Records]],
        routes: Routes,
        clock: LoopClock,
        timeout: float,
    ) -> None:
        self._ask = ask
        self._routes = routes
        self._clock = clock
        self._timeout = timeout

    async def look_up(self, name: str) -> tuple[Records, bool]:
        """Return the records of a name, and whether both families are known thereby.

        There are none if the name has no address.

        :raises NameFailed: the look-up failed; the subclass names the cause
        :raises TimeoutError: there was no answer in time
        """
        version = self._routes.first()
        first, second = KINDS[version], KINDS[10 - version]
        has_other = self._routes.has(10 - version)
        asked = _Asked(self._ask, name)
        race = Race(
            self._clock,
            Order([first, second]),
            asked.question,
            limit=self._clock.time() + self._timeout,
            next_after=_NEXT_ON_BOTH if has_other else _NEXT,
        )
        try:
            records = await race.run(self._timeout / 3 if has_other else inf)
        except _NoRecord:
            failure, asked.failure = asked.failure, None
            if failure is None:
                return [], True
            # No address of one family does not show that there is none of the other.
            try:
                raise failure from None
            finally:
                # The exception holds this frame, so the local name would make a reference cycle.
                del failure
        return records, race.winner == second and first in asked.empty


class _Asked:
    """The questions about one name."""

    __slots__ = ("_ask", "_name", "empty", "failure")

    def __init__(self, ask: Callable[[str, str], Awaitable[Records]], name: str) -> None:
        self._ask = ask
        self._name = name
        self.empty: list[str] = []
        self.failure: NameServerFailed | NameTimeout | None = None

    async def question(self, kind: str, reached: Callable[[], None]) -> Records:
        """Return the records of a kind, at least one.

        :raises _NoRecord: there is none
        :raises NameFailed: the question failed
        """
        try:
            records = await self._ask(self._name, kind)
        except NameNotFound:
            # The other answer shows that the name exists; some servers err so (RFC 4074, section
            # 4.2).
            if not self.empty:
                raise
            records = []
        except (NameServerFailed, NameTimeout) as error:
            self.failure = error
            raise
        if not records:
            self.empty.append(kind)
            raise _NoRecord
        reached()
        return records
