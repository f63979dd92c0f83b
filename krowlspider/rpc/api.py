"""Questions and orders to a crawl under way, by the API of its live page."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from krowlspider.errors import KrowlError
from krowlspider.job.monitoring.access import PAGE, noted_url
from krowlspider.views.live_page import FOR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

# Requests to the crawl a second, each about a millisecond of its event loop, and those that may
# come at once after a rest.
_RATE = 20.0
_BURST = 20
# Requests under way at a time: the live page has eight connections for all its clients.
_AT_ONCE = 2
# Seconds for which the figures of the crawl are used again.
_FRESH = 1.0
# Seconds of a request. A file of URLs may take as long as the call that brings it.
_TIMEOUT = 25.0


class ApiError(KrowlError):
    """The crawl does not answer as asked: the status is that of HTTP."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


class Bucket:
    """Lets ``rate`` pass a second, and ``burst`` at once after a rest. ``clock`` returns monotonic
    seconds."""

    def __init__(
        self, rate: float = _RATE, burst: int = _BURST, clock: Callable[[], float] = time.monotonic
    ):
        self._rate, self._burst, self._clock = rate, burst, clock
        # When the last one that was let in has its turn.
        self._next = clock() - burst / rate

    def wait(self) -> float:
        """Take a place; return the seconds until its turn."""
        now = self._clock()
        self._next = max(self._next, now - self._burst / self._rate) + 1 / self._rate
        return max(0.0, self._next - now)


class Api:
    """Asks the crawl in ``folder``, with the token of its orders, at a rate that costs it little.

    Use it as an asynchronous context manager.
    """

    def __init__(self, folder: Path, token: str):
        self._folder = folder
        self._access = {"Authorization": f"Bearer {token}"}
        self._bucket = Bucket()
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._status: tuple[float, dict[str, Any]] | None = None
        self._asking_status = asyncio.Lock()

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, name: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the answer to a question.

        :raises ApiError: it is refused, or the crawl does not answer
        """
        return await self._ask("GET", f"/api/v1/{name}", params=query, headers=self._access)

    async def order(self, name: str, body: bytes, who: str) -> dict[str, Any]:
        """Give an order, or a file to ``import``, for ``who``; return its outcome. Raises as
        `get`."""
        headers = {**self._access, FOR: who}
        found: dict[str, Any] = await self._ask(
            "POST", f"/api/v1/{name}", data=body, headers=headers
        )
        return found

    async def status(self) -> dict[str, Any]:
        """Return the figures of the crawl, at most a second old. Raises as `get`."""
        async with self._asking_status:
            if self._status is None or time.monotonic() - self._status[0] >= _FRESH:
                found = await self.get("status")
                self._status = time.monotonic(), found
            return self._status[1]

    async def is_ready(self) -> bool:
        """Return whether the crawl may fetch."""
        try:
            await self._ask("GET", "/readyz", headers=self._access)
        except ApiError:
            return False
        return True

    async def _ask(self, method: str, path: str, **given: Any) -> Any:
        await asyncio.sleep(self._bucket.wait())
        if (url := noted_url(self._folder, PAGE)) is None:
            raise ApiError(503, "the live page of the crawl is not there: try again later")
        try:
            async with (
                self._free,
                self._session.request(method, url + path, **given) as answer,
            ):
                body = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(503, f"the crawl does not answer: {error or 'too late'}") from error
        if path == "/readyz":
            found: Any = body.decode(errors="replace")
        else:
            try:
                found = msgspec.json.decode(body)
            except msgspec.DecodeError as error:
                raise ApiError(502, f"the crawl's answer is not JSON: {error}") from error
        if answer.status != 200:
            why = found.get("error") if isinstance(found, dict) else found
            raise ApiError(answer.status, str(why))
        return found
