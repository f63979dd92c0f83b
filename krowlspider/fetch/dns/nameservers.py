"""Query the DNS through c-ares, and keep its unbounded cache small."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiodns
from aiodns import error
from pycares import ARES_FLAG_IGNTC, ARES_FLAG_NOCHECKRESP, AAAARecordData, ARecordData

from krowlspider.fetch import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

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
