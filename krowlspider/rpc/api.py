"""Questions and orders to a crawl under way, by the API of its live page."""

from __future__ import annotations

import asyncio
import time
from math import ceil, inf
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
# Requests that take as much as two: they look at many hosts.
_OF_MANY_HOSTS = frozenset({"/api/v1/block", "/api/v1/unblock", "/api/v1/hosts"})
# URLs in them, each a twentieth of a millisecond, and seconds for which they wait for their turn.
_URLS_RATE = 200.0
URLS_BURST = 10_000
_URLS_WAIT = 20.0
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

    def wait(self, count: int = 1) -> float:
        """Return the seconds until the next ones may pass."""
        last = max(self._next, self._earliest) + (count - 1) / self._rate
        return max(0.0, last - self._clock())

    def take(self, count: int = 1) -> None:
        """Let them pass."""
        self._next = max(self._next, self._earliest) + count / self._rate


class Api:
    """Asks the crawl in ``folder``, with the token of its orders, at a rate that costs it little.

    Use it as an asynchronous context manager. ``clock`` returns monotonic seconds.
    """

    def __init__(self, folder: Path, token: str, clock: Callable[[], float] = time.monotonic):
        self._folder = folder
        self._access = {"Authorization": f"Bearer {token}"}
        self._bucket = TokenBucket(clock=clock)
        self._urls_bucket = TokenBucket(_URLS_RATE, URLS_BURST, clock)
        self._urls_waiting = 0
        # Whoever waits for its turn here leaves the queue when its call ends.
        self._turn, self._urls_turn = asyncio.Lock(), asyncio.Lock()
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

    async def order(self, name: str, body: bytes, who: str, urls: int = 0) -> dict[str, Any]:
        """Give an order, or a file with so many ``urls`` to ``import``, for ``who``; return its
        outcome. Raises as `get`."""
        if urls:
            await self._await_urls(urls)
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

    async def _await_urls(self, count: int) -> None:
        """Wait until the crawl may be given so many URLs.

        :raises ApiError: that would take long
        """
        wait = self._urls_bucket.wait(self._urls_waiting + count)
        if wait > _URLS_WAIT:
            raise ApiError(
                429,
                f"more than {_URLS_RATE:g} URLs a second: send these again in {ceil(wait)} s, or"
                " give a file to POST /api/v1/import of the live page",
            )
        self._urls_waiting += count
        try:
            async with self._urls_turn:
                await asyncio.sleep(self._urls_bucket.wait(count))
                self._urls_bucket.take(count)
        finally:
            self._urls_waiting -= count

    async def _ask(self, method: str, path: str, **given: Any) -> Any:
        cost = 2 if path in _OF_MANY_HOSTS else 1
        async with self._turn:
            await asyncio.sleep(self._bucket.wait(cost))
            self._bucket.take(cost)
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
