"""The live page and the API over HTTP: answers in JSON, and orders."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from functools import cache, partial
from hmac import compare_digest
from importlib.resources import files
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from krowlspider.engine.control import HOSTS_MAX, PAGES_MAX, SEEDS_MAX, SORTED_BY, Control
from krowlspider.errors import data_size, error_text, printable
from krowlspider.job.monitoring.endpoint import MORE_TIME, Events
from krowlspider.job.monitoring.page_server import RecentAnswers
from krowlspider.recrawl.indexnow import BODY_MAX as SUBMISSION_MAX
from krowlspider.recrawl.indexnow import read_body, read_query
from krowlspider.views.frontier import named_host, snapshot_taken
from krowlspider.views.openapi import document
from krowlspider.views.order_fields import (
    ERRORS,
    FILE_MAX,
    ORDERS,
    BadRequestError,
    LineReader,
    check_fields,
    status_of,
)
from krowlspider.views.ordering import Ordering, OrderOutcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from krowlspider.job.crawls import TakeSubmission
    from krowlspider.job.explain import Explanation
    from krowlspider.job.forecasting import CrawlForecast
    from krowlspider.job.monitoring.endpoint import Route
    from krowlspider.job.report import SeedReport

_T = TypeVar("_T")

# Most bytes of a body: a URL, and more.
BODY_MAX = 16_384
NO_TOKEN = "give the token of the crawl: Authorization: Bearer TOKEN"  # noqa: S105
# The header by which a program says for whom it gives an order, and most characters of that.
FOR = "Krowl-For"
_FOR_MAX = 80
# The body of an order that was given by a tool of MCP.
TOOL_BODY: web.RequestKey[bytes] = web.RequestKey("tool_body")
# Lines of a file after which its client has more time.
_LINES_AT_ONCE = 100


async def answer_of(ask: Callable[[], Any]) -> web.Response:
    """Return what a question or an order answers, awaited if need be, or its error in a line, as
    JSON."""
    status = 200
    try:
        found = ask()
        if isawaitable(found):
            found = await found
    except ERRORS as error:
        status, found = status_of(error), {"error": error_text(error)}
    return web.Response(
        status=status, body=as_json(found), headers={"Content-Type": "application/json"}
    )


def failed(status: int, why: str) -> web.Response:
    """Return an error in JSON."""
    return web.json_response({"error": why}, status=status)


def as_json(found: Any) -> bytes:
    return json.dumps(found, default=asdict).encode()


def order_routes(
    orders: Callable[[str], Ordering], token: str, on_change: Callable[[], None]
) -> dict[str, Route]:
    """Return what answers POST for each order. ``orders`` returns the orders of a person;
    ``on_change`` is called after each."""
    known = partial(_order, orders, token.encode(), on_change)
    made = {f"POST /api/v1/{name}": partial(known, name) for name in ORDERS}
    return {**made, "POST /api/v1/import": partial(_import, orders, token.encode(), on_change)}


async def _order(
    orders: Callable[[str], Ordering],
    token: bytes,
    on_change: Callable[[], None],
    name: str,
    request: web.BaseRequest,
) -> web.Response:
    body = await body_of(request, token)
    if isinstance(body, web.Response):
        return body

    async def give() -> Any:
        given = _fields(name, body)
        return (await orders(_who(request)).give(name, given))._asdict()

    answer = await answer_of(give)
    on_change()
    return answer


def _who(request: web.BaseRequest) -> str:
    """Return what the log calls the person of an order, whose token was right."""
    if TOOL_BODY in request:
        return f"MCP from {request.remote}"
    return printable(request.headers.get(FOR, "")[:_FOR_MAX]) or f"HTTP from {request.remote}"


async def body_of(request: web.BaseRequest, token: bytes) -> bytes | web.Response:
    """Return the body of an order, or the answer by which it is refused."""
    body = await json_body(request) if TOOL_BODY not in request else request[TOOL_BODY]
    if isinstance(body, web.Response) or (refused := _unauthorised(request, token)) is None:
        return body
    return refused


async def json_body(request: web.BaseRequest) -> bytes | web.Response:
    """Return a body of JSON, or the answer by which it is refused."""
    if "Content-Encoding" in request.headers:
        return failed(415, "give the body without a content coding")
    length = request.content_length
    if length is None:
        return failed(411, "give the length of the body")
    if length > BODY_MAX:
        return failed(413, f"the body is longer than {BODY_MAX:,} bytes")
    # aiohttp cannot read 0 bytes of an empty body.
    return await request.content.readexactly(length) if length else b""


async def file_refusal(request: web.BaseRequest, token: bytes) -> web.Response | None:
    """Return the answer by which a file of URLs is refused before it is read, if it is."""
    if (refused := _unauthorised(request, token)) is not None:
        return refused
    if "Content-Encoding" in request.headers:
        return failed(415, "give the file as it is, without a content coding; it may be gzip")
    if (request.content_length or 0) > FILE_MAX:
        return failed(413, f"the file has more than {data_size(FILE_MAX)}: give it in parts")
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return None


async def _import(
    orders: Callable[[str], Ordering],
    token: bytes,
    on_change: Callable[[], None],
    request: web.BaseRequest,
) -> web.Response:
    """Answer a file of seeds, or of lines of an export, once what it names is on disk."""
    # Before the file is read: it may be long, and of anybody.
    if (refused := await file_refusal(request, token)) is not None:
        return refused

    async def lines() -> AsyncIterator[list[bytes]]:
        reader = LineReader()
        async for data in request.content.iter_any():
            for some in reader.feed(data):
                for at in range(0, len(some), _LINES_AT_ONCE):
                    yield some[at : at + _LINES_AT_ONCE]
                    request[MORE_TIME]()
        yield reader.end()
        request[MORE_TIME]()

    answer = await answer_of(lambda: orders(_who(request)).take(lines()))
    on_change()
    return answer


def has_token(request: web.BaseRequest, token: bytes) -> bool:
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    return kind.lower() == "bearer" and compare_digest(
        given.strip().encode(errors="replace"), token
    )


def _unauthorised(request: web.BaseRequest, token: bytes) -> web.Response | None:
    """Return the answer to a request without the token; None for one that has it."""
    if has_token(request, token):
        return None
    answer = failed(401, NO_TOKEN)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _fields(name: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a body.

    :raises BadRequestError: it is not JSON, or not of these fields
    """
    try:
        found = read_json(body or b"{}")
    except ValueError:
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadRequestError("the body is not a JSON object")
    check_fields(name, found)
    return found


def read_json(body: bytes) -> Any:
    """:raises ValueError: it is not JSON, or nested too deeply"""
    try:
        return json.loads(body, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


if TYPE_CHECKING:
    Question = Callable[[web.BaseRequest], Any]

# Seconds between two looks at an answer that takes long.
_LOOK = 1.0
# The files of the page, with their media types.
_FILES = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
}
# A page of another site can neither frame this one nor read it; and this one loads its own files
# only. URLs of strangers are shown as text.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def routes(
    control: Control,
    history: Callable[[], dict[str, Any]],
    orders: Callable[[str], Ordering],
    token: str,
) -> dict[str, Route]:
    """Return what answers at each path: the page, its files, and the API below ``/api/v1/``.

    ``history`` returns the samples of the charts, ``orders`` the orders of a person, who must have
    the ``token``.
    """
    api: dict[str, Question] = {
        "status": lambda _: control.status(),
        "history": lambda _: history(),
        "pages": lambda request: control.pages(_limit(request, PAGES_MAX, PAGES_MAX)),
        "hosts": lambda request: _hosts(control, request),
        "host": lambda request: control.host(named_host(_given(request, "name"))),
        "answers": lambda request: control.answers(named_host(_given(request, "name"))),
        "nodes": lambda _: control.nodes(),
        "explain": lambda request: control.explain(_given(request, "url")),
    }
    recent = RecentAnswers()
    answers = {name: partial(_recent, recent, name, ask) for name, ask in api.items()}
    made: dict[str, Route] = {name: partial(_json, known) for name, known in answers.items()}
    made["explain"] = partial(_json, partial(_explained, answers["explain"], orders))
    made["forecast"] = partial(_json, partial(_forecast, control))
    made["seeds"] = partial(_json, partial(_seeds, control))
    made["snapshot"] = partial(_json, partial(_snapshot, control))

    def events(request: web.BaseRequest) -> Events:
        return events_of(partial(answers["status"], request))

    return page_routes(made, events, order_routes(orders, token, recent.forget))


def index_now_routes(take: Callable[[], TakeSubmission | None]) -> dict[str, Route]:
    """Return what answers a submission of IndexNow. ``take`` returns what takes it, once there is
    one."""
    route = partial(_guarded, partial(_submitted, take))
    return {"/indexnow": route, "POST /indexnow": route}


async def _submitted(
    take: Callable[[], TakeSubmission | None], request: web.BaseRequest
) -> web.Response:
    if (taker := take()) is None:
        return web.Response(status=503, text="the crawl takes no submissions\n")
    if request.method == "GET":
        url, key, place = (request.query.get(each, "") for each in ("url", "key", "keyLocation"))
        status, text = await taker(partial(read_query, url, key, place))
    elif request.method == "POST":
        body = await submission_of(request)
        status, text = await taker(partial(read_body, body))
    else:
        return web.Response(status=405, headers={"Allow": "GET, POST"})
    return web.Response(status=status, text=f"{text}\n")


async def submission_of(request: web.BaseRequest) -> bytes:
    """Return the body of a submission, of which no more is read than one byte over the limit."""
    body = bytearray()
    while len(body) <= SUBMISSION_MAX and (part := await request.content.readany()):
        body += part
    return bytes(body[: SUBMISSION_MAX + 1])


def events_of(status: Callable[[], dict[str, Any]]) -> Events:
    """Return events with what ``status`` returns."""
    return Events(lambda: _event(status()))


def page_routes(
    answers: Mapping[str, Route], events: Route, orders: Mapping[str, Route]
) -> dict[str, Route]:
    """Return what answers at each path: the page and its files, ``answers`` by their names below
    ``/api/v1/``, ``events`` of the status, and ``orders`` by their paths."""
    made: dict[str, Route] = {path: partial(_file, *about) for path, about in _FILES.items()}
    made |= {f"/api/v1/{name}": route for name, route in answers.items()}
    made["/api/v1/openapi.json"] = partial(_json, lambda _: document())
    made["/events"] = events
    made |= orders
    return {path: partial(_guarded, route) for path, route in made.items()}


def _recent(
    recent: RecentAnswers,
    name: str,
    ask: Callable[[web.BaseRequest], Any],
    request: web.BaseRequest,
) -> Any:
    """Return the answer to a question, the last one if it is recent: several pages may be open."""
    return recent.get(f"{name}?{request.query_string}", partial(ask, request))


async def _guarded(route: Route, request: web.BaseRequest) -> web.StreamResponse:
    """Return the answer of a route with the headers of the page."""
    made = route(request)
    answer = await made if isawaitable(made) else made
    answer.headers.update(HEADERS)
    return answer


@cache
def _content(name: str) -> bytes:
    return files("krowlspider.views.page").joinpath(name).read_bytes()


def _file(name: str, kind: str, _: web.BaseRequest) -> web.Response:
    return web.Response(body=_content(name), headers={"Content-Type": kind})


def searching_page() -> Route:
    """Return what answers at "/" where there is a search: the page, with a link to it."""
    link = b'<a href="/search">Search</a>'
    content = _content(_FILES["/"][0]).replace(b"<!--search-->", link)
    headers = {"Content-Type": _FILES["/"][1]}
    return partial(_guarded, lambda _: web.Response(body=content, headers=headers))


async def _json(ask: Callable[[web.BaseRequest], Any], request: web.BaseRequest) -> web.Response:
    return await answer_of(partial(ask, request))


async def _explained(
    explain: Callable[[web.BaseRequest], Any],
    orders: Callable[[str], Ordering],
    request: web.BaseRequest,
) -> Explanation:
    """Return what the node says that owns the host of the URL."""
    here: Explanation = explain(request)
    who = f"HTTP from {request.remote}"
    return await orders(who).explain_at(here) if here.owner else here


async def _forecast(control: Control, request: web.BaseRequest) -> CrawlForecast | None:
    """Return the forecast, which may take some seconds where there are many pages."""
    return await in_time(control.forecast(request.query.get("target", "").strip()), request)


async def _seeds(control: Control, request: web.BaseRequest) -> SeedReport:
    """Return the rows of seeds and tags, which may take minutes where there are many seeds."""
    tag, limit = request.query.get("tag"), _limit(request, 100, SEEDS_MAX)
    return await in_time(control.seeds(tag, limit), request)


async def in_time(answer: Awaitable[_T], request: web.BaseRequest) -> _T:
    """Return an answer; its client waits as long as it takes."""
    made = asyncio.ensure_future(answer)
    try:
        while not (await asyncio.wait([made], timeout=_LOOK))[0]:
            request[MORE_TIME]()
    finally:
        made.cancel()
    return made.result()


def _event(status: dict[str, Any]) -> bytes:
    # The client waits for two seconds before it connects again.
    return b"retry: 2000\ndata: %b\n\n" % as_json(status)


def _given(request: web.BaseRequest, name: str) -> str:
    if not (value := request.query.get(name, "").strip()):
        raise BadRequestError(f"{request.path} needs ?{name}=")
    return value


def _snapshot(control: Control, request: web.BaseRequest) -> dict[str, Any]:
    """Return whether the snapshot that was begun to a folder is whole.

    :raises JobError: it failed, or none was begun
    """
    taken = control.snapshot(Path(_given(request, "folder")))
    message = "under way" if taken is None else snapshot_taken(taken)
    return OrderOutcome(taken is not None, message)._asdict()


def _hosts(control: Control, request: web.BaseRequest) -> Any:
    query, limit = request.query, _limit(request, 50, HOSTS_MAX)
    return control.hosts(query.get("sort", SORTED_BY[0]), limit, query.get("state", ""))


def _limit(request: web.BaseRequest, usual: int, most: int) -> int:
    given = request.query.get("limit", str(usual))
    if not re.fullmatch("[0-9]{1,3}", given):
        raise BadRequestError(f"limit={given[:20]}: give 1 to {most}")
    return int(given)
