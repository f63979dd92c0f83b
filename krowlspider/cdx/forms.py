"""The forms of answers: CDXJ, CDX of 11 and 9 fields, and JSON as pywb and OutbackCDX have it.

Pure. A form yields texts: a heading, one for each capture, and an end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from krowlspider.cdx.capture import MISSING, CaptureLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.cdx.query import Form

_KINDS = {
    "cdxj": "text/x-cdxj",
    "cdx": "text/plain",
    "json": "text/x-ndjson",
    "jsondict": "application/json",
    "jsonarray": "application/json",
}
# Numbers in OutbackCDX's JSON.
_NUMBERS = frozenset({"timestamp", "status", "length", "offset", "orig.length", "orig.offset"})


def media_type(form: Form) -> str:
    return f"{_KINDS[form.name]}; charset=utf-8"


def texts(found: Iterable[CaptureLine], form: Form) -> Iterator[str]:
    """Yield the texts of an answer. Raises ValueError for a broken line."""
    if form.name in {"jsondict", "jsonarray"}:
        yield from _array(found, form)
        return
    make: dict[str, Callable[[CaptureLine, Form], str]] = {
        "cdxj": _cdxj,
        "json": _json,
        "cdx": _columns,
    }
    line_of = make[form.name]
    for each in found:
        yield line_of(each, form)


def _cdxj(capture: CaptureLine, form: Form) -> str:
    if form.fields is None and not capture.is_changed:
        return capture.line.decode() + "\n"
    values = _picked(capture, form)
    values.pop("urlkey", None)
    values.pop("timestamp", None)
    return f"{capture.key.decode()} {capture.timestamp} {json.dumps(values)}\n"


def _json(capture: CaptureLine, form: Form) -> str:
    return json.dumps(_picked(capture, form)) + "\n"


def _picked(capture: CaptureLine, form: Form) -> dict[str, Any]:
    values = capture.values
    if form.fields is None:
        return dict(values)
    pairs = zip(form.names, form.fields, strict=True)
    return {name: values[field] for name, field in pairs if field in values}


def _columns(capture: CaptureLine, form: Form) -> str:
    texts = (capture.text(field).replace(" ", "%20") or MISSING for field in form.fields or ())
    return " ".join(texts) + "\n"


def _array(found: Iterable[CaptureLine], form: Form) -> Iterator[str]:
    fields, names, as_rows = form.fields or (), form.names, form.name == "jsonarray"
    yield "[" + (json.dumps(names) if as_rows else "")
    between = "," if as_rows else ""
    for each in found:
        values = [_value(each, field) for field in fields]
        yield f"{between}\n{json.dumps(_row(values, fields) if as_rows else _there(names, values))}"
        between = ","
    yield "]\n"


def _row(values: list[str | int | None], fields: tuple[str, ...]) -> list[str | int | None]:
    """Return the values with "-" for texts that are missing."""
    pairs = zip(fields, values, strict=True)
    return [MISSING if value is None and name not in _NUMBERS else value for name, value in pairs]


def _there(names: tuple[str, ...], values: list[str | int | None]) -> dict[str, str | int]:
    pairs = zip(names, values, strict=True)
    return {name: value for name, value in pairs if value is not None}


def _value(capture: CaptureLine, field: str) -> str | int | None:
    """Return a value as OutbackCDX has it in JSON: None for a missing one."""
    text = capture.text(field)
    if not text or text == MISSING:
        return None
    return int(text) if field in _NUMBERS and text.isdecimal() else text
