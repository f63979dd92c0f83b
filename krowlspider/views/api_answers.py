"""Answers of the API in JSON, and the status of each error."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from krowlspider.engine.steering import ForeignHostError
from krowlspider.errors import KrowlError, error_text
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.schedule.own_delays import OrderError

if TYPE_CHECKING:
    from collections.abc import Callable

# The first class that an error is of decides.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownHostError, 404),
    (ForeignHostError, 409),
    (OrderError, 409),
    (KrowlError, 400),
    (ValueError, 400),
    (OSError, 500),
)


class BadRequestError(KrowlError):
    """Something in the request is missing or out of bounds."""


def answered(ask: Callable[[], Any]) -> web.Response:
    """Return what a question answers, or its error in a line, as JSON."""
    status = 200
    try:
        found = ask()
    except tuple(kind for kind, _ in _STATUSES) as error:
        status = next(status for kind, status in _STATUSES if isinstance(error, kind))
        found = {"error": error_text(error)}
    return web.Response(
        status=status, body=as_json(found), headers={"Content-Type": "application/json"}
    )


def failed(status: int, why: str) -> web.Response:
    """Return an error in JSON."""
    return web.json_response({"error": why}, status=status)


def as_json(found: Any) -> bytes:
    return json.dumps(found, default=_plain).encode()


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{value!r} cannot be shown")
