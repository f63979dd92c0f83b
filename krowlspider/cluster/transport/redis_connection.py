"""Redis, every call of it bounded in time, and its troubles told apart."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from krowlspider.internals.redis import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redis.asyncio.connection import AbstractConnection

# Seconds for a call, connecting and for the handshake each. Redis answers within milliseconds, or is in trouble.
PATIENCE = 2.0

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
# How Redis begins errors that redis-py has no class for: a key that holds no list; a disk that takes no snapshot.
_WORDS = {"WRONGTYPE": "type", "MISCONF": "disk"}


class RedisTrouble(Exception):
    """A call failed. ``kind``: down, timeout, loading, auth, full, readonly, type (the key holds no list), disk (Redis
    cannot save), or other."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def trouble(error: BaseException) -> RedisTrouble:
    """What an error of redis-py is to us."""
    kind = next((kind for kinds, kind in _KINDS if isinstance(error, kinds)), None)
    text = str(error) or type(error).__name__
    return RedisTrouble(kind or _WORDS.get(text.partition(" ")[0], "other"), text)


def shown(url: str) -> str:
    """A Redis URL as it may stand in a log: without user and password. What is no URL is not shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "what is no URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def redis_client(url: str, *, patience: float = PATIENCE) -> Redis:
    """A client that tries once and connects at its first call, for ``patience`` seconds at most. What else it is asked
    has no bound of its own: use a `RedisConnection`, or `asyncio.timeout`. With one, redis-py sends by asyncio.wait_for, which
    on Python 3.11 may swallow a cancellation.

    ``redis://``, ``rediss://`` (certificates by the machine's authorities, or those of SSL_CERT_FILE) or ``unix://``,
    without a query: URLs come from other nodes too, and a query could undo any of these bounds.

    :raises ValueError: it is no such URL; the message does not show its password
    """
    if urlsplit(url).query:
        raise ValueError(f"a Redis URL takes no query here: {shown(url)}")
    # redis-py's own default hides a timeout of 2 s behind ten tries. RESP2 takes no handshake but what is named in the URL.
    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,
        socket_connect_timeout=patience,
        protocol=2,
        driver_info=None,
    )


class RedisConnection:
    """One connection to the server of ``client``, for one task at a time: batches of commands, and their replies.

    A pool would connect again in silence, and hide that the server was another one in between. Here every break is an
    error, after which the next call connects anew.
    """

    def __init__(self, client: Redis) -> None:
        self._connection: AbstractConnection = client.connection_pool.make_connection()
        self._patience: float = client.get_connection_kwargs()["socket_connect_timeout"]

    def pack(self, *command: str | bytes | int) -> bytes:
        return b"".join(self._connection.pack_command(*command))

    def pack_each(self, command: Sequence[str | bytes | int], last: Iterable[bytes]) -> list[bytes]:
        """`pack` of a command with each last argument: 0.2 µs, where each by itself takes 3."""
        head = self.pack(*command, b"").removesuffix(b"$0\r\n\r\n")
        return [b"%b$%d\r\n%b\r\n" % (head, len(each), each) for each in last]

    async def talk(self, *commands: Sequence[str | bytes | int]) -> list[Any]:
        """The reply to each; an error of one command is its reply, a ``ResponseError``.

        :raises RedisTrouble: there is no connection, or no answer
        """
        packed = [part for command in commands for part in self._connection.pack_command(*command)]
        return await self.send(packed, len(commands))

    async def send(
        self, packed: Sequence[bytes], replies: int, patience: float | None = None
    ) -> list[Any]:
        """As `talk`, of commands as `pack` gives them; ``replies`` is how many come back, ``patience`` seconds for all."""
        connection = self._connection
        try:
            async with asyncio.timeout(self._patience if patience is None else patience):
                if not connection.is_connected:
                    await connection.connect()
                await connection.send_packed_command(packed, check_health=False)
                return [await self._reply() for _ in range(replies)]
        except BaseException as error:
            # The answers that are still to come must not be taken for those of the next call.
            await self.close()
            if isinstance(error, (exceptions.RedisError, OSError)):
                raise trouble(error) from error
            raise

    async def _reply(self) -> Any:
        try:
            # The whole exchange has a bound: no other for each reply.
            return await self._connection.read_response(timeout=math.inf)
        except exceptions.ResponseError as error:
            return error

    async def close(self) -> None:
        """It may be used again."""
        cut(self._connection)
        await self._connection.disconnect(nowait=True)


def checked(replies: Sequence[Any]) -> Sequence[Any]:
    """The replies, when none is an error.

    :raises RedisTrouble: the first of them
    """
    for reply in replies:
        if isinstance(reply, exceptions.ResponseError):
            raise trouble(reply) from reply
    return replies


class Backoff:
    """How long to leave a server alone: doubled by each failure, from ``least`` to ``most`` seconds, of which ``chance``
    (from 0 to 1) takes up to half, so that many nodes do not come back at once."""

    def __init__(self, least: float, most: float, chance: Callable[[], float]) -> None:
        self._least = least
        self._most = most
        self._chance = chance
        self._next = least

    def failed(self) -> float:
        """Seconds to wait from now on."""
        wait = self._next * (1 - self._chance() / 2)
        self._next = min(self._next * 2, self._most)
        return wait

    def worked(self) -> None:
        self._next = self._least
