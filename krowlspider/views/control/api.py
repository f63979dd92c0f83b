"""The API over HTTP: answers in JSON; orders by POST with JSON and the token of the crawl."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from hmac import compare_digest
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from krowlspider.crawl.monitoring.endpoint import MORE_TIME
from krowlspider.errors import error_text
from krowlspider.frontier.admin.words import data_size
from krowlspider.views.control.order_fields import (
    ERRORS,
    FILE_MAX,
    ORDERS,
    BadRequestError,
    LineReader,
    check_fields,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.views.control.ordering import Ordering

# Most bytes of a body: a URL, and more.
BODY_MAX = 16_384
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
        return (await orders(f"HTTP from {request.remote}").give(name, given))._asdict()

    answer = await answer_of(give)
    on_change()
    return answer


async def body_of(request: web.BaseRequest, token: bytes) -> bytes | web.Response:
    """Return the body of an order, or the answer by which it is refused."""
    if "Content-Encoding" in request.headers:
        return failed(415, "give the body without a content coding")
    length = request.content_length
    if length is None:
        return failed(411, "give the length of the body")
    if length > BODY_MAX:
        return failed(413, f"the body is longer than {BODY_MAX:,} bytes")
    # aiohttp cannot read 0 bytes of an empty body.
    body = await request.content.readexactly(length) if length else b""
    refused = _unauthorised(request, token)
    return body if refused is None else refused


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

    answer = await answer_of(lambda: orders(f"HTTP from {request.remote}").take(lines()))
    on_change()
    return answer


def _unauthorised(request: web.BaseRequest, token: bytes) -> web.Response | None:
    """Return the answer to a request without the token; None for one that has it."""
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and compare_digest(given.strip().encode(errors="replace"), token):
        return None
    answer = failed(401, "give the token of the crawl: Authorization: Bearer TOKEN")
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _fields(name: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a body.

    :raises BadRequestError: it is not JSON, or not of these fields
    """
    try:
        found = json.loads(body or b"{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadRequestError("the body is not a JSON object")
    check_fields(name, found)
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
