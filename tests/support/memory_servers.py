"""A register and Redis in memory, for the nodes of a simulated cluster.

Redis is reached by a connection in place of redis-py's. ``now`` returns the simulated time in
seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from hashlib import sha1
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider.cluster.local import RegisterStore
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.port import Step, step
from krowlspider.cluster.transport import inbox
from krowlspider.cluster.transport.redis_connection import TIMEOUT, RedisClients

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krowlspider.cluster.ring.live_members import RegisterEntry

# Seconds of each way of a call.
HOP = 0.002
# Commands that write what another process reads.
_WRITES = frozenset({"LPUSH", "SET", "HSET"})
# Seconds between two looks of a blocking query.
_LOOK = 0.3
_T = TypeVar("_T")


class MemoryConsul(RegisterStore):
    """The register of `scrapy node` in place of Consul's. ``is_down``: it is not there."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now, {})
        self.is_down = False

    def wipe(self) -> None:
        """Lose all data."""
        super().__init__(self._now, {})

    def names(self, prefix: str) -> list[str]:
        return [entry.key for entry in self.list(prefix)[1]]

    def put(self, key: str, value: str) -> None:
        self.transact([step("set", key, value)])


class MemoryAgent:
    """The `Register` of one process, which calls a `MemoryConsul` while ``is_alive``."""

    name = "Consul at http://consul.test"
    is_supervised = False

    def __init__(self, consul: MemoryConsul, is_alive: Callable[[], bool]) -> None:
        self._consul = consul
        self._is_alive = is_alive

    async def _call(self, ask: Callable[..., _T], *arguments: Any) -> _T:
        await asyncio.sleep(HOP)
        if self._consul.is_down or not self._is_alive():
            raise UnansweredError("Consul cannot be reached")
        found = ask(*arguments)
        await asyncio.sleep(HOP)
        return found

    async def get(self, key: str) -> RegisterEntry | None:
        return await self._call(self._consul.get, key)

    async def list(self, prefix: str) -> tuple[int, Sequence[RegisterEntry]]:
        return await self._call(self._consul.list, prefix)

    async def change(self, *steps: Step) -> bool:
        return await self.transact(*steps) is not None

    async def transact(self, *steps: Step) -> Sequence[RegisterEntry] | None:
        return await self._call(self._consul.transact, steps)

    async def open_session(self, _: str, ttl: int) -> str:
        return await self._call(self._consul.open_session, ttl)

    async def renew_session(self, session: str) -> None:
        await self._call(self._consul.renew_session, session)

    async def end_session(self, session: str) -> None:
        await self._call(self._consul.end_session, session)

    async def wait_for_change(self, prefix: str, index: str | None, seconds: float) -> str:
        loop = asyncio.get_running_loop()
        end = loop.time() + (seconds if index else 0.0)
        while True:
            found = await self._call(self._consul.index, prefix)
            if found != index or loop.time() >= end:
                return found
            await asyncio.sleep(_LOOK)

    def close(self) -> None:
        """Do nothing: there is no connection."""


@dataclass(eq=False)
class MemoryRedis:
    """A server. While it is frozen, it takes commands and does them when it thaws.

    ``pushed`` counts the messages that came, by list. ``changed_at`` is the time of the last write.
    """

    data: dict[str, Any] = field(default_factory=dict)
    pushed: Counter[str] = field(default_factory=Counter)
    is_down: bool = False
    changed_at: float = 0.0
    _is_frozen: bool = False
    _waiting: list[tuple[Any, ...]] = field(default_factory=list)

    def wipe(self) -> None:
        """Lose all data."""
        self.data.clear()

    @property
    def is_frozen(self) -> bool:
        return self._is_frozen

    def freeze(self) -> None:
        self._is_frozen = True

    def thaw(self) -> None:
        self._is_frozen = False
        for command in self._waiting:
            self.do(command)
        self._waiting.clear()

    def late(self, command: tuple[Any, ...]) -> None:
        self._waiting.append(command)

    def do(self, command: tuple[Any, ...]) -> Any:
        verb, key, *rest = command
        return getattr(self, f"_{verb.lower()}")(key, *rest)

    def _list(self, key: str) -> deque[bytes]:
        """Return a list, the newest message first."""
        return self.data.setdefault(key, deque())

    def _info(self, _: str) -> bytes:
        return f"run_id:{id(self)}\r\n".encode()

    def _llen(self, key: str) -> int:
        return len(self._list(key))

    def _lpush(self, key: str, *messages: bytes) -> int:
        self._list(key).extendleft(messages)
        self.pushed[key] += len(messages)
        return len(self._list(key))

    def _ltrim(self, key: str, *_: int) -> bytes:
        return b"OK"

    def _del(self, *keys: str) -> int:
        return sum(self.data.pop(key, None) is not None for key in keys)

    def _mget(self, *keys: str) -> list[bytes | None]:
        return [self.data.get(key) for key in keys]

    def _set(self, key: str, value: Any, *_: object) -> bytes:
        self.data[key] = str(value).encode() if isinstance(value, (int, str)) else value
        return b"OK"

    def _hset(self, key: str, *fields: Any) -> int:
        found = self.data.setdefault(key, {})
        found.update(zip(fields[::2], fields[1::2], strict=True))
        return len(fields) // 2

    def _hget(self, key: str, field: str) -> bytes | None:
        found: bytes | None = self.data.get(key, {}).get(field)
        return found

    def _eval(self, script: str, _: int, key: str, count: int, last: Any) -> list[bytes] | None:
        """Do the scripts of `ListReader`."""
        messages = self._list(key)
        if script == inbox._READ:
            return list(messages)[-count:][::-1]
        newest_first = list(messages)[-count:]
        if sha1(b"".join(newest_first), usedforsecurity=False).hexdigest() == last:
            for _ in range(count):
                messages.pop()
        return None


class _Connection:
    _writer = None
    is_connected = True

    def __init__(self, server: MemoryRedis, is_alive: Callable[[], bool]) -> None:
        self._server = server
        self._is_alive = is_alive
        self._replies: deque[Any] = deque()

    def pack_command(self, *command: Any) -> list[tuple[Any, ...]]:
        return [command]

    async def connect(self) -> None:
        """Do nothing: it is connected."""

    async def send_packed_command(
        self, commands: Sequence[tuple[Any, ...]], *, check_health: bool
    ) -> None:
        await asyncio.sleep(HOP)
        server = self._server
        if server.is_down or not self._is_alive():
            raise ConnectionRefusedError(111, "refused")
        if server.is_frozen:
            for command in commands:
                server.late(command)
            await asyncio.Future()
        # The loop of another process may be ahead: nothing is read before it was written.
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, server.changed_at - loop.time()))
        if any(command[0] in _WRITES for command in commands):
            server.changed_at = loop.time()
        self._replies.extend(map(server.do, commands))
        await asyncio.sleep(HOP)

    async def read_response(self, *, timeout: float) -> Any:
        return self._replies.popleft()

    async def disconnect(self, *, nowait: bool) -> None:
        self._replies.clear()


class _Client:
    def __init__(self, server: MemoryRedis, is_alive: Callable[[], bool]) -> None:
        self.connection_pool = SimpleNamespace(
            make_connection=lambda: _Connection(server, is_alive)
        )

    def get_connection_kwargs(self) -> dict[str, Any]:
        return {"socket_connect_timeout": TIMEOUT, "db": 0}

    async def aclose(self) -> None:
        """Do nothing: it has no connection of its own."""


class MemoryClients(RedisClients):
    """The clients of one process: of the servers in memory, by URL, while ``is_alive``."""

    def __init__(
        self, servers: defaultdict[str, MemoryRedis], is_alive: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._servers = servers
        self._is_alive = is_alive

    def open(self, url: str) -> Any:
        if url not in self._clients:
            self._clients[url] = _Client(self._servers[url], self._is_alive)
        return self._clients[url]
