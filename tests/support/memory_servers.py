"""Consul and Redis in memory, for the nodes of a simulated cluster.

The real clients of this project talk to them: an `Agent` without its thread, and a connection in
place of redis-py's. ``now`` returns the simulated time in seconds.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from consul.exceptions import ClientError

from krowlspider.cluster.consul.agent import Agent, SessionGoneError
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.transport import list_reader
from krowlspider.cluster.transport.redis_connection import TIMEOUT, RedisClients

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds of each way of a call.
HOP = 0.002
# Consul ends a session at this many TTLs after its last renewal.
_SESSION_TTLS = 2
# Commands that write what another process reads.
_WRITES = frozenset({"LPUSH", "SET", "HSET"})
# Seconds between two looks of a blocking query.
_LOOK = 0.3
_REFUSED = ClientError("409 a step is refused")


@dataclass(eq=False)
class _Key:
    value: bytes
    modified: int
    session: str | None = None


class MemoryConsul:
    """An agent with the calls of py-consul that this project makes. ``is_down``: it is not there.

    A deleted key counts as a change of the keys below its prefix.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.is_down = False
        self._now = now
        self._index = 1
        self._numbers = count()
        self._keys: dict[str, _Key] = {}
        # TTL and end of each session.
        self._sessions: dict[str, tuple[float, float]] = {}
        self.kv = SimpleNamespace(get=self._get, put=self._put, delete=self._delete)
        self.txn = SimpleNamespace(put=self._transact)
        self.session = SimpleNamespace(
            create=self._create, renew=self._renew, destroy=self._end_session
        )
        self.agent = SimpleNamespace(
            service=SimpleNamespace(
                register=lambda *_, **__: True, deregister=lambda *_, **__: True
            ),
            check=SimpleNamespace(ttl_pass=lambda _: True),
        )

    def wipe(self) -> None:
        """Lose all data."""
        self._index += 1
        self._keys.clear()
        self._sessions.clear()

    def names(self, prefix: str) -> list[str]:
        return sorted(key for key in self._keys if key.startswith(prefix))

    def expire(self) -> None:
        """End the sessions whose time is over, and release the keys that they hold."""
        for session, (_, end) in list(self._sessions.items()):
            if end <= self._now():
                self._end_session(session)

    def put(self, key: str, value: str) -> None:
        self._set(key, value.encode(), None)

    def _create(self, _: str, *, ttl: float, behavior: str, **__: object) -> str:
        assert behavior == "release"
        session = f"session{next(self._numbers)}"
        self._sessions[session] = (ttl, self._now() + _SESSION_TTLS * ttl)
        return session

    def _renew(self, session: str) -> None:
        if session not in self._sessions:
            raise SessionGoneError(session)
        ttl, _ = self._sessions[session]
        self._sessions[session] = (ttl, self._now() + _SESSION_TTLS * ttl)

    def _end_session(self, session: str) -> None:
        self._sessions.pop(session, None)
        for key in self._keys.values():
            if key.session == session:
                self._index += 1
                key.session, key.modified = None, self._index

    def _remove(self, name: str) -> None:
        self._index += 1
        del self._keys[name]

    def _set(self, name: str, value: bytes, session: str | None) -> None:
        self._index += 1
        old = self._keys.get(name)
        self._keys[name] = _Key(value, self._index, session or (old and old.session))

    def _get(self, name: str, *, recurse: bool = False, **_: object) -> tuple[str, Any]:
        found = self.names(name) if recurse else [name] if name in self._keys else []
        entries = [self._shown(each, self._keys[each].value) for each in found]
        return str(self._index), (entries or None) if recurse else next(iter(entries), None)

    def _shown(self, name: str, value: bytes) -> dict[str, Any]:
        key = self._keys[name]
        shown = {"Key": name, "Value": value, "ModifyIndex": key.modified}
        return shown | ({"Session": key.session} if key.session else {})

    def _put(self, name: str, value: str | bytes, *, release: str | None = None) -> bool:
        self._set(name, value.encode() if isinstance(value, str) else value, None)
        if release is not None and self._keys[name].session == release:
            self._keys[name].session = None
        return True

    def _delete(self, name: str) -> bool:
        if name in self._keys:
            self._remove(name)
        return True

    def _transact(self, payload: Sequence[dict[str, Any]]) -> dict[str, Any]:
        steps = [each["KV"] for each in payload]
        for each in steps:
            if not self._allows(each):
                raise _REFUSED
        found: list[dict[str, Any]] = []
        for each in steps:
            found += self._do(each)
        return {"Results": [{"KV": each} for each in found]}

    def _allows(self, step: dict[str, Any]) -> bool:
        verb, key = step["Verb"], self._keys.get(step["Key"])
        if verb == "check-not-exists":
            return key is None
        if verb == "check-index":
            return key is not None and key.modified == step["Index"]
        if verb == "check-session":
            return key is not None and key.session == step["Session"] is not None
        if verb == "cas":
            return step["Index"] == (key.modified if key else 0)
        if verb == "lock":
            if step["Session"] not in self._sessions:
                raise SessionGoneError(step["Session"])
            return key is None or key.session in {None, step["Session"]}
        assert verb in {"set", "delete", "get-tree"}, verb
        return True

    def _do(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        verb, name = step["Verb"], step["Key"]
        if verb == "get-tree":
            return [self._in_answer(each, self._keys[each].value) for each in self.names(name)]
        if verb == "delete":
            self._delete(name)
        if verb not in {"set", "cas", "lock"}:
            return []
        self._set(name, b64decode(step["Value"]), step.get("Session"))
        return [self._in_answer(name, b"")]

    def _in_answer(self, name: str, value: bytes) -> dict[str, Any]:
        return self._shown(name, b64encode(value))  # type: ignore[arg-type]


class MemoryAgent(Agent):
    """The agent of one process, which calls a `MemoryConsul` while ``is_alive``."""

    def __init__(self, consul: MemoryConsul, is_alive: Callable[[], bool]) -> None:
        self.url = "http://consul.test"
        self._consul = consul  # type: ignore[assignment]
        self._is_alive = is_alive

    async def call(self, ask: Callable[[Any], Any], *, wait: float = 0.0) -> Any:
        await asyncio.sleep(HOP)
        consul = self._answering()
        found = ask(consul)
        await asyncio.sleep(HOP)
        return found

    def _answering(self) -> MemoryConsul:
        consul: MemoryConsul = self._consul  # type: ignore[assignment]
        if consul.is_down or not self._is_alive():
            raise UnansweredError("Consul cannot be reached")
        consul.expire()
        return consul

    async def wait_for_change(self, prefix: str, index: str | None, seconds: float) -> str:
        loop = asyncio.get_running_loop()
        end = loop.time() + (seconds if index else 0.0)
        while True:
            consul = self._answering()
            # A change of any key: as with Consul, an index may change without a change below.
            found, _ = consul.kv.get(prefix, recurse=True)
            if found != index or loop.time() >= end:
                await asyncio.sleep(HOP)
                return found
            await asyncio.sleep(_LOOK)

    def close(self) -> None:
        """Do nothing: there is no thread."""


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
        if script == list_reader._READ:
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
