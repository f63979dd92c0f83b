"""Questions and orders to a crawl under way, by the API of its live page."""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
import msgspec

from krowlspider.errors import KrowlError
from krowlspider.job.monitoring.access import PAGE, noted_url
from krowlspider.views.live_page import FOR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

# Requests to the crawl a second, each some milliseconds of its event loop, and those that may come
# at once after a rest.
_RATE = 5.0
_BURST = 20
# Requests under way at a time: the live page has eight connections for all its clients.
_AT_ONCE = 2
# Seconds for which an answer is used again, and how many different ones are kept.
_FRESH = 1.0
_RECENT_MAX = 100
# Seconds of a request. A file of URLs may take as long as the call that brings it.
_TIMEOUT = 25.0


class ApiError(KrowlError):
    """The crawl does not answer as asked: the status is that of HTTP."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


class TokenBucket:
    """Says when the next one may pass: ``rate`` a second, and ``burst`` at once after a rest.
    ``clock`` returns monotonic seconds."""

    def __init__(
        self, rate: float = _RATE, burst: int = _BURST, clock: Callable[[], float] = time.monotonic
    ):
        self._rate, self._burst, self._clock = rate, burst, clock
        self._next = self._earliest

    @property
    def _earliest(self) -> float:
        return self._clock() - (self._burst - 1) / self._rate

    def wait(self) -> float:
        """Return the seconds until the next one may pass."""
        return max(0.0, self._next - self._clock())

    def take(self) -> None:
        """Let it pass."""
        self._next = max(self._next, self._earliest) + 1 / self._rate


class Api:
    """Asks the crawl in ``folder``, with the token of its orders, at a rate that costs it little.

    Use it as an asynchronous context manager.
    """

    def __init__(self, folder: Path, token: str):
        self._folder = folder
        self._access = {"Authorization": f"Bearer {token}"}
        self._bucket = TokenBucket()
        # Whoever waits for its turn here leaves the queue when its call ends.
        self._turn = asyncio.Lock()
        self._free = asyncio.Semaphore(_AT_ONCE)
        # When each question was asked, and its answer.
        self._recent: dict[str, tuple[float, asyncio.Task[Any]]] = {}

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, name: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the answer to a question, that of the last second if there is one.

        :raises ApiError: it is refused, or the crawl does not answer
        """
        key, now = f"{name}?{urlencode(query or {})}", time.monotonic()
        asked, task = self._recent.get(key, (-inf, None))
        if task is None or now - asked >= _FRESH:
            given = {"params": query, "headers": self._access}
            task = asyncio.create_task(self._ask("GET", f"/api/v1/{name}", **given))
            if len(self._recent) >= _RECENT_MAX:
                self._recent.clear()
            self._recent[key] = now, task
        # Others may wait for it.
        return await asyncio.shield(task)

    async def order(self, name: str, body: bytes, who: str) -> dict[str, Any]:
        """Give an order, or a file to ``import``, for ``who``; return its outcome. Raises as
        `get`."""
        headers = {**self._access, FOR: who}
        self._recent.clear()
        found: dict[str, Any] = await self._ask(
            "POST", f"/api/v1/{name}", data=body, headers=headers
        )
        return found

    async def is_ready(self) -> bool:
        """Return whether the crawl may fetch."""
        try:
            await self._ask("GET", "/readyz", headers=self._access)
        except ApiError:
            return False
        return True

    async def _ask(self, method: str, path: str, **given: Any) -> Any:
        async with self._turn:
            await asyncio.sleep(self._bucket.wait())
            self._bucket.take()
        if (url := noted_url(self._folder, PAGE)) is None:
            raise ApiError(503, "the live page of the crawl is not there: try again later")
        try:
            async with (
                self._free,
                self._session.request(method, url + path, **given) as answer,
            ):
                body = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(
                503, f"the crawl does not answer: {error or 'no answer in time'}"
            ) from error
        if path == "/readyz":
            found: Any = body.decode(errors="replace")
        else:
            try:
                found = msgspec.json.decode(body)
            except msgspec.DecodeError as error:
                if 400 <= answer.status < 500:
                    # Of the server of HTTP, which has not understood it: a URL may be too long.
                    raise ApiError(400, "the request is too long, or not well formed") from error
                raise ApiError(502, f"the crawl's answer is not JSON: {error}") from error
        if answer.status != 200:
            why = found.get("error") if isinstance(found, dict) else found
            raise ApiError(answer.status, str(why))
        return found
