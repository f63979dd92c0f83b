"""Ask the DNS for the addresses of a name, through c-ares with a small cache."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import aiodns
from aiodns import error
from msgspec import Struct
from pycares import ARES_FLAG_IGNTC, ARES_FLAG_NOCHECKRESP, AAAARecordData, ARecordData

from krowlspider.fetch import errors
from krowlspider.fetch.errors import LoopClock, NameNotFound, NameServerFailed, NameTimeout
from krowlspider.fetch.tcp import AddressOrder, Race, Routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

TRIES = 2
# Results of c-ares once all servers were tried. NXDOMAIN is from a server that answered, or for
# .onion from c-ares itself (RFC 7686). REFUSED is from a server that is up, so it is not "down".
_CLASSES: dict[int, type[errors.FetchError]] = {
    error.ARES_ENOTFOUND: errors.NameNotFound,
    error.ARES_EBADNAME: errors.NameMalformed,
    error.ARES_ESERVFAIL: errors.NameServerFailed,
    error.ARES_EREFUSED: errors.NameServerFailed,
    error.ARES_ENOTIMP: errors.NameServerFailed,
    error.ARES_EFORMERR: errors.NameServerFailed,
    error.ARES_EBADRESP: errors.NameServerFailed,
    error.ARES_ETIMEOUT: errors.NameTimeout,
    error.ARES_ECONNREFUSED: errors.NameServersDown,
    error.ARES_ENOMEM: errors.LocalExhausted,
    error.ARES_EFILE: errors.LocalExhausted,
}
# Classes of a question that a server answered, with or without success.
_HEARD = (errors.NameNotFound, errors.NameServerFailed)
# c-ares keeps every answer for its TTL, up to an hour, without a bound, and pycares cannot change
# that. At 1.2 KB a name, a channel is replaced before its cache passes 25 MB.
QUESTIONS_PER_CHANNEL = 20_000


@dataclass(slots=True, eq=False)
class _Channel:
    dns: aiodns.DNSResolver
    asked: int = 0
    waiting: int = 0
    retired: bool = False


class NameServers:
    """Queries ``servers`` ("address" or "address:port"; empty: those of /etc/resolv.conf).

    ``timeout`` is in seconds, for one question and both tries at one server together. The next
    server is asked after a third of it; c-ares then prefers the server that answered. After
    ``questions_max`` questions the channel of c-ares is replaced.
    """

    def __init__(
        self, servers: Sequence[str], timeout: float, questions_max: int = QUESTIONS_PER_CHANNEL
    ) -> None:
        self._servers = list(servers)
        self._timeout = timeout
        self._questions_max = questions_max
        self._channel: _Channel | None = None
        self._checking: asyncio.Task[bool] | None = None

    async def ask(self, name: str, kind: str) -> list[tuple[str, float]]:
        """Return (address, TTL in seconds) of each record of ``kind``, "A" or "AAAA".

        :raises NameFailed: the look-up failed; the subclass names the cause
        :raises LocalExhausted: this machine has no memory or socket left
        """
        channel = self._next_channel()
        channel.asked += 1
        channel.waiting += 1
        try:
            result = await channel.dns.query_dns(name, kind)
        except error.DNSError as e:
            code, reason = e.args
            if code == error.ARES_ENODATA:
                return []
            failure = _class_of(code)
            if failure is errors.NameServersDown and await self._any_answers():
                failure = errors.NameServerFailed
            raise failure(str(reason)) from e
        finally:
            channel.waiting -= 1
            if channel.retired and not channel.waiting:
                await channel.dns.close()
        return [
            (record.data.addr, float(record.ttl))
            for record in result.answer
            if isinstance(record.data, (ARecordData, AAAARecordData))
        ]

    async def close(self) -> None:
        """Cancel the look-ups in flight; they fail."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        if self._channel is not None:
            await self._channel.dns.close()
            self._channel = None

    def _next_channel(self) -> _Channel:
        channel = self._channel
        if channel is not None:
            if channel.asked < self._questions_max:
                return channel
            channel.retired = True
        self._channel = _Channel(self._open())
        return self._channel

    def _open(self, flags: int | None = None) -> aiodns.DNSResolver:
        # c-ares doubles its timeout at the second try, so both tries fit in ``timeout``.
        return aiodns.DNSResolver(
            self._servers or None,
            loop=asyncio.get_running_loop(),
            timeout=self._timeout / 3,
            tries=TRIES,
            flags=flags,
        )

    async def _any_answers(self) -> bool:
        """Return whether any server answers another question; concurrent calls share it.

        c-ares reports the last try at the last server: TCP that is refused after a truncated
        answer, or one of two servers that is down while the other fails for this name.
        """
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(self._check())
        return await asyncio.shield(self._checking)

    async def _check(self) -> bool:
        """Ask for the root's name servers; any answer over UDP will do."""
        # A channel of its own has no cached answer.
        dns = self._open(ARES_FLAG_IGNTC | ARES_FLAG_NOCHECKRESP)
        try:
            await dns.query_dns(".", "NS")
        except error.DNSError as e:
            code = e.args[0]
            return code == error.ARES_ENODATA or _CLASSES.get(code) in _HEARD
        finally:
            await dns.close()
        return True


def _class_of(code: int) -> type[errors.FetchError]:
    found = _CLASSES.get(code, errors.NameFailed)
    # When c-ares cannot open a socket, it reports that the server refused or was silent.
    if found in (errors.NameServersDown, errors.NameTimeout) and not _sockets_left():
        return errors.LocalExhausted
    return found


def _sockets_left() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError as e:
        return e.errno not in errors.EXHAUSTED
    return True


if TYPE_CHECKING:
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
            AddressOrder([first, second]),
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


# Seconds that addresses are kept. A crawl soon asks again, so short TTLs are raised to a minute; an
# hour at most, so that a moved site is followed within one.
POSITIVE_MIN, POSITIVE_MAX = 60.0, 3600.0
# Seconds to keep a failure, at most the five minutes of RFC 2308, section 7: c-ares hides the
# zone's TTL (section 5). A timeout may be one lost packet. Others are cheap or not about the name.
NEGATIVE: dict[type[errors.FetchError], float] = {
    errors.NameNotFound: 300.0,
    errors.NameWithoutAddress: 60.0,
    errors.NameServerFailed: 60.0,
    errors.NameTimeout: 10.0,
}
# Of each family. A name may list hundreds of addresses; only three are tried.
ADDRESSES_KEPT = 8


class Resolution(Struct, eq=False):
    """The addresses of a name, those to try first in front, or the failure of its look-up.

    ``reached`` is the address that was connected to last. ``others_at`` is when the family that was
    not asked for may be asked for; inf once it is known. Times are in seconds of a clock.
    """

    addresses: list[str]
    expires: float
    failure: type[errors.FetchError] | None = None
    reason: str = ""
    reached: str = ""
    others_at: float = 0.0


class Answers:
    """Keeps the answers for ``size`` names; the least recently used is dropped.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[str, Resolution] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def found(self, records: Records, *, both_known: bool) -> Resolution:
        """Return an answer with addresses; ``both_known`` as from `Families.look_up`."""
        return Resolution(
            kept_of(records), self._expiry(records), others_at=inf if both_known else 0.0
        )

    def failed(self, failure: type[errors.FetchError], reason: str) -> Resolution:
        """Return the answer of a look-up that has failed."""
        return Resolution([], self._clock() + NEGATIVE.get(failure, 0.0), failure, reason)

    def get(self, name: str) -> Resolution | None:
        """Return the answer for a name if it has not expired; it is the last to be dropped then."""
        answer = self._kept.get(name)
        if answer is None:
            return None
        if answer.expires <= self._clock():
            del self._kept[name]
            return None
        self._kept.move_to_end(name)
        return answer

    def put(self, name: str, answer: Resolution) -> None:
        """Keep an answer, unless it is of a failure that may be over at once."""
        if answer.failure is None or answer.failure in NEGATIVE:
            self._kept[name] = answer
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def may_ask_others(self, name: str) -> bool:
        """Return whether the family that was not asked for may be asked for now."""
        answer = self._kept.get(name)
        return answer is None or self._clock() >= answer.others_at

    def add_others(self, name: str, records: Records, retry_after: float) -> None:
        """Add the records of the other family. It may be asked for again in ``retry_after``
        seconds."""
        answer = self._kept.get(name)
        if answer is None:
            return
        answer.others_at = self._clock() + retry_after
        answer.addresses += [each for each in kept_of(records) if each not in answer.addresses]
        if records:
            answer.expires = min(answer.expires, self._expiry(records))

    def learn(self, name: str, reached: str, unreached: Collection[str]) -> None:
        """Put the address of a name that was connected to in front, and those that could not be at
        the end. ``reached`` is "" for none."""
        answer = self._kept.get(name)
        if answer is None:
            return
        if reached or answer.reached in unreached:
            answer.reached = reached
        if unreached or answer.addresses[0] != reached:
            answer.addresses.sort(key=lambda each: (each in unreached) - (each == reached))

    def reached(self, name: str) -> str:
        """Return the address of a name that was connected to last; "" if none is known."""
        answer = self._kept.get(name)
        return "" if answer is None else answer.reached

    def _expiry(self, records: Records) -> float:
        ttl = min(ttl for _, ttl in records)
        return self._clock() + min(max(ttl, POSITIVE_MIN), POSITIVE_MAX)


def kept_of(records: Records) -> list[str]:
    """Return the addresses to keep."""
    return [address for address, _ in records[:ADDRESSES_KEPT]]
