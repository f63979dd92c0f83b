"""The OpenAPI document of the API."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from krowlspider import __version__
from krowlspider.crawl.explain import Explanation
from krowlspider.crawl.nodes.overview import NodeRow
from krowlspider.engine.control import HOSTS_MAX, PAGES_MAX, SORTED_BY, STATES, PageRow
from krowlspider.frontier.admin.coverage import Covered
from krowlspider.frontier.admin.host_view import HostView
from krowlspider.frontier.admin.view import HostRow
from krowlspider.frontier.watched import HostAnswer
from krowlspider.views.line_reader import FILE_MAX
from krowlspider.views.order_fields import ORDERS, Field
from krowlspider.views.ordering import ImportOutcome, Outcome

_TEXT, _COUNT, _NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
_COUNTS = {"type": "object", "additionalProperties": _COUNT}
_STATUS = {
    **dict.fromkeys(("spider", "folder", "paused"), _TEXT),
    **dict.fromkeys(("seconds", "archive_mb"), _NUMBER),
    **dict.fromkeys(("done", "queued", "deferred", "hosts", "due", "in_flight"), _COUNT),
    "of": {"type": ["integer", "null"]},
    **dict.fromkeys(("dropped", "fetched", "statuses", "failed"), _COUNTS),
}


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TYPES: dict[str, dict[str, Any]] = {
    "str": _TEXT,
    "int": _COUNT,
    "float": _NUMBER,
    "bool": {"type": "boolean"},
    "int | None": {"type": ["integer", "null"]},
    "float | None": {"type": ["number", "null"]},
}


def _dataclass(kind: type) -> dict[str, Any]:
    """Return the schema of a record; lists and records in it are left open."""
    known = {each.name: str(each.type) for each in fields(kind)}
    open_ = {
        name: {"type": "array" if "list" in kind else "object"} for name, kind in known.items()
    }
    return _record({name: _TYPES.get(kind, open_[name]) for name, kind in known.items()})


def _parameter(name: str, schema: dict[str, Any], *, is_required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": is_required, "schema": schema}


_COVERED = {**_dataclass(Covered), "type": ["object", "null"]}
_OUTCOME = _record(dict(zip(Outcome._fields, (_TYPES["bool"], _TEXT, _COVERED), strict=True)))


def _limit(most: int) -> dict[str, Any]:
    return _parameter("limit", {"type": "integer", "minimum": 1, "maximum": most})


_NAME = _parameter("name", _TEXT, is_required=True)
# The answer of each question, with its parameters.
_READS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "status": ("figures since the start", _record(_STATUS), []),
    "history": (
        "samples of the last hour",
        _record({"fields": _array(_TEXT), "samples": _array(_array(_NUMBER))}),
        [],
    ),
    "pages": ("the last pages that are over", _array(_dataclass(PageRow)), [_limit(PAGES_MAX)]),
    "hosts": (
        "the greatest hosts in memory by one figure",
        _array(_dataclass(HostRow)),
        [
            _parameter("sort", {"type": "string", "enum": list(SORTED_BY)}),
            _parameter("state", {"type": "string", "enum": list(STATES)}),
            _limit(HOSTS_MAX),
        ],
    ),
    "host": ("one host, and why it waits", _dataclass(HostView), [_NAME]),
    "answers": (
        "the last answers of one host, with its delay after each",
        _array(_dataclass(HostAnswer)),
        [_NAME],
    ),
    "nodes": ("the nodes of the cluster", _array(_dataclass(NodeRow)), []),
    "explain": (
        "where a URL is, and why it is not being fetched",
        _dataclass(Explanation),
        [_parameter("url", _TEXT, is_required=True)],
    ),
    "snapshot": (
        "whether the snapshot that was begun to a folder is whole",
        _OUTCOME,
        [_parameter("folder", _TEXT, is_required=True)],
    ),
}
_ERROR = {"application/json": {"schema": _record({"error": _TEXT})}}


def _answers(schema: dict[str, Any], *statuses: int) -> dict[str, Any]:
    errors = {str(status): {"description": "why", "content": _ERROR} for status in statuses}
    ok = {"description": "the answer", "content": {"application/json": {"schema": schema}}}
    return {"200": ok, **errors}


def _field(field: Field) -> dict[str, Any]:
    kind: Any = field.types[0] if len(field.types) == 1 else list(field.types)
    return {"type": kind, "description": field.about}


def _order(given: dict[str, Field]) -> dict[str, Any]:
    body = {
        "type": "object",
        "properties": {name: _field(field) for name, field in given.items()},
        "required": [name for name, field in given.items() if field.is_required],
        "additionalProperties": False,
    }
    return {
        "security": [{"token": []}],
        "requestBody": {"content": {"application/json": {"schema": body}}},
        "responses": _answers(_OUTCOME, 400, 401, 404, 409, 411, 413, 415, 503, 504),
    }


def _import() -> dict[str, Any]:
    file = {"schema": {"type": "string", "contentEncoding": "binary"}}
    return {
        "summary": "import",
        "description": "Queue the URLs of a file: a domain, a URL or a line of an export a line;"
        f" plain or gzip, at most {FILE_MAX:,} bytes unpacked.",
        "security": [{"token": []}],
        "requestBody": {"content": {"text/plain": file, "application/gzip": file}},
        "responses": _answers(_dataclass(ImportOutcome), 400, 401, 409, 413, 415),
    }


def document() -> dict[str, Any]:
    """Return the document: each question and each order, with all their fields."""
    paths: dict[str, Any] = {}
    for name, (about, schema, parameters) in _READS.items():
        paths[f"/api/v1/{name}"] = {
            "get": {
                "summary": about,
                "parameters": parameters,
                "responses": _answers(schema, *([400, 404] if parameters else [])),
            }
        }
    for name, given in ORDERS.items():
        path = paths.setdefault(f"/api/v1/{name}", {})
        path["post"] = {"summary": name, **_order(given)}
    paths["/api/v1/import"] = {"post": _import()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "A running crawl of krowlspider", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
