"""TCP: the routes of this machine, and the race of attempts to connect.

A race of attempts (RFC 8305): the next one starts when those before it are late or have failed. The
first attempt runs in the task of its caller, with one timer. Only a late or failed one costs more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from krowlspider.fetch import errors
from krowlspider.fetch.errors import EXHAUSTED, LoopClock, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

# Seconds for which what was found holds.
HELD = 60.0
# Addresses of a.root-servers.net. Any address of the public internet does, as nothing is sent.
_PUBLIC = {4: "198.41.0.4", 6: "2001:503:ba3e::2:30"}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_PORT = 53


def version_of(address: str) -> int:
    """Return the version of IP of an address: 4 or 6."""
    return 6 if ":" in address else 4


def has_route(version: int) -> bool | None:
    """Return whether packets can be sent to the internet over a version of IP; None if there is no
    socket left to find out.

    A datagram socket can be connected only where there is a route and an address to send from.
    """
    try:
        with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as end:
            end.connect((_PUBLIC[version], _PORT))
            source = ip_address(end.getsockname()[0].partition("%")[0])
    except OSError as error:
        return None if error.errno in EXHAUSTED else False
    # From these addresses nothing leaves the machine, or the link.
    return not (source.is_loopback or source.is_link_local)


class Routes:
    """Holds for a minute over which versions of IP this machine reaches the internet.

    ``look`` is as `has_route`; ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        look: Callable[[int], bool | None] = has_route,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._look = look
        self._clock = clock
        self._found = {4: True, 6: False}
        self._look_at = clock()

    def has(self, version: int) -> bool:
        """Return whether there is a route for IPv4 (4) or IPv6 (6)."""
        if self._clock() >= self._look_at:
            self.look_again()
        return self._found[version]

    def first(self) -> int:
        """Return the version to try first: 6 if there is a route for that alone, otherwise 4."""
        return 4 if self.has(4) or not self._found[6] else 6

    def look_again(self) -> None:
        """Find the routes out anew: a failure shows that they may have changed."""
        self._look_at = self._clock() + HELD
        for version in self._found:
            if (found := self._look(version)) is not None:
                self._found[version] = found


# Addresses of a family that are tried: a dead host with many must not get an attempt at each.
ADDRESSES_TRIED = 3


class AddressOrder:
    """The addresses to try. Families alternate where there are both (RFC 8305, section 4)."""

    __slots__ = ("_left", "taken")

    def __init__(self, addresses: Iterable[str]) -> None:
        self._left = list(addresses)
        self.taken: list[str] = []

    def add(self, addresses: Iterable[str]) -> None:
        known = {*self._left, *self.taken}
        self._left += [address for address in addresses if address not in known]

    @property
    def has_more(self) -> bool:
        return bool(self._left)

    def take(self) -> str | None:
        """Return the next address to try; None if none is left for now."""
        if not self._left:
            return None
        if not self.taken:
            self.taken.append(self._left.pop(0))
            return self.taken[0]
        taken = [version_of(address) for address in self.taken]
        found = [each for each in self._left if taken.count(version_of(each)) < ADDRESSES_TRIED]
        if not found:
            return None
        address = next((each for each in found if version_of(each) != taken[-1]), found[0])
        self._left.remove(address)
        self.taken.append(address)
        return address


# Errors of connect(2) about this machine's network.
_NO_NETWORK = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})


def connect_failure(
    error: OSError, address: str, where: str, *, secure: bool, routes: Routes
) -> errors.FetchError:
    """Return the failure for an OSError raised while connecting to an address, ``secure`` or not.

    ``where`` names the address for people.
    """
    # A router on the way may report the error (ICMP), for an address that nobody has. asyncio words
    # an error of connect(2) itself differently.
    by_router = str(error.strerror).startswith("Connect call failed")
    if error.errno in _NO_NETWORK and not by_router:
        return _no_network(error, version_of(address), where, routes)
    return _class_of(error, secure=secure)(f"{where}: {error}")


def _class_of(error: OSError, *, secure: bool) -> type[errors.FetchError]:
    if isinstance(error, TimeoutError):
        return errors.ConnectTimeout
    if isinstance(error, ConnectionRefusedError):
        return errors.ConnectRefused
    if isinstance(error, ssl.SSLError):
        return errors.TLSFailed
    if isinstance(error, ConnectionError):
        # It is no refusal here, so with TLS it is almost always a handshake cut short.
        return errors.TLSFailed if secure else errors.ConnectionReset
    return errors.LocalExhausted if error.errno in errors.EXHAUSTED else errors.ConnectFailed


def _no_network(error: OSError, version: int, where: str, routes: Routes) -> errors.FetchError:
    """Return the failure of this machine to send anything over IPv4 (4) or IPv6 (6).

    A machine that has a route for the other one is not down.
    """
    routes.look_again()
    other = 10 - version
    if routes.has(other) and not routes.has(version):
        return errors.ConnectFailed(f"{where}: this machine has no route for IPv{version}: {error}")
    # Machines lose single routes for IPv6 while all others hold.
    failure = errors.ConnectFailed if version == 6 and routes.has(4) else errors.NetworkDown
    return failure(f"{where}: {error}")


T = TypeVar("T")

# Seconds after which an attempt is late: the Connection Attempt Delay of RFC 8305, section 8.
DELAY = 0.25


class Overtaken(Exception):
    """Another attempt has won."""


class Race(Generic[T]):
    """Runs attempts until one succeeds. Use it once.

    ``attempt`` is called with an address, and with a function to call once the address is reached.
    That function raises `Overtaken` if another was reached before, and otherwise ends all other
    attempts. ``limit`` is the time of ``clock`` by which an attempt must have succeeded. After an
    exception of ``next_after`` the next address is tried; any other ends the race. ``more`` returns
    further addresses; it is called once, when the first attempt is late or has failed. ``discard``
    takes a result that nobody waits for any more.
    """

    __slots__ = (
        *("_attempt", "_failure", "_interrupt", "_limit", "_others", "_timer"),
        *("clock", "discard", "failed", "more", "next_after", "order", "winner"),
    )

    def __init__(
        self,
        clock: LoopClock,
        order: AddressOrder,
        attempt: Callable[[str, Callable[[], None]], Coroutine[Any, Any, T]],
        *,
        limit: float,
        next_after: tuple[type[Exception], ...],
        more: Callable[[], Coroutine[Any, Any, Iterable[str]]] | None = None,
        discard: Callable[[T], object] = id,
    ) -> None:
        self.clock = clock
        self.order = order
        self.next_after = next_after
        self.more = more
        self.discard = discard
        self.winner = ""
        """The address that was reached."""
        self.failed: list[str] = []
        """The addresses that could not be reached."""
        self._attempt = attempt
        self._limit = limit
        self._failure: Exception | None = None
        # Ends the first attempt; None once that is over.
        self._interrupt: asyncio.Timeout | None = None
        self._timer: Timer | None = None
        self._others: _Others[T] | None = None

    async def run(self, patience: float = DELAY) -> T:
        """Return the result of the attempt that won. The first one is late after ``patience``.

        :raises TimeoutError: the limit passed, and the first attempt had not failed
        :raises Exception: the failure of the first attempt if all failed, or what ended the race
        """
        first = self.order.take()
        assert first is not None
        try:
            try:
                # In no local name: the task of a timeout holds the exception that cancelled it.
                self._interrupt = asyncio.timeout(None)
                async with self._interrupt:
                    self._begin_timer(patience)
                    try:
                        return await self.attempt(first)
                    finally:
                        self._interrupt = None
                        self._end_timer()
            except Overtaken:
                pass
            except self.next_after as error:
                if self.winner == first:
                    raise
                self.failed.append(first)
                self._failure = error
            except TimeoutError:
                if self.winner in ("", first):
                    raise
            return await self._await_others()
        finally:
            self._failure = None
            if self._others is not None:
                await self._others.stop()
                self._others = None

    @property
    def unreached(self) -> list[str]:
        """The addresses that failed, or were tried before the one that was reached."""
        tried = self.order.taken
        before = tried[: tried.index(self.winner)] if self.winner else tried
        return [address for address in tried if address in before or address in self.failed]

    @property
    def first_is_running(self) -> bool:
        return self._interrupt is not None

    def attempt(self, address: str) -> Coroutine[Any, Any, T]:
        """Return an attempt to reach an address."""
        return self._attempt(address, partial(self._claim, address))

    async def _await_others(self) -> T:
        if self._others is None:
            self._others = _Others(self)
        self._others.hurry()
        try:
            async with self.clock.timeout_at(self._limit):
                ended = await self._others.outcome
            if ended is not None:
                return self._others.hand_over(ended)
        except TimeoutError:
            if self._failure is None or self.winner:
                raise
        failure, self._failure = self._failure, None
        assert failure is not None
        try:
            raise failure
        finally:
            # The exception holds this frame, so the local name would make a reference cycle.
            del failure

    def _begin_timer(self, patience: float) -> None:
        late = self.clock.time() + patience
        if late < self._limit:
            self._timer = self.clock.call_at(late, self._is_late)
        else:
            self._timer = self.clock.call_at(self._limit, self._end_first)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # It holds this object: no cycle for the garbage collector.
        self._timer = None

    def _is_late(self) -> None:
        self._timer = self.clock.call_at(self._limit, self._end_first)
        if not self.winner and (self.order.has_more or self.more is not None):
            self._others = _Others(self)
            self._others.go_on()

    def _end_first(self) -> None:
        if self._interrupt is not None and not self._interrupt.expired():
            self._interrupt.reschedule(0.0)

    def _claim(self, address: str) -> None:
        if self.winner:
            raise Overtaken
        self.winner = address
        if self._others is not None:
            self._others.end_all_but(address)
            if address != self.order.taken[0]:
                self._end_first()


class _Others(Generic[T]):
    """The attempts after the first one. Each is a task.

    ``outcome`` is a future of the task that ended the race; of None if every attempt has failed.
    """

    def __init__(self, race: Race[T]) -> None:
        self._race = race
        self._loop = race.clock.loop
        self.outcome: asyncio.Future[asyncio.Task[T] | None] = self._loop.create_future()
        self._tasks: dict[asyncio.Task[T], str] = {}
        self._timer: Timer | None = None
        self._asking: asyncio.Task[Iterable[str]] | None = None
        if race.more is not None:
            self._asking = self._loop.create_task(race.more())
            self._asking.add_done_callback(self._asked)

    def go_on(self) -> None:
        """Begin the next attempt, unless the last one may still come in time.

        End the race if all attempts have failed.
        """
        race = self._race
        if race.winner or self.outcome.done() or self._timer is not None:
            return
        address = race.order.take()
        if address is not None:
            task = self._loop.create_task(race.attempt(address))
            self._tasks[task] = address
            task.add_done_callback(self._ended)
            self._timer = race.clock.call_at(race.clock.time() + DELAY, self._is_late)
        elif not (race.first_is_running or self._asking or any(not t.done() for t in self._tasks)):
            self.outcome.set_result(None)

    def hurry(self) -> None:
        """Begin the next attempt at once, as one has failed."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_late()

    def end_all_but(self, address: str) -> None:
        for task, other in self._tasks.items():
            if other != address:
                task.cancel()

    def hand_over(self, ended: asyncio.Task[T]) -> T:
        """Return the result of the task that ended the race, or raise its exception."""
        del self._tasks[ended]
        return ended.result()

    async def stop(self) -> None:
        """End what is still running, and discard what came too late."""
        if self._timer is not None:
            self._timer.cancel()
        self.outcome.cancel()
        left = [task for task in (*self._tasks, self._asking) if task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for ended in self._tasks:
            if not ended.cancelled() and ended.exception() is None:
                self._race.discard(ended.result())
        self._tasks.clear()

    def _is_late(self) -> None:
        self._timer = None
        self.go_on()

    def _asked(self, asking: asyncio.Task[Iterable[str]]) -> None:
        self._asking = None
        if not asking.cancelled() and asking.exception() is None:
            self._race.order.add(asking.result())
        self.go_on()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if self.outcome.done():
            return
        address = self._tasks[task]
        if error is None or address == self._race.winner:
            self.outcome.set_result(task)
        elif isinstance(error, self._race.next_after):
            self._race.failed.append(address)
            self.hurry()
        elif not isinstance(error, Overtaken):
            self.outcome.set_result(task)
