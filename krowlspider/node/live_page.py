"""The live page, API and orders of a crawl of several processes, as those of one."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiohttp import web

from krowlspider.engine.control import PAGES_MAX
from krowlspider.errors import KrowlError, counted
from krowlspider.job.monitoring.endpoint import MORE_TIME, Events
from krowlspider.node.figures import (
    OneProcess,
    Served,
    history_of_all,
    hosts_of_all,
    own_counts,
    pages_of_all,
    status_of_all,
)
from krowlspider.node.metrics import Processes, Reply
from krowlspider.node.seeds import seeds_of
from krowlspider.node.tree import DIVIDED
from krowlspider.views.live_page import (
    as_json,
    body_of,
    events_of,
    failed,
    file_refusal,
    page_routes,
    submission_of,
)
from krowlspider.views.order_fields import ORDERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from krowlspider.job.monitoring.endpoint import Route

# Seconds for which the status of all is shown again, and between two looks at a client that waits.
_FRESH = 1.0
_LOOK = 1.0
# Hosts and seeds in an answer, if the question does not say.
_HOSTS = 50
_SEEDS = 100
# Digits of a number that can be divided.
_DIGITS_MAX = 15
# Orders that hold at the process alone that gets them. All others reach each process by themselves.
_OF_ONE = ("reload", "set")
_NO_SNAPSHOT = "a crawl of several processes has no snapshot: stop it, and copy the whole folder"
_NO_LIMIT = "all processes share max_pages: give another at the next start"
_BROKEN_OFF = (
    "the process that takes the file does not answer: what it has taken by then stays queued; give"
    " the file again"
)
# Seconds in which each process has read its seeds: a million take about 80.
_SEEDS_TIME = 300.0
_NOBODY = "no process answers"


_T = TypeVar("_T")


class CrawlOfAll:
    """Answers as the live page of one process does, for the processes of ``crawl``.

    ``token`` is that of the page. ``given`` is KROWL_CONTROL_TOKEN, "" without it.
    """

    def __init__(self, crawl: Served, token: str, given: str):
        self._crawl = crawl
        self._token = token.encode()
        self._processes = Processes(crawl.tree.path, crawl.processes, given)
        # What each has answered.
        self._each = {name: OneProcess() for name in crawl.processes}
        # The last status, when it was made, and its making.
        self._status: dict[str, Any] = {}
        self._made = float("-inf")
        self._asking: asyncio.Task[dict[str, Any]] | None = None

    def routes(self) -> dict[str, Route]:
        """Return what answers at each path."""
        answers: dict[str, Route] = {
            "status": self._answer_status,
            "history": self._history,
            "pages": self._pages,
            "hosts": self._hosts,
            "nodes": self._nodes,
            "host": partial(self._of_one, "host"),
            "answers": partial(self._of_one, "answers"),
            "explain": self._explain,
            "forecast": self._forecast,
            "seeds": self._seeds,
            "snapshot": lambda _: failed(HTTPStatus.CONFLICT, _NO_SNAPSHOT),
        }
        orders: dict[str, Route] = {
            f"POST /api/v1/{name}": partial(self._order, name) for name in ORDERS
        }
        orders["POST /api/v1/import"] = self._import
        orders["/indexnow"] = orders["POST /indexnow"] = self._submitted
        return page_routes(answers, self._events, orders)

    # --- the status ---

    async def status(self) -> dict[str, Any]:
        """Return the figures of all, made at most a second ago."""
        self._renew()
        if self._asking is not None:
            await asyncio.shield(self._asking)
        return self._status

    def _renew(self) -> None:
        """Have new figures made, if the last ones are a second old."""
        if self._asking is not None and self._asking.done():
            self._asking = None
        if self._asking is None and time.monotonic() >= self._made + _FRESH:
            self._asking = asyncio.create_task(self._ask_status())

    def _last_status(self) -> dict[str, Any]:
        self._renew()
        return self._status

    async def _ask_status(self) -> dict[str, Any]:
        for name, answer in (await self._processes.ask_all("status")).items():
            if answer.is_good:
                found = json.loads(answer.text)
                # The supervisor may have seen starts before the page had a client.
                self._each[name].begin_as(self._crawl.figures.processes[name])
                self._each[name].take(found, found["seconds"], own_counts(found))
        # One that does not answer now keeps its last figures.
        known = {name: each for name, each in self._each.items() if each.status}
        total = status_of_all(known) if known else self._figures_of_folders()
        folder = str(self._crawl.tree.path)
        total |= {"folder": folder, "of": self._crawl.max_pages or None}
        total["report"] = f"{folder}/{self._crawl.processes[0]}/reports/report.html, and by the"
        total["report"] += " other processes to their folders"
        self._status, self._made = total, time.monotonic()
        return total

    def _figures_of_folders(self) -> dict[str, Any]:
        """Return what the processes have last written of themselves."""
        figures = self._crawl.figures
        total = figures.total()
        counts = ("done", "queued", "deferred", "hosts", "due", "in_flight", "archive_mb")
        return {
            **{name: total[name] for name in counts},
            "spider": self._crawl.spider,
            "seconds": 0.0,
            "fetched": figures.fetched(),
            "dropped": {},
            "statuses": {},
            "failed": {},
            "paused": figures.paused(),
            "policies": "",
        }

    async def _answer_status(self, _: web.BaseRequest) -> web.Response:
        return _json(await self.status())

    async def _events(self, _: web.BaseRequest) -> Events:
        # The first one is of now.
        await self.status()
        return events_of(self._last_status)

    # --- other questions ---

    async def _history(self, _: web.BaseRequest) -> web.Response:
        every = _good(await self._processes.ask_all("history"))
        return _json(history_of_all(every.values())) if every else _nobody()

    async def _nodes(self, _: web.BaseRequest) -> web.Response:
        """Reply what a process says of all, with the page of each."""
        for process in self._processes.in_order():
            answer = await self._processes.ask(process, "nodes")
            if answer is not None and answer.is_good:
                rows = json.loads(answer.text)
                for row in rows:
                    row |= {"is_own": False, "page": self._processes.url_of(row["node"])}
                return _json(rows)
        return _nobody()

    async def _hosts(self, request: web.BaseRequest) -> web.Response:
        def merge(answers: dict[str, Any]) -> list[dict[str, Any]]:
            limit = int(request.query.get("limit", _HOSTS))
            return hosts_of_all(answers, request.query.get("sort", "queued"), limit)

        return await self._merged("hosts", request, merge)

    async def _pages(self, request: web.BaseRequest) -> web.Response:
        limit = request.query.get("limit", PAGES_MAX)
        return await self._merged("pages", request, lambda every: pages_of_all(every, int(limit)))

    async def _merged(
        self,
        name: str,
        request: web.BaseRequest,
        merge: Callable[[dict[str, Any]], list[dict[str, Any]]],
    ) -> web.Response:
        every = await self._processes.ask_all(f"{name}?{request.query_string}")
        if good := _good(every):
            return _json(merge(good))
        # All have the same complaint.
        return _relayed(next(iter(every.values()))) if every else _nobody()

    async def _of_one(self, name: str, request: web.BaseRequest) -> web.Response:
        """Reply as the process that knows, which is not known here."""
        asked = self._processes.ask_all(f"{name}?{request.query_string}")
        every = await _awaited(request, asked)
        missing = [each for each in self._processes.names if each not in every]
        best = max(every.values(), key=_knowledge, default=None)
        if missing and (best is None or best.status == HTTPStatus.NOT_FOUND):
            return failed(HTTPStatus.SERVICE_UNAVAILABLE, f"{', '.join(missing)}: no answer")
        assert best is not None
        return _relayed(best)

    async def _explain(self, request: web.BaseRequest) -> web.Response:
        """Reply as any process, which asks the one that owns the host."""
        question = f"explain?{request.query_string}"
        return await self._first(request, lambda each: self._processes.ask(each, question))

    async def _forecast(self, request: web.BaseRequest) -> web.Response:
        """Reply the forecasts of all together; null as long as a process has none."""
        asked = self._processes.ask_all(f"forecast?{request.rel_url.raw_query_string}")
        every = await _awaited(request, asked)
        if not every:
            return _nobody()
        if (bad := next((each for each in every.values() if not each.is_good), None)) is not None:
            return _relayed(bad)
        found = [json.loads(each.text) for each in every.values()]
        if None in found:
            return _json(None)
        # Most crawls are asked for none.
        from krowlspider.job.forecasting import CrawlForecast, summed  # noqa: PLC0415

        return _json(asdict(summed(msgspec.convert(found, list[CrawlForecast]))))

    async def _seeds(self, request: web.BaseRequest) -> web.Response:
        """Reply the rows of seeds and tags of all together."""
        question = f"seeds?{request.rel_url.raw_query_string}"
        every = await _awaited(request, self._processes.ask_all(question, seconds=_SEEDS_TIME))
        if (bad := next((each for each in every.values() if not each.is_good), None)) is not None:
            return _relayed(bad)
        if missing := [each for each in self._processes.names if each not in every]:
            return failed(HTTPStatus.SERVICE_UNAVAILABLE, f"{', '.join(missing)}: no answer")
        return _json(seeds_of(_good(every), int(request.query.get("limit", _SEEDS))))

    # --- orders ---

    async def _order(self, name: str, request: web.BaseRequest) -> web.Response:
        body = await body_of(request, self._token)
        if isinstance(body, web.Response):
            return body
        if name == "snapshot":
            return failed(HTTPStatus.CONFLICT, _NO_SNAPSHOT)
        headers = _kept(request)
        if name not in _OF_ONE:
            answer = await self._first(
                request, lambda each: self._processes.order(each, name, body, headers)
            )
        else:
            try:
                part = self._divided(body) if name == "set" else body
            except KrowlError as error:
                return failed(HTTPStatus.CONFLICT, str(error))
            answer = await self._at_each(name, request, part)
        # What was changed is seen at once.
        self._made = float("-inf")
        return answer

    def _divided(self, body: bytes) -> bytes:
        """Return the body of an order ``set`` with the part of each process.

        :raises KrowlError: the setting cannot be set for all
        """
        try:
            fields = json.loads(body)
            name, value = fields["name"], str(fields["value"])
        except (ValueError, TypeError, KeyError, RecursionError):
            # The process says what is wrong.
            return body
        if name == "max_pages":
            raise KrowlError(_NO_LIMIT)
        if name in DIVIDED and value.isdecimal() and len(value) <= _DIGITS_MAX and int(value):
            return as_json({**fields, "value": max(1, int(value) // len(self._processes.names))})
        return body

    async def _at_each(self, name: str, request: web.BaseRequest, body: bytes) -> web.Response:
        """Give an order to each process, until one does not carry it out: answer as the last."""
        found: dict[str, Any] = {}
        done: list[str] = []
        for process in self._processes.names:
            given = self._processes.order(process, name, body, _kept(request))
            answer = await _awaited(request, given)
            if answer is None:
                changed = f"; it holds at {', '.join(done)}" if done else ""
                return failed(HTTPStatus.SERVICE_UNAVAILABLE, f"{process} does not answer{changed}")
            if not answer.is_good:
                return _relayed(answer)
            found = json.loads(answer.text)
            done.append(process)
        found["message"] += f", at each of {counted(len(done), 'process')}"
        return _json(found)

    async def _first(
        self, request: web.BaseRequest, give: Callable[[str], Awaitable[Reply | None]]
    ) -> web.Response:
        for process in self._processes.in_order():
            if (answer := await _awaited(request, give(process))) is not None:
                return _relayed(answer)
        return _nobody()

    async def _submitted(self, request: web.BaseRequest) -> web.Response:
        """Reply to a submission of IndexNow as the process that owns its host."""
        if request.method == "HEAD":
            return web.Response(status=405, headers={"Allow": "GET, POST"})
        body = await submission_of(request) if request.method == "POST" else None
        path = f"/indexnow?{request.rel_url.raw_query_string}"
        last: Reply | None = None
        for process in self._processes.in_order():
            answer = await _awaited(request, self._processes.submit(process, path, body))
            if answer is not None and answer.status != HTTPStatus.MISDIRECTED_REQUEST:
                return web.Response(status=answer.status, body=answer.text)
            last = answer or last
        return _nobody() if last is None else web.Response(status=last.status, body=last.text)

    async def _import(self, request: web.BaseRequest) -> web.Response:
        if (refused := await file_refusal(request, self._token)) is not None:
            return refused
        reads = False

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal reads
            reads = True
            async for data in request.content.iter_any():
                reads = False
                request[MORE_TIME]()
                yield data
                reads = True
            reads = False

        for process in self._processes.in_order():
            sent = self._processes.send_file(process, pieces(), _kept(request))
            # A client that sends nothing has no more time.
            answer = await _awaited(request, sent, is_idle=lambda: reads)
            self._made = float("-inf")
            return (
                failed(HTTPStatus.SERVICE_UNAVAILABLE, _BROKEN_OFF)
                if answer is None
                else (_relayed(answer))
            )
        return _nobody()


async def _awaited(
    request: web.BaseRequest, answer: Awaitable[_T], *, is_idle: Callable[[], bool] = lambda: False
) -> _T:
    """Return an answer. Its client has time meanwhile, but while it ``is_idle`` itself."""
    task = asyncio.ensure_future(answer)
    try:
        while not (await asyncio.wait([task], timeout=_LOOK))[0]:
            if not is_idle():
                request[MORE_TIME]()
        return task.result()
    finally:
        task.cancel()


def _kept(request: web.BaseRequest) -> dict[str, str]:
    """Return the headers of an order that its process needs."""
    kind = request.headers.get("Content-Type")
    return {} if kind is None else {"Content-Type": kind}


def _good(answers: dict[str, Reply]) -> dict[str, Any]:
    """Return what the answers say that are no errors."""
    return {name: json.loads(each.text) for name, each in answers.items() if each.is_good}


def _json(found: Any) -> web.Response:
    return web.Response(body=as_json(found), headers={"Content-Type": "application/json"})


def _relayed(answer: Reply) -> web.Response:
    kind = {"Content-Type": "application/json"}
    return web.Response(status=answer.status, body=answer.text, headers=kind)


def _nobody() -> web.Response:
    return failed(HTTPStatus.SERVICE_UNAVAILABLE, _NOBODY)


def _knowledge(answer: Reply) -> tuple[bool, int]:
    """Return how much an answer says: the process that owns a host has most to say of it."""
    found = json.loads(answer.text)
    host = found.get("host") if isinstance(found, dict) else None
    return answer.is_good, host["queued"] + host["done"] if isinstance(host, dict) else len(found)
