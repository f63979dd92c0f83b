"""Ask the processes of a crawl over HTTP, and give them orders, for the page of all of them."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from krowlspider.crawl.monitoring.access import CONTROL_TOKEN, PAGE, noted_url
from krowlspider.crawl.monitoring.endpoint import MORE_TIME
from krowlspider.engine.control import HOSTS_MAX, PAGES_MAX
from krowlspider.errors import KrowlError
from krowlspider.frontier.admin.words import counted
from krowlspider.node.serving.together import (
    history_of_all,
    hosts_of_all,
    pages_of_all,
    status_of_all,
)
from krowlspider.node.words import DIVIDED
from krowlspider.views.control.api import BODY_MAX, as_json, failed, unauthorised
from krowlspider.views.control.live_page import page_routes
from krowlspider.views.control.order_fields import ORDERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.node.serving.together import Served

# Seconds in which a process answers, and for which the status of all is shown again.
_TIMEOUT = 4.5
_FRESH = 1.0
# Orders that hold at the process alone that gets them. All others reach each process by themselves.
_OF_ONE = ("reload", "set")
_NO_SNAPSHOT = "a crawl of several processes has no snapshot: stop it, and copy the whole folder"
_NO_LIMIT = "all processes share max_pages: give another at the next start"


class CrawlOfAll:
    """Answers as the live page of one process does, for the processes of ``crawl``.

    ``token`` is that of the page. ``given`` is KROWL_CONTROL_TOKEN, "" without it.
    """

    def __init__(self, crawl: Served, token: str, given: str):
        self._tree = crawl.tree
        self._processes = crawl.processes
        self._figures = crawl.figures
        self._crawl = crawl
        self._token = token.encode()
        self._given = given
        # The last status, when it was made, and its making.
        self._status: dict[str, Any] = {}
        self._made = float("-inf")
        self._asking: asyncio.Task[dict[str, Any]] | None = None

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path."""
        answers: dict[str, Route] = {
            "status": self._shown(self.status),
            "history": self._shown(self._history),
            "pages": self._merged("pages", self._pages),
            "hosts": self._merged("hosts", self._hosts),
            "nodes": self._shown(self._nodes),
            "host": partial(self._of_one, "host"),
            "answers": partial(self._of_one, "answers"),
            "explain": self._explain,
            "snapshot": lambda _: failed(HTTPStatus.CONFLICT, _NO_SNAPSHOT),
        }
        orders: dict[str, Route] = {
            f"POST /api/v1/{name}": partial(self._order, name) for name in ORDERS
        }
        orders["POST /api/v1/import"] = self._import
        return page_routes(answers, lambda _: self._recent_status(), orders)

    # --- questions ---

    async def status(self) -> dict[str, Any]:
        """Return the figures of all, made at most a second ago."""
        if time.monotonic() >= self._made + _FRESH:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask_status())
            return await asyncio.shield(self._asking)
        return self._status

    def _recent_status(self) -> dict[str, Any]:
        """Return the last figures, and have new ones made."""
        if time.monotonic() >= self._made + _FRESH and (
            self._asking is None or self._asking.done()
        ):
            self._asking = asyncio.create_task(self._ask_status())
        return self._status or self._figures_of_folders()

    async def _ask_status(self) -> dict[str, Any]:
        found = await self._ask("status")
        total = status_of_all(found) if found else self._figures_of_folders()
        # What processes had done that have died.
        for name, count in self._figures.before().items():
            if name in ("done", "archive_mb"):
                total[name] += count
        total |= {"folder": str(self._tree.path), "of": self._crawl.max_pages or None}
        self._status, self._made = total, time.monotonic()
        return total

    def _figures_of_folders(self) -> dict[str, Any]:
        """Return what the processes have last written of themselves."""
        total = self._figures.total()
        counts = ("done", "queued", "deferred", "hosts", "due", "in_flight", "archive_mb")
        return {
            **{name: total[name] for name in counts},
            "spider": self._crawl.spider,
            "folder": str(self._tree.path),
            "seconds": 0.0,
            "of": self._crawl.max_pages or None,
            "fetched": self._figures.fetched(),
            "dropped": {},
            "statuses": {},
            "failed": {},
            "paused": self._figures.paused(),
        }

    async def _history(self) -> dict[str, Any]:
        return history_of_all((await self._ask("history")).values())

    async def _nodes(self) -> list[dict[str, Any]]:
        """Return what a process says of all, with the page of each."""
        found: list[dict[str, Any]] = next(iter((await self._ask("nodes")).values()), [])
        pages = {name: noted_url(self._tree.path / name, PAGE) for name in self._processes}
        return [{**each, "is_own": False, "page": pages.get(each["node"])} for each in found]

    def _hosts(self, request: web.BaseRequest, answers: dict[str, Any]) -> list[dict[str, Any]]:
        limit = int(request.query.get("limit", HOSTS_MAX))
        return hosts_of_all(answers, request.query.get("sort", "queued"), limit)

    def _pages(self, request: web.BaseRequest, answers: dict[str, Any]) -> list[dict[str, Any]]:
        return pages_of_all(answers, int(request.query.get("limit", PAGES_MAX)))

    def _shown(self, ask: Callable[[], Any]) -> Route:
        async def answer(_: web.BaseRequest) -> web.Response:
            return _json(await ask())

        return answer

    def _merged(
        self, name: str, merge: Callable[[web.BaseRequest, dict[str, Any]], list[dict[str, Any]]]
    ) -> Route:
        async def answer(request: web.BaseRequest) -> web.Response:
            every = await self._answers(f"{name}?{request.query_string}")
            good = _good(every)
            if every and not good:
                # All have the same complaint.
                return _relayed(*next(iter(every.values())))
            return _json(merge(request, good))

        return answer

    async def _of_one(self, name: str, request: web.BaseRequest) -> web.Response:
        """Answer as the process that knows, which is not known here: as most of them do not."""
        every = await self._answers(f"{name}?{request.query_string}")
        if not every:
            return failed(HTTPStatus.SERVICE_UNAVAILABLE, "no process answers")
        return _relayed(*max(every.values(), key=_knowledge))

    async def _explain(self, request: web.BaseRequest) -> web.Response:
        """Answer as any process, which asks the one that owns the host."""

        async def ask(process: str) -> tuple[int, bytes] | None:
            async with self._session() as session:
                return await self._get(session, process, f"explain?{request.query_string}")

        return await self._first(ask)

    async def _ask(self, question: str) -> dict[str, Any]:
        """Return the answers of the processes that have one."""
        return _good(await self._answers(question))

    async def _answers(self, question: str) -> dict[str, tuple[int, bytes]]:
        """Return status and text of each process that answers."""
        async with self._session() as session:
            asked = [self._get(session, process, question) for process in self._processes]
            found = zip(self._processes, await asyncio.gather(*asked), strict=True)
        return {process: answer for process, answer in found if answer is not None}

    async def _get(
        self, session: aiohttp.ClientSession, process: str, question: str
    ) -> tuple[int, bytes] | None:
        if (url := noted_url(self._tree.path / process, PAGE)) is None:
            return None
        try:
            async with session.get(f"{url}/api/v1/{question}") as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            return None

    @asynccontextmanager
    async def _session(
        self, timeout: float | None = _TIMEOUT
    ) -> AsyncIterator[aiohttp.ClientSession]:
        limit = aiohttp.ClientTimeout(timeout)
        async with aiohttp.ClientSession(timeout=limit) as session:
            yield session

    # --- orders ---

    async def _order(self, name: str, request: web.BaseRequest) -> web.Response:
        length = request.content_length
        if length is None:
            return failed(411, "give the length of the body")
        if length > BODY_MAX:
            return failed(413, f"the body is longer than {BODY_MAX:,} bytes")
        body = await request.content.readexactly(length) if length else b""
        if (refused := unauthorised(request, self._token)) is not None:
            return refused
        if name == "snapshot":
            return failed(HTTPStatus.CONFLICT, _NO_SNAPSHOT)
        try:
            if name not in _OF_ONE:
                return await self._first(lambda each: self._post(name, each, request, body))
            if name == "set":
                body = self._divided(body)
            return await self._each(name, request, body)
        except KrowlError as error:
            return failed(HTTPStatus.CONFLICT, str(error))

    def _divided(self, body: bytes) -> bytes:
        """Return the body of an order ``set`` with the part of each process.

        :raises KrowlError: the setting cannot be set for all
        """
        try:
            fields = json.loads(body)
            name, value = fields["name"], fields["value"]
        except (ValueError, TypeError, KeyError):
            # The process says what is wrong.
            return body
        if name == "max_pages":
            raise KrowlError(_NO_LIMIT)
        if name in DIVIDED and str(value).isdecimal():
            fields["value"] = max(1, int(value) // len(self._processes))
        return as_json(fields)

    async def _each(self, name: str, request: web.BaseRequest, body: bytes) -> web.Response:
        """Give an order to each process, until one does not carry it out: answer as the last."""
        found: dict[str, Any] = {}
        for process in self._processes:
            answer = await self._post(name, process, request, body)
            if answer is None:
                return failed(HTTPStatus.SERVICE_UNAVAILABLE, f"{process} does not answer")
            if answer[0] != HTTPStatus.OK:
                return _relayed(*answer)
            found = json.loads(answer[1])
        found["message"] += f", at each of {counted(len(self._processes), 'process')}"
        return _json(found)

    async def _first(self, give: Callable[[str], Any]) -> web.Response:
        for process in self._processes:
            if (answer := await give(process)) is not None:
                return _relayed(*answer)
        return failed(HTTPStatus.SERVICE_UNAVAILABLE, "no process answers")

    async def _import(self, request: web.BaseRequest) -> web.Response:
        if (refused := unauthorised(request, self._token)) is not None:
            return refused
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")

        async def pieces() -> AsyncIterator[bytes]:
            async for data in request.content.iter_any():
                yield data
                request[MORE_TIME]()

        for process in self._processes:
            if noted_url(self._tree.path / process, PAGE) is not None:
                answer = await self._post("import", process, request, pieces(), timeout=None)
                if answer is not None:
                    return _relayed(*answer)
                break
        return failed(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the process that takes the file does not answer: what it has taken by then stays"
            " queued; give the file again",
        )

    async def _post(
        self,
        name: str,
        process: str,
        request: web.BaseRequest,
        body: bytes | AsyncIterator[bytes],
        *,
        timeout: float | None = _TIMEOUT,
    ) -> tuple[int, bytes] | None:
        """Send an order to a process, and return status and text; None if it does not answer."""
        folder = self._tree.path / process
        if (url := noted_url(folder, PAGE)) is None:
            return None
        kept = ("Content-Type", "Content-Encoding")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        try:
            token = self._given or (folder / CONTROL_TOKEN).read_text().strip()
            headers["Authorization"] = f"Bearer {token}"
            async with (
                self._session(timeout) as session,
                session.post(f"{url}/api/v1/{name}", data=body, headers=headers) as answer,
            ):
                return answer.status, await answer.read()
        except (OSError, aiohttp.ClientError, TimeoutError):
            return None


def _good(answers: dict[str, tuple[int, bytes]]) -> dict[str, Any]:
    """Return the answers that are no errors."""
    return {
        name: json.loads(text)
        for name, (status, text) in answers.items()
        if status == HTTPStatus.OK
    }


def _json(found: Any) -> web.Response:
    return web.Response(body=as_json(found), headers={"Content-Type": "application/json"})


def _relayed(status: int, text: bytes) -> web.Response:
    return web.Response(status=status, body=text, headers={"Content-Type": "application/json"})


def _knowledge(answer: tuple[int, bytes]) -> tuple[bool, bool, int]:
    """Return how much an answer says: the process that owns a host has most to say of it."""
    status, text = answer
    found = json.loads(text)
    is_foreign = isinstance(found, dict) and bool(found.get("owner"))
    host = found.get("host") if isinstance(found, dict) else None
    known = host["queued"] + host["done"] if isinstance(host, dict) else len(found)
    return status == HTTPStatus.OK, not is_foreign, known
