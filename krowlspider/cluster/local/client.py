"""The register of a supervisor, as one of its processes calls it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from krowlspider.cluster.local.protocol import Answer, Question
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.register.port import SessionGoneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.cluster.register.port import Step
    from krowlspider.cluster.ring.live_members import RegisterEntry

# Seconds for a call: with the wait between two polls, a signal is heard within five seconds.
_TIMEOUT = 2.5


class LocalRegister:
    """A `Register` at a Unix socket: ``url`` is unix:///PATH."""

    is_supervised = True

    def __init__(self, url: str) -> None:
        self.name = f"the register of scrapy node at {url}"
        self._path = urlsplit(url).path

    async def _call(self, method: str, *arguments: object, wait: float = 0.0) -> Answer:
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
            answer = msgspec.msgpack.decode(text, type=Answer)
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
