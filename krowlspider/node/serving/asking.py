"""Questions and orders to the processes of a crawl, and to their metrics, over HTTP."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from krowlspider.crawl.monitoring.access import CONTROL_TOKEN, PAGE, noted_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

# Seconds in which a process answers, and for which one that does not is asked last.
_TIMEOUT = 4.5
_SILENT = 15.0
# Seconds for which a process may take no bytes of a file, or sync it.
_TIMEOUT_OF_FILE = 60.0
# Bytes of an answer: ten times what a process sends with all its series.
SIZE_MAX = 4_000_000


class Reply(NamedTuple):
    """The status and body of an answer."""

    status: int
    text: bytes

    @property
    def is_good(self) -> bool:
        return self.status == HTTPStatus.OK


async def asked(
    url: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = _TIMEOUT,
) -> Reply:
    """Return the answer to a request.

    :raises TimeoutError: there is none within ``seconds``
    :raises aiohttp.ClientError: there is none
    :raises ValueError: it is larger than any process sends
    """
    # Nothing compressed, which could be larger than it looks.
    identity = {"Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(seconds), headers=identity, auto_decompress=False
        ) as session,
        session.request(method, url, data=body, headers=headers) as response,
    ):
        found = bytearray()
        async for part in response.content.iter_any():
            found += part
            if len(found) > SIZE_MAX:
                raise ValueError(f"the answer has more than {SIZE_MAX:,} bytes")
        return Reply(response.status, bytes(found))


class Processes:
    """Asks the processes ``names`` below ``path``, which may become fewer.

    ``token`` is KROWL_CONTROL_TOKEN, "" without it.
    """

    def __init__(self, path: Path, names: Sequence[str], token: str):
        self.names = names
        self._path = path
        self._token = token
        # Until when a process that did not answer in time is asked last.
        self._silent: dict[str, float] = {}

    def url_of(self, process: str) -> str | None:
        """Return the URL of the page of a process; None if it has none now."""
        return noted_url(self._path / process, PAGE)

    def in_order(self) -> list[str]:
        """Return the processes with a page, those last that did not answer in time just now."""
        now = time.monotonic()
        with_page = [name for name in self.names if self.url_of(name) is not None]
        return sorted(with_page, key=lambda name: self._silent.get(name, 0.0) > now)

    async def ask_all(self, question: str) -> dict[str, Reply]:
        """Return the answer of each process that has one."""
        names = list(self.names)
        found = await asyncio.gather(*(self.ask(name, question) for name in names))
        every = zip(names, found, strict=True)
        return {name: answer for name, answer in every if answer is not None}

    async def ask(self, process: str, question: str) -> Reply | None:
        """Return the answer of a process to a question; None without one."""
        return await self._request("GET", process, question)

    async def order(
        self, process: str, name: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply | None:
        """Give a process an order, and return its answer; None without one."""
        every = {**headers, **self._access(process)}
        return await self._request("POST", process, name, body, every)

    async def _request(
        self,
        method: str,
        process: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply | None:
        if (url := self.url_of(process)) is None:
            return None
        place = f"{url}/api/v1/{path}"
        try:
            found = await asked(place, method=method, body=body, headers=headers)
        except TimeoutError:
            self._silent[process] = time.monotonic() + _SILENT
            return None
        except (aiohttp.ClientError, ValueError):
            return None
        self._silent.pop(process, None)
        return found

    async def send_file(
        self, process: str, pieces: AsyncIterator[bytes], headers: Mapping[str, str]
    ) -> Reply | None:
        """Send a process a file of URLs, and return its answer; None without one."""
        if (url := self.url_of(process)) is None:
            return None
        loop = asyncio.get_running_loop()

        def blocking() -> Iterator[bytes]:
            while True:
                future = asyncio.run_coroutine_threadsafe(_next(pieces), loop)
                if (piece := future.result()) is None:
                    return
                yield piece

        return await asyncio.to_thread(_send, url, blocking(), {**headers, **self._access(process)})

    def _access(self, process: str) -> dict[str, str]:
        token = self._token
        with suppress(OSError):
            token = token or (self._path / process / CONTROL_TOKEN).read_text().strip()
        return {"Authorization": f"Bearer {token}"}


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _send(url: str, pieces: Iterator[bytes], headers: Mapping[str, str]) -> Reply | None:
    """Send a file. An answer that comes before its end is read too: aiohttp's client loses it when
    the server has closed the connection."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_OF_FILE)
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", "/api/v1/import", pieces, dict(headers), encode_chunked=True)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
