"""The server of a register at a Unix socket, with a file of what a restart needs."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from krowlspider.cluster.local.protocol import Answer, Question
from krowlspider.cluster.local.store import RegisterStore
from krowlspider.cluster.register.port import SessionGoneError
from krowlspider.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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

    async def _call(self, method: str, arguments: list[Any]) -> Answer:
        store, answer = self.store, Answer()
        try:
            match method, arguments:
                case "get", [key]:
                    found = store.get(key)
                    return Answer(entries=[] if found is None else [found])
                case "list", [prefix]:
                    index, entries = store.list(prefix)
                    return Answer(entries=list(entries), index=index)
                case "wait_for_change", [folder, index, seconds]:
                    return Answer(await self._change_of(folder, index, seconds))
                case "transact", [steps]:
                    written = store.transact(steps)
                    answer = Answer(entries=None if written is None else list(written))
                case "open_session", [ttl]:
                    answer = Answer(store.open_session(ttl))
                case "renew_session", [session]:
                    store.renew_session(session)
                case "end_session", [session]:
                    store.end_session(session)
                case _:
                    raise ValueError(f"a register has no call {method!r}")
        except SessionGoneError as error:
            return Answer(str(error), gone=True)
        await self.save()
        return answer

    async def _change_of(self, folder: str, index: str | None, seconds: float) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds if index else 0.0), self._changed:
                await self._changed.wait_for(lambda: self.store.index(folder) != index)
        return self.store.index(folder)
