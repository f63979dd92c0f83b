"""The live page, the JSON that it shows and its orders, for browsers on this machine."""

from __future__ import annotations

import asyncio
import re
from functools import cache, partial
from importlib.resources import files
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from krowlspider.crawl.monitoring.endpoint import MORE_TIME, Events
from krowlspider.crawl.monitoring.page_server import Recent
from krowlspider.engine.control import HOSTS_MAX, PAGES_MAX, SORTED_BY
from krowlspider.views.control.api import answer_of, as_json, order_routes
from krowlspider.views.control.openapi import document
from krowlspider.views.control.order_fields import BadRequestError
from krowlspider.views.control.ordering import Outcome
from krowlspider.views.frontier import named_host, snapshot_taken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krowlspider.crawl.explain import Explanation
    from krowlspider.crawl.forecasting import CrawlForecast
    from krowlspider.crawl.monitoring.endpoint import Route
    from krowlspider.engine.control import Control
    from krowlspider.views.control.ordering import Ordering

    # Answers a request with what becomes JSON.
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
_HEADERS = {
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
    recent = Recent()
    answers = {name: partial(_recent, recent, name, ask) for name, ask in api.items()}
    made: dict[str, Route] = {name: partial(_json, known) for name, known in answers.items()}
    made["explain"] = partial(_json, partial(_explained, answers["explain"], orders))
    made["forecast"] = partial(_json, partial(_forecast, control))
    made["snapshot"] = partial(_json, partial(_snapshot, control))

    def events(request: web.BaseRequest) -> Events:
        return events_of(partial(answers["status"], request))

    return page_routes(made, events, order_routes(orders, token, recent.forget))


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
    recent: Recent, name: str, ask: Callable[[web.BaseRequest], Any], request: web.BaseRequest
) -> Any:
    """Return the answer to a question, the last one if it is recent: several pages may be open."""
    return recent.get(f"{name}?{request.query_string}", partial(ask, request))


async def _guarded(route: Route, request: web.BaseRequest) -> web.StreamResponse:
    """Return the answer of a route with the headers of the page."""
    made = route(request)
    answer = await made if isawaitable(made) else made
    answer.headers.update(_HEADERS)
    return answer


@cache
def _content(name: str) -> bytes:
    return files("krowlspider.views.page").joinpath(name).read_bytes()


def _file(name: str, kind: str, _: web.BaseRequest) -> web.Response:
    return web.Response(body=_content(name), headers={"Content-Type": kind})


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
    made = asyncio.ensure_future(control.forecast(request.query.get("target", "").strip()))
    while not (await asyncio.wait([made], timeout=_LOOK))[0]:
        request[MORE_TIME]()
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
    return Outcome(taken is not None, message)._asdict()


def _hosts(control: Control, request: web.BaseRequest) -> Any:
    query, limit = request.query, _limit(request, 50, HOSTS_MAX)
    return control.hosts(query.get("sort", SORTED_BY[0]), limit, query.get("state", ""))


def _limit(request: web.BaseRequest, usual: int, most: int) -> int:
    given = request.query.get("limit", str(usual))
    if not re.fullmatch("[0-9]{1,3}", given):
        raise BadRequestError(f"limit={given[:20]}: give 1 to {most}")
    return int(given)
