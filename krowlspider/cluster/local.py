"""The register of a supervisor at a Unix socket: its calls, client, server and store."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode
from contextlib import closing, suppress
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.port import SessionGoneError, Step
from krowlspider.cluster.ring.live_members import RegisterEntry
from krowlspider.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class Question(msgspec.Struct, array_like=True):
    """A call of a method of `Register`, with its arguments."""

    method: str
    arguments: list[Any]


class RegisterReply(msgspec.Struct, array_like=True):
    """What a call has returned. ``entries`` are None for a transaction that is refused. ``gone``:
    the session has ended."""

    text: str = ""
    entries: list[RegisterEntry] | None = None
    index: int = 0
    gone: bool = False


# Seconds for a call: with the wait between two polls, a signal is heard within five seconds.
_TIMEOUT = 2.5


class LocalRegister:
    """A `Register` at a Unix socket: ``url`` is unix:///PATH."""

    is_supervised = True

    def __init__(self, url: str) -> None:
        self.name = f"the register of scrapy node at {url}"
        self._path = urlsplit(url).path

    async def _call(self, method: str, *arguments: object, wait: float = 0.0) -> RegisterReply:
        """:raises UnansweredError: there is no answer, or not in time"""
        try:
            async with asyncio.timeout(_TIMEOUT + wait):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    writer.write(msgspec.msgpack.encode(Question(method, list(arguments))))
                    writer.write_eof()
                    text = await reader.read()
                finally:
                    writer.close()
            answer = msgspec.msgpack.decode(text, type=RegisterReply)
        except (OSError, msgspec.DecodeError) as error:
            raise UnansweredError(f"{self.name} does not answer: is it still running?") from error
        if answer.gone:
            raise SessionGoneError(answer.text)
        return answer

    async def get(self, key: str) -> RegisterEntry | None:
        answer = await self._call("get", key)
        return next(iter(answer.entries or ()), None)

    async def list(self, prefix: str) -> tuple[int, Sequence[RegisterEntry]]:
        answer = await self._call("list", prefix)
        return answer.index, answer.entries or ()

    async def wait_for_change(self, prefix: str, index: str | None, seconds: float) -> str:
        return (await self._call("wait_for_change", prefix, index, seconds, wait=seconds)).text

    async def change(self, *steps: Step) -> bool:
        return await self.transact(*steps) is not None

    async def transact(self, *steps: Step) -> Sequence[RegisterEntry] | None:
        return (await self._call("transact", steps)).entries

    async def open_session(self, _: str, ttl: int) -> str:
        return (await self._call("open_session", ttl)).text

    async def renew_session(self, session: str) -> None:
        await self._call("renew_session", session)

    async def end_session(self, session: str) -> None:
        await self._call("end_session", session)

    def close(self) -> None:
        """Do nothing: each call has a connection of its own."""


# A session ends at so many TTLs after its last renewal.
_SESSION_TTLS = 2
_WRITES = frozenset({"set", "cas", "lock", "unlock"})


class RegisterStore:
    """Keys with their values, first those given, and sessions. ``now`` returns seconds."""

    def __init__(self, now: Callable[[], float], keys: Mapping[str, bytes]) -> None:
        self._now = now
        self._index = 1
        self._keys = {key: RegisterEntry(key, keys[key], None, 1) for key in keys}
        # The index of the last change below each folder, and TTL and end of each session.
        self._changed: dict[str, int] = {}
        self._sessions: dict[str, tuple[float, float]] = {}

    def get(self, key: str) -> RegisterEntry | None:
        self._expire()
        return self._keys.get(key)

    def list(self, prefix: str) -> tuple[int, Sequence[RegisterEntry]]:
        """Return the index of the register, and the keys below ``prefix`` in order."""
        self._expire()
        return self._index, [
            self._keys[key] for key in sorted(self._keys) if key.startswith(prefix)
        ]

    def index(self, folder: str) -> str:
        """Return the index of the last change in a folder, whose name ends with a slash."""
        self._expire()
        return str(self._changed.get(folder, 1))

    def transact(self, steps: Sequence[Step]) -> Sequence[RegisterEntry] | None:
        """As of `Register`."""
        self._expire()
        if not all(map(self._allows, steps)):
            return None
        return [entry for step in steps for entry in self._do(step)]

    def _allows(self, step: Mapping[str, Any]) -> bool:
        verb, entry = step["Verb"], self._keys.get(step["Key"])
        if verb == "lock" and step["Session"] not in self._sessions:
            raise SessionGoneError(f"no session {step['Session']}")
        session = None if entry is None else entry.session
        match verb:
            case "check-not-exists":
                return entry is None
            case "check-index":
                return entry is not None and entry.modified == step["Index"]
            case "check-session" | "unlock":
                return session is not None and session == step["Session"]
            case "cas":
                return bool(step["Index"] == (entry.modified if entry else 0))
            case "lock":
                return session in {None, step["Session"]}
            case "set" | "delete" | "get-tree":
                return True
        raise ValueError(f"a register has no step {verb!r}")

    def _do(self, step: Mapping[str, Any]) -> Sequence[RegisterEntry]:
        verb, key = step["Verb"], step["Key"]
        if verb == "get-tree":
            return self.list(key)[1]
        if verb == "delete" and self._keys.pop(key, None) is not None:
            self._count_change(key)
        if verb not in _WRITES:
            return ()
        before = self._keys.get(key)
        session = before.session if before else None
        session = {"lock": step.get("Session"), "unlock": None}.get(verb, session)
        entry = RegisterEntry(key, b64decode(step["Value"]), session, self._count_change(key))
        self._keys[key] = entry
        return [replace(entry, value=b"")]

    def _count_change(self, key: str) -> int:
        self._index += 1
        self._changed[key[: key.rindex("/") + 1]] = self._index
        return self._index

    def open_session(self, ttl: float) -> str:
        session = token_hex(8)
        self._sessions[session] = ttl, self._now() + _SESSION_TTLS * ttl
        return session

    def renew_session(self, session: str) -> None:
        """:raises SessionGoneError: the session has ended"""
        self._expire()
        if session not in self._sessions:
            raise SessionGoneError(f"no session {session}")
        ttl, _ = self._sessions[session]
        self._sessions[session] = ttl, self._now() + _SESSION_TTLS * ttl

    def end_session(self, session: str) -> None:
        self._sessions.pop(session, None)
        for key, entry in self._keys.items():
            if entry.session == session:
                self._keys[key] = replace(entry, session=None, modified=self._count_change(key))

    def _expire(self) -> None:
        now = self._now()
        for session in [each for each, (_, end) in self._sessions.items() if end <= now]:
            self.end_session(session)


logger = logging.getLogger(__name__)

# Keys with this in their name are of running processes alone.
_BEATS = "/beats/"


class RegisterServer:
    """The register that ``path`` keeps: all keys but heartbeats, with none before the first start.

    A change is answered when ``write`` has made the text of the file durable.

    :raises JobError: the file cannot be read
    """

    def __init__(self, path: Path, write: Callable[[Path, str], None]) -> None:
        self._path = path
        self._write = write
        self.is_new = not path.exists()
        self._kept: Mapping[str, bytes] = {}
        if not self.is_new:
            try:
                self._kept = msgspec.json.decode(path.read_bytes(), type=dict[str, bytes])
            except (OSError, msgspec.DecodeError) as error:
                raise JobError(
                    f"{path} cannot be read ({error}): put it back from a copy"
                ) from error
        self.store = RegisterStore(time.monotonic, self._kept)
        self._saving = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def open(self, socket: Path) -> None:
        self._server = await asyncio.start_unix_server(self._answer, socket)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def release(self, node: str) -> None:
        """End the lease of a node whose process has ended.

        :raises OSError: the disk failed
        """
        for entry in self.store.list("")[1]:
            if entry.node == node and entry.session:
                self.store.end_session(entry.session)
        await self.save()

    async def save(self) -> None:
        """Make all changes so far durable, and known to those who wait for one.

        :raises OSError: the disk failed
        """
        async with self._saving:
            _, entries = self.store.list("")
            kept = {each.key: each.value for each in entries if _BEATS not in each.key}
            if kept != self._kept:
                text = msgspec.json.encode(kept).decode()
                await asyncio.to_thread(self._write, self._path, text)
                self._kept = kept
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A caller that gives up, or dies, leaves a question without its end, or one that waits
        # until the event loop ends: asyncio would log that as an error.
        given_up = ConnectionError, msgspec.DecodeError, asyncio.CancelledError
        with suppress(*given_up), closing(writer):
            question = msgspec.msgpack.decode(await reader.read(), type=Question)
            try:
                answer = await self._call(question.method, question.arguments)
            except OSError as error:
                # The caller tries again.
                logger.error("The register %s cannot be written: %s", self._path, error)
                return
            writer.write(msgspec.msgpack.encode(answer))
            await writer.drain()

    async def _call(self, method: str, arguments: list[Any]) -> RegisterReply:
        store, answer = self.store, RegisterReply()
        try:
            match method, arguments:
                case "get", [key]:
                    found = store.get(key)
                    return RegisterReply(entries=[] if found is None else [found])
                case "list", [prefix]:
                    index, entries = store.list(prefix)
                    return RegisterReply(entries=list(entries), index=index)
                case "wait_for_change", [folder, index, seconds]:
                    return RegisterReply(await self._change_of(folder, index, seconds))
                case "transact", [steps]:
                    written = store.transact(steps)
                    answer = RegisterReply(entries=None if written is None else list(written))
                case "open_session", [ttl]:
                    answer = RegisterReply(store.open_session(ttl))
                case "renew_session", [session]:
                    store.renew_session(session)
                case "end_session", [session]:
                    store.end_session(session)
                case _:
                    raise ValueError(f"a register has no call {method!r}")
        except SessionGoneError as error:
            return RegisterReply(str(error), gone=True)
        await self.save()
        return answer

    async def _change_of(self, folder: str, index: str | None, seconds: float) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds if index else 0.0), self._changed:
                await self._changed.wait_for(lambda: self.store.index(folder) != index)
        return self.store.index(folder)
