"""The OpenAPI document of the API."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from krowlspider import __version__
from krowlspider.engine.control import (
    HOSTS_MAX,
    PAGES_MAX,
    SEEDS_MAX,
    SORTED_BY,
    STATES,
    FinishedPage,
)
from krowlspider.frontier.admin.edit import Covered
from krowlspider.frontier.admin.view import HostRow, HostView
from krowlspider.frontier.outcomes import HostAnswer
from krowlspider.job.explain import Explanation
from krowlspider.job.forecasting import CrawlForecast
from krowlspider.job.nodes.overview import NodeRow
from krowlspider.job.report import SeedReport
from krowlspider.views.order_fields import FILE_MAX, ORDERS, Field
from krowlspider.views.ordering import ImportOutcome, OrderOutcome

_TEXT, _COUNT, _NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
_OBJECT = {"type": "object"}
_COUNTS = {"type": "object", "additionalProperties": _COUNT}
_STATUS = {
    **dict.fromkeys(("spider", "folder", "paused", "policies"), _TEXT),
    **dict.fromkeys(("seconds", "archive_mb"), _NUMBER),
    **dict.fromkeys(("done", "queued", "deferred", "hosts", "due", "in_flight"), _COUNT),
    "of": {"type": ["integer", "null"]},
    **dict.fromkeys(("dropped", "fetched", "statuses", "failed"), _COUNTS),
    **dict.fromkeys(("counters", "counters_before"), _COUNTS),
}


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TYPES: dict[Any, dict[str, Any]] = {
    str: _TEXT,
    int: _COUNT,
    float: _NUMBER,
    bool: {"type": "boolean"},
}


def _schema(hint: Any) -> dict[str, Any]:
    """Return the schema of a type: a plain one, a record, a list or dict of these, or null."""
    if (known := _TYPES.get(hint)) is not None:
        return known
    if is_dataclass(hint):
        return _record({name: _schema(each) for name, each in get_type_hints(hint).items()})
    inner = get_args(hint)
    if get_origin(hint) is list:
        return _array(_schema(inner[0]))
    if get_origin(hint) is dict:
        kinds = get_args(inner[1]) or (inner[1],)
        types = [_TYPES[kind]["type"] for kind in kinds]
        return {
            "type": "object",
            "additionalProperties": {"type": types if len(types) > 1 else types[0]},
        }
    made = _schema(inner[0])
    return {**made, "type": [made["type"], "null"]}


def _parameter(name: str, schema: dict[str, Any], *, is_required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": is_required, "schema": schema}


_OUTCOME = _record(
    dict(zip(OrderOutcome._fields, (_TYPES[bool], _TEXT, _schema(Covered | None)), strict=True))
)


def _limit(most: int, *, least: int = 1) -> dict[str, Any]:
    return _parameter("limit", {"type": "integer", "minimum": least, "maximum": most})


_NAME = _parameter("name", _TEXT, is_required=True)
# The answer of each question, with its parameters.
_READS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "status": ("figures since the start", _record(_STATUS), []),
    "history": (
        "samples of the last hour",
        _record({"fields": _array(_TEXT), "samples": _array(_array(_NUMBER))}),
        [],
    ),
    "pages": ("the last pages that are over", _array(_schema(FinishedPage)), [_limit(PAGES_MAX)]),
    "hosts": (
        "the greatest hosts in memory by one figure",
        _array(_schema(HostRow)),
        [
            _parameter("sort", {"type": "string", "enum": list(SORTED_BY)}),
            _parameter("state", {"type": "string", "enum": list(STATES)}),
            _limit(HOSTS_MAX),
        ],
    ),
    "host": ("one host, and why it waits", _schema(HostView), [_NAME]),
    "answers": (
        "the last answers of one host, with its delay after each",
        _array(_schema(HostAnswer)),
        [_NAME],
    ),
    "nodes": ("the nodes of the cluster", _array(_schema(NodeRow)), []),
    "explain": (
        "where a URL is, and why it is not being fetched",
        _schema(Explanation),
        [_parameter("url", _TEXT, is_required=True)],
    ),
    "forecast": (
        "how fresh the pages stay by the schedule; null without a target and a schedule",
        _schema(CrawlForecast | None),
        [_parameter("target", _TEXT)],
    ),
    "seeds": (
        "the rows of seeds, as in seeds.tsv, and of all tags",
        _schema(SeedReport),
        [_parameter("tag", _TEXT), _limit(SEEDS_MAX, least=0)],
    ),
    "snapshot": (
        "whether the snapshot that was begun to a folder is whole",
        _OUTCOME,
        [_parameter("folder", _TEXT, is_required=True)],
    ),
}
_ERROR = {"application/json": {"schema": _record({"error": _TEXT})}}
_WHY = {
    400: "a bad request",
    401: "a missing or wrong token",
    403: "a request of another site's page",
    404: "an unknown host",
    405: "another method than this path takes",
    409: "an order that cannot be carried out",
    411: "a body without a length",
    413: "too long a body",
    415: "a body with a content coding",
    421: "a request by a name that is not this server's",
    500: "a file or folder that cannot be read or written",
    502: "a node of the cluster of another version",
    503: "a node of the cluster that takes no orders now",
    504: "a node of the cluster that has not answered for 4 s",
}
# What any request may be answered.
_ANY = (400, 405, 421)


def _answers(schema: dict[str, Any], *statuses: int) -> dict[str, Any]:
    errors = {
        str(status): {"description": _WHY[status], "content": _ERROR}
        for status in sorted({*statuses, *_ANY})
    }
    ok = {"description": "the answer", "content": {"application/json": {"schema": schema}}}
    return {"200": ok, **errors}


def _text(about: str, kind: str = "text/plain", **others: str) -> dict[str, Any]:
    """Return the question of a path that is not below ``/api/``."""
    content = {kind: {"schema": _TEXT}}
    why = {"text/plain": {"schema": _TEXT}}
    texts = {"421": _WHY[421], "405": _WHY[405], **{key[1:]: text for key, text in others.items()}}
    refused = {each: {"description": text, "content": why} for each, text in texts.items()}
    return {
        "get": {
            "summary": about,
            "parameters": [],
            "responses": {"200": {"description": "the answer", "content": content}, **refused},
        }
    }


def _field(field: Field) -> dict[str, Any]:
    kind: Any = field.types[0] if len(field.types) == 1 else list(field.types)
    return {"type": kind, "description": field.about}


def fields_schema(given: dict[str, Field]) -> dict[str, Any]:
    """Return the JSON Schema of an object with the fields of an order or a question."""
    return {
        "type": "object",
        "properties": {name: _field(field) for name, field in given.items()},
        "required": [name for name, field in given.items() if field.is_required],
        "additionalProperties": False,
    }


def _order(given: dict[str, Field]) -> dict[str, Any]:
    body = fields_schema(given)
    return {
        "security": [{"token": []}],
        "requestBody": {"content": {"application/json": {"schema": body}}},
        "responses": _answers(_OUTCOME, 401, 403, 404, 409, 411, 413, 415, 500, 502, 503, 504),
    }


def _import() -> dict[str, Any]:
    file = {"schema": {"type": "string", "contentEncoding": "binary"}}
    return {
        "summary": "import",
        "description": "Queue the URLs of a file: a domain, a URL or a line of an export a line;"
        f" plain or gzip, at most {FILE_MAX:,} bytes unpacked.",
        "security": [{"token": []}],
        "requestBody": {"content": {"text/plain": file, "application/gzip": file}},
        "responses": _answers(_schema(ImportOutcome), 401, 403, 409, 413, 415, 500),
    }


def document() -> dict[str, Any]:
    """Return the document: each question and each order, with all their fields."""
    paths: dict[str, Any] = {}
    for name, (about, schema, parameters) in _READS.items():
        paths[f"/api/v1/{name}"] = {
            "get": {
                "summary": about,
                "parameters": parameters,
                "responses": _answers(schema, *([404] if parameters else [])),
            }
        }
    for name, given in ORDERS.items():
        path = paths.setdefault(f"/api/v1/{name}", {})
        path["post"] = {"summary": name, **_order(given)}
    paths["/api/v1/import"] = {"post": _import()}
    paths["/api/v1/openapi.json"] = {
        "get": {"summary": "this document", "parameters": [], "responses": _answers(_OBJECT)}
    }
    paths["/events"] = _text(
        "the answer of status each second", "text/event-stream", _503="4 clients have them already"
    )
    paths["/healthz"] = _text("ok, while the event loop runs")
    paths["/readyz"] = _text("ready, while the crawl may fetch", _503="why it may not")
    return {
        "openapi": "3.1.0",
        "info": {"title": "A running crawl of krowlspider", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
