"""Connections to Redis with time limits and kinds of failures; and which URLs lead to one Redis."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from krowlspider.cluster.membership import ClusterError
from krowlspider.internals.redis import cut

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from redis.asyncio.connection import AbstractConnection

    from krowlspider.cluster.ring.ring import MemberRecord

logger = logging.getLogger(__name__)

# Seconds to connect and for a call, of which one with megabytes of data has several times as many.
TIMEOUT = 2.0
_BULK = 10

_DATABASE = re.compile("db=[0-9]{1,5}")
# Subclasses before their bases.
_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.OutOfMemoryError, "full"),
    (exceptions.ReadOnlyError, "readonly"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.AuthenticationError, "auth"),
    (exceptions.AuthorizationError, "auth"),
    (exceptions.NoPermissionError, "auth"),
    (exceptions.TimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (exceptions.ConnectionError, "down"),
    (OSError, "down"),
)
# First words of errors without a class: the key holds no list; Redis cannot save.
_WORDS = {"WRONGTYPE": "type", "MISCONF": "disk"}


class RedisTrouble(Exception):
    """A call failed; ``kind`` is one of `_KINDS` and `_WORDS`, or other."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def trouble(error: BaseException) -> RedisTrouble:
    """Return the `RedisTrouble` for an error of redis-py."""
    kind = next((kind for kinds, kind in _KINDS if isinstance(error, kinds)), None)
    text = str(error) or type(error).__name__
    return RedisTrouble(kind or _WORDS.get(text.partition(" ")[0], "other"), text)


def shown(url: str) -> str:
    """Return a Redis URL for a log, without user and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def redis_client(url: str, *, timeout: float = TIMEOUT) -> Redis:
    """Return a client that connects at its first call, once, within ``timeout`` seconds.

    Its calls have no limit of their own: use a `RedisConnection`, or `asyncio.timeout`. With one,
    redis-py uses asyncio.wait_for, which on Python 3.11 may swallow a cancellation.

    :raises ValueError: ``url`` is no redis, rediss or unix URL, or has a query, which could
        override the limit; the message does not have its password. Only the number of a socket's
        database is a query: unix:///path?db=1
    """
    parts = urlsplit(url)
    if parts.query and not (parts.scheme == "unix" and _DATABASE.fullmatch(parts.query)):
        raise ValueError(f"a Redis URL takes no query here: {shown(url)}")
    # No retries: redis-py's default hides a timeout behind ten tries. RESP2 needs no handshake.
    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,
        socket_connect_timeout=timeout,
        protocol=2,
        driver_info=None,
    )


class RedisClients:
    """One client for each URL of a Redis."""

    def __init__(self) -> None:
        self._clients: dict[str, Redis] = {}

    def open(self, url: str) -> Redis:
        """:raises ClusterError: ``url`` is not the URL of a Redis"""
        if url not in self._clients:
            try:
                self._clients[url] = redis_client(url)
            except ValueError as error:
                raise ClusterError(f"{shown(url)}: {error}") from error
        return self._clients[url]

    def of_member(self, record: MemberRecord | None) -> Redis | None:
        """Return the client of a node, None if it takes no messages."""
        # A node that leaves may not read messages that arrive now, and a dead one may not return:
        # what waits here goes to the new owner then.
        if record is None or record.leaving or record.dead:
            return None
        return self.open(record.member.redis)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class RedisConnection:
    """One connection to the server of ``client``, for one task at a time.

    A pool reconnects silently and hides that the server was replaced in between. Here a broken
    connection is an error; the next call connects anew.
    """

    def __init__(self, client: Redis) -> None:
        self._connection: AbstractConnection = client.connection_pool.make_connection()
        self._timeout: float = client.get_connection_kwargs()["socket_connect_timeout"]

    async def call(self, *command: str | bytes | int, is_bulk: bool = False) -> Any:
        """Return the reply to one command; ``is_bulk``: it or its reply may have megabytes.

        :raises RedisTrouble: the command failed, or has no reply in time
        """
        (reply,) = checked(await self.call_all(command, is_bulk=is_bulk))
        return reply

    async def call_all(
        self, *commands: Sequence[str | bytes | int], is_bulk: bool = False
    ) -> list[Any]:
        """Return the reply to each command; for a failed one, the ``ResponseError``.

        :raises RedisTrouble: there is no connection, or no reply in time
        """
        connection = self._connection
        packed = [part for command in commands for part in connection.pack_command(*command)]
        try:
            async with asyncio.timeout(self._timeout * (_BULK if is_bulk else 1)):
                if not connection.is_connected:
                    await connection.connect()
                await connection.send_packed_command(packed, check_health=False)
                return [await self._reply() for _ in commands]
        except BaseException as error:
            # Late replies must not be taken for those of the next call.
            await self.close()
            if isinstance(error, (exceptions.RedisError, OSError)):
                raise trouble(error) from error
            raise

    async def _reply(self) -> Any:
        try:
            # The whole call has a limit, so a single reply needs none.
            return await self._connection.read_response(timeout=math.inf)
        except exceptions.ResponseError as error:
            return error

    async def close(self) -> None:
        """It may be used again."""
        cut(self._connection)
        await self._connection.disconnect(nowait=True)


def checked(replies: Sequence[Any]) -> Sequence[Any]:
    """Return the replies.

    :raises RedisTrouble: one of them is an error
    """
    for reply in replies:
        if isinstance(reply, exceptions.ResponseError):
            raise trouble(reply) from reply
    return replies


class Backoff:
    """The wait after failed calls to one server, and the log of its outages.

    Each failure doubles the wait, from ``least`` to ``most`` seconds. ``chance``, from 0 to 1,
    takes off up to half, so that many nodes do not come back together. ``failed`` counts by kind.
    """

    def __init__(
        self,
        least: float,
        most: float,
        *,
        name: str,
        failed: Counter[str],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._least = self._next = least
        self._most = most
        self._name = name
        self._failed = failed
        self._chance = chance
        self._is_failing = False

    def fail(self, error: RedisTrouble) -> float:
        """Return the seconds to wait after a failure. Log the first of an outage."""
        self._failed[error.kind] += 1
        if not self._is_failing:
            logger.warning("%s failed, trying again: %s", self._name, error)
        self._is_failing = True
        wait = self._next * (1 - self._chance() / 2)
        self._next = min(self._next * 2, self._most)
        return wait

    def succeed(self) -> None:
        """Reset the wait. Log the end of an outage."""
        if self._is_failing:
            logger.info("%s works again", self._name)
        self._is_failing = False
        self._next = self._least


# The line of Redis's answer to INFO that names the process.
_RUN_ID = b"run_id:"


async def node_with_same_redis(own: Redis, others: Mapping[str, Redis]) -> str | None:
    """Return the first node whose Redis and database are those of ``own``, None if there is none.

    A Redis that does not answer, or not to INFO, is taken for another one.
    """
    mine, *theirs = await asyncio.gather(*map(_identity, (own, *others.values())))
    same = (node for node, each in zip(others, theirs, strict=True) if each and each == mine)
    return next(same, None)


async def _identity(client: Redis) -> tuple[bytes, int] | None:
    connection = RedisConnection(client)
    try:
        found: bytes = await connection.call("INFO", "server")
    except RedisTrouble:
        return None
    finally:
        await connection.close()
    run_id = next((line for line in found.splitlines() if line.startswith(_RUN_ID)), b"")
    return run_id, client.get_connection_kwargs().get("db", 0)
