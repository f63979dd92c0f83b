"""Answers of the API in JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from krowlspider.errors import error_text
from krowlspider.views.statuses import ERRORS, status_of

if TYPE_CHECKING:
    from collections.abc import Callable


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
