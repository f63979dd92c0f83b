"""Orders over HTTP: POST with JSON, and the token of the crawl."""

from __future__ import annotations

import json
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.crawl.live_settings import LIVE
from krowlspider.views.api_answers import BadRequestError, answered, failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.views.ordering import Ordering

# Most bytes of a body: a URL, and more.
BODY_MAX = 16_384
_NUMBER_MAX = 10**15

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "boolean": (bool,),
}


class Field(NamedTuple):
    """A field of a body: its types by the names of JSON Schema."""

    types: tuple[str, ...]
    about: str
    is_required: bool = True


_HOST = Field(("string",), "name or URL of a host; without it, the crawl", False)
_NAME = Field(("string",), "a host, a domain, or a SURT prefix such as org,example,")
# The fields of each order, by the name of the method of `Ordering`.
ORDERS: dict[str, dict[str, Field]] = {
    "pause": {"host": _HOST},
    "resume": {"host": _HOST},
    "block": {"name": _NAME},
    "unblock": {"name": _NAME},
    "delay": {
        "host": Field(("string",), "name or URL of a host"),
        "seconds": Field(("number", "null"), "least delay; null: that of the settings"),
    },
    "add": {
        "url": Field(("string",), "a URL, queued as a seed"),
        "priority": Field(("integer",), "higher ones first; 0 usually", False),
    },
    "forget": {"name": Field(("string",), "a host or URL: always refused, with the way out")},
    "reload": {},
    "set": {
        "name": Field(("string",), f"one of {', '.join(LIVE)}"),
        "value": Field(("string", "number", "boolean"), "its value until the process ends"),
    },
}


def order_routes(
    orders: Callable[[str], Ordering], token: str, on_change: Callable[[], None]
) -> dict[str, Route]:
    """Return what answers POST for each order. ``orders`` returns the orders of a person;
    ``on_change`` is called after each."""
    known = partial(_order, orders, token.encode(), on_change)
    return {f"POST /api/v1/{name}": partial(known, name) for name in ORDERS}


async def _order(
    orders: Callable[[str], Ordering],
    token: bytes,
    on_change: Callable[[], None],
    name: str,
    request: web.BaseRequest,
) -> web.Response:
    if "Content-Encoding" in request.headers:
        return failed(415, "give the body without a content coding")
    length = request.content_length
    if length is None:
        return failed(411, "give the length of the body")
    if length > BODY_MAX:
        return failed(413, f"the body is longer than {BODY_MAX:,} bytes")
    body = await request.content.readexactly(length)
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not compare_digest(
        given.strip().encode(errors="replace"), token
    ):
        answer = failed(401, "give the token of the crawl: Authorization: Bearer TOKEN")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def give() -> Any:
        fields = _fields(name, body)
        return getattr(orders(f"HTTP from {request.remote}"), name)(**fields)._asdict()

    answer = answered(give)
    on_change()
    return answer


def _fields(name: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a body.

    :raises BadRequestError: it is not JSON, or not of these fields
    """
    known = ORDERS[name]
    try:
        found = json.loads(body or b"{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadRequestError("the body is not a JSON object")
    if strange := sorted(found.keys() - known.keys()):
        takes = ", ".join(known) or "nothing"
        raise BadRequestError(f"{name} takes {takes}, not {strange[0][:40]!r}")
    for field, about in known.items():
        if field in found:
            _check_type(field, about, found[field])
        elif about.is_required:
            raise BadRequestError(f"{name} needs {field}: {about.about}")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_type(field: str, about: Field, value: object) -> None:
    kinds = [kind for each in about.types for kind in _TYPES[each]]
    # In Python a bool is an int, and an int has any size.
    is_huge = isinstance(value, int | float) and abs(value) > _NUMBER_MAX
    if type(value) not in kinds or is_huge:
        raise BadRequestError(f"{field} is not {' or '.join(about.types)}: {about.about}")
