"""The lines of the add-on, put into the text of a project's settings module."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDON = "krowlspider.addon.Krowl"
ENTRY = f'"{ADDON}": 100'
LINE = f"ADDONS = {{{ENTRY}}}"
# Where ADDONS has come from elsewhere, such as an import.
FURTHER_LINE = f"ADDONS = {{**ADDONS, {ENTRY}}}"
_HEAD = "# A polite and durable crawl, archived as WARC: `scrapy krowl init` says what differs."

_NEWLINE = r"\r\n|\r|\n"


class UneditableError(ValueError):
    """The text cannot be edited safely; the message says why."""


def assignment(name: str, value: str) -> str:
    """Return the line that sets a setting to text."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def edited(text: str, values: Mapping[str, str], *, addon: str = "") -> str:
    """Return the text of a settings module with further settings, all of them text.

    With ``addon``, ADDONS gets the add-on too: by that line, if the text does not assign ADDONS.
    Nothing else changes. The line breaks are those of the text.

    :raises UneditableError: ADDONS is no plain dictionary that the text assigns once
    """
    lines = re.findall(rf"[^\r\n]*(?:{_NEWLINE})|[^\r\n]+", text)
    found = re.search(_NEWLINE, text)
    newline = found[0] if found else "\n"
    if lines and not re.search(rf"(?:{_NEWLINE})\Z", lines[-1]):
        lines[-1] += newline
    added = [assignment(*each) for each in values.items()]
    statement = _assigned(text) if addon else None
    if statement is None:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [
            f"{line}{newline}" for line in ("", "", *([_HEAD, addon] if addon else []), *added)
        ]
    else:
        end = statement.end_lineno
        assert end
        lines[end:end] = [f"{line}{newline}" for line in added]
        _enter(lines, statement.value, newline)
    return "".join(lines)


def _assigned(text: str) -> ast.Assign | ast.AnnAssign | None:
    """Return the statement that sets ADDONS; None if the text has none.

    :raises UneditableError: it is not a plain one of the module, or ADDONS is named again
    """
    tree = ast.parse(text)
    named = [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "ADDONS"
    ]
    if not named:
        return None
    if len(named) > 1:
        raise UneditableError(f"lines {named[0]} and {named[1]} name ADDONS")
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if [getattr(target, "id", "") for target in targets] == ["ADDONS"]:
                return statement
    raise UneditableError(f"line {named[0]} sets ADDONS only in some cases, or not ADDONS alone")


def _enter(lines: list[str], value: ast.expr | None, newline: str) -> None:
    """Put the add-on first into the dictionary of ADDONS.

    :raises UneditableError: it is not written as {...}
    """
    if not isinstance(value, ast.Dict):
        raise UneditableError("ADDONS is not written as {...}")
    index = value.lineno - 1
    # The offsets of `ast` are in bytes.
    line = lines[index].encode()
    head, rest = line[: value.col_offset + 1].decode(), line[value.col_offset + 1 :].decode()
    if not value.values:
        lines[index] = f"{head}{ENTRY}{rest}"
        return
    first = value.keys[0] or value.values[0]
    if first.lineno == value.lineno:
        lines[index] = f"{head}{ENTRY}, {rest}"
    else:
        below = lines[first.lineno - 1]
        indent = below[: len(below) - len(below.lstrip())]
        lines.insert(index + 1, f"{indent}{ENTRY},{newline}")
