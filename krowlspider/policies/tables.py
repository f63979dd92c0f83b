"""Sheets of the rows of a table in a database, ours or ferrocrawl's ``domain_policies``.

A row is a sheet. A column has the name of a key, or one of `ALIASES`; NULL leaves the key out.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from krowlspider.errors import counted
from krowlspider.policies.keys import KEYS
from krowlspider.policies.sheets import BadPolicies, Policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Rows of a table, and those with errors that are named.
ROWS_MAX = 100_000
_NAMED = 20
# The line that begins a sheet.
SHEET = "[[sheet]]"
# Columns of a number that say nothing of a site.
_OTHERS = {"id", "created_at", "updated_at"}
# The columns that may say what a sheet covers, and how they say it.
_COVERS: dict[str, Callable[[str], str]] = {
    "match": str,
    "host": "host:{}".format,
    "domain": str,
}
# Columns by other names: the keys that they stand for, and how many of theirs are one of ours.
ALIASES: dict[str, tuple[tuple[str, ...], float]] = {
    "crawl_delay_ms": (("delay",), 1000),
    "crawl_delay": (("delay",), 1),
    "max_depth": (("depth",), 1),
    "recrawl_ttl_secs": (("recrawl_min", "recrawl_max"), 1),
    "include_patterns": (("include",), 1),
    "exclude_patterns": (("exclude",), 1),
}
_LISTS = {"include", "exclude", "parameters"}
_FLAGS = {"requisites", "auth_over_http", "head", "sort_query", "archive"}


def sheets_of(
    columns: Sequence[str], rows: Iterable[Sequence[object]], place: str, delay_min: float
) -> str:
    """Return the rows of a table as the text of a file of policies. ``place`` is the table, for
    messages; ``delay_min`` is KROWL_DELAY_MIN.

    :raises BadPolicies: a row is no sheet; none is left out, for a site would miss its limits
    """
    texts: list[str] = []
    errors: list[str] = []
    for number, row in enumerate(rows, 1):
        values = dict(zip(columns, row, strict=True))
        try:
            text = _sheet(values)
        except ValueError as error:
            errors.append(f"{place} row {_name(values) or number}: {error}")
            continue
        where = f"{place} row {_name(values)}"
        try:
            Policies.parse(text, where, delay_min=delay_min)
        except BadPolicies as error:
            # The line is one of a text that nobody sees.
            errors += [f"{where}: {each.partition(': ')[2]}" for each in error.errors]
        texts.append(text)
    if errors:
        more = len(errors) - _NAMED
        rest = [f"{place}: {counted(more, 'more error')}"] if more > 0 else []
        raise BadPolicies(errors[:_NAMED] + rest)
    whole = "\n".join(texts)
    Policies.parse(whole, place, delay_min=delay_min)
    return whole


def unread(columns: Sequence[str]) -> list[str]:
    """Return the columns of which no key is made."""
    known = KEYS.keys() | ALIASES.keys() | _COVERS.keys() | _OTHERS | {"name"}
    return [name for name in columns if name not in known]


def _name(values: Mapping[str, object]) -> str:
    """Return what a row is called in one line: its name, or what it covers."""
    names = (values.get(key) for key in ("name", *_COVERS))
    name = next((str(name) for name in names if name), "")
    return " ".join("".join(each if each.isprintable() else " " for each in name).split())


def _sheet(values: Mapping[str, object]) -> str:
    """:raises ValueError: a row covers nothing, or a key stands in it twice"""
    covers = [
        how(match)
        for column, how in _COVERS.items()
        if values.get(column)
        for match in _list(values[column])
    ]
    if not covers:
        raise ValueError(f"it covers no site: {' or '.join(_COVERS)} is NULL or not there")
    keys: dict[str, object] = {}
    for column, value in values.items():
        if value is None or (column not in KEYS and column not in ALIASES):
            continue
        kind = type(value).__name__
        if not isinstance(value, (str, int, float, Decimal, list, dict)):
            raise ValueError(f"{column} is of the type {kind}: give a text or a number")  # noqa: TRY004
        for key, found in _keys(column, value):
            if key in keys:
                raise ValueError(f"{column} says {key} a second time: leave one of them NULL")
            keys[key] = found
    lines = [SHEET, f"name = {as_toml(_name(values))}", f"match = {as_toml(covers)}"]
    return "\n".join([*lines, *(f"{key} = {as_toml(value)}" for key, value in keys.items())]) + "\n"


def _keys(column: str, value: Any) -> list[tuple[str, object]]:
    names, unit = ALIASES.get(column, ((column,), 1))
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if unit != 1:
            value = float(value) / unit
        if column in _FLAGS and value in (0, 1):
            value = bool(value)
        elif isinstance(value, Decimal):
            value = float(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
    if names[0] in _LISTS:
        value = _list(value)
    if names[0] == "headers":
        value = _headers(value)
    return [(name, value) for name in names]


def _list(value: object) -> list[str]:
    """Return the texts of an array, of a JSON list, or the text itself."""
    if isinstance(value, str):
        found = _json_list(value)
        return [value] if found is None else found
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{str(value)[:80]!r} must be a text or a list of texts")
    return value


def _headers(value: object) -> dict[str, str]:
    """Return the headers of an object of JSON, as the database gives it or as text."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise ValueError('headers is no JSON object of texts, such as {"Accept": "text/html"}')
    return found


def _json_list(text: str) -> list[str] | None:
    """Return a list of texts; None of another text, such as an expression that begins with a
    set."""
    try:
        found = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return None
    is_list = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return found if is_list else None


def as_toml(value: object) -> str:
    """Return a value in TOML. Its basic strings are those of JSON, but for DEL."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{as_toml(key)} = {as_toml(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
