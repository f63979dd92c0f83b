"""Check SQL before it runs: it must be one query over tables that are known, and views before it.

DuckDB itself parses it. What it parses to is checked against lists of what is allowed, so that a
construct of a later DuckDB is refused until it is on one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from krowlspider.errors import KrowlError, counted, need, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

# Characters of a statement.
STATEMENT_MAX = 100_000
_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"}
_REFERENCES = {
    *("BASE_TABLE", "TABLE_FUNCTION", "JOIN", "SUBQUERY", "EMPTY", "EXPRESSION_LIST", "PIVOT"),
    *("SHOW_REF", "COLUMN_DATA"),
}
# Functions that make rows of their arguments alone.
_TABLE_FUNCTIONS = {
    *("unnest", "range", "generate_series", "repeat", "json_each", "json_tree"),
}
# Functions of a value that look at the machine or the process, or write to its log.
_REFUSED_FUNCTIONS = {"getenv", "current_setting", "getvariable", "write_log", "nextval", "currval"}
_SHOWN = {'"tables"', "__show_tables_expanded"}
_ABOUT_TABLES = {"tables", "columns"}
_NO_PLACE = 2**64 - 1
_AT_FETCH = 'syntax error at or near "fetch"'
_ONLY = "scrapy sql only reads: give one SELECT"
# Views of one text.
VIEWS_MAX = 50
_COMMENT = r"(?:\s|--[^\n]*\n|/\*.*?\*/)"
_VIEW = re.compile(
    rf"{_COMMENT}*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?VIEW\s+"
    rf"(?P<name>[a-z_][a-z0-9_]*)\s+AS\b",
    re.IGNORECASE | re.DOTALL,
)
_VIEW_FORM = "a view before it is CREATE VIEW name AS SELECT ..., with a name of letters and digits"
_NOT_BLANK = re.compile(r"[^\n]")


class Statement(NamedTuple):
    """A query that may run, the ``tables`` that it names, in lower case, and the ``views`` that it
    needs: pairs of name and query."""

    text: str
    tables: frozenset[str]
    views: tuple[tuple[str, str], ...] = ()


class Schemas(NamedTuple):
    """The tables that a query may name, by schema; ``""`` has those that need none."""

    tables: dict[str, AbstractSet[str]]

    def has(self, schema: str, table: str) -> bool:
        return table in self.tables.get(schema, ())


def checked(text: str, schemas: Schemas) -> Statement:
    """Return a statement that only reads the tables of ``schemas``, by way of views that stand
    before it.

    :raises KrowlError: it does more, or is no SQL
    """
    if len(text) > STATEMENT_MAX:
        raise KrowlError(f"the SQL has {len(text):,} characters; {STATEMENT_MAX:,} are the most")
    if "\0" in text:
        raise KrowlError("the SQL has a zero byte: give plain text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise KrowlError("the SQL is not UTF-8: give plain text") from error
    *before, text = _split(text)
    views: dict[str, str] = {}
    used: set[str] = set()
    for each in before:
        name, query = _view_of(each)
        if name in views or schemas.has("", name):
            raise KrowlError(f"there is a table or view {name} already: give the view another name")
        used |= _tables_of(query, schemas, views.keys())
        views[name] = query
    used |= _tables_of(text, schemas, views.keys())
    return Statement(text, frozenset(used), tuple(views.items()))


def _tables_of(text: str, schemas: Schemas, views: AbstractSet[str]) -> set[str]:
    """Return the tables that a query names, besides views.

    :raises KrowlError: it does more than read them
    """
    tree = _parsed(text)
    names = {name for each in _parts(tree) for name in _names_of_ctes(each)}
    used: set[str] = set()
    for part in _parts(tree):
        _check(part, text, schemas, names | views, used)
    return used


def _split(text: str) -> list[str]:
    """Return the statements of a text. Each stands at its place: blanks are in front of it."""
    found = _statements(text)
    if len(found) > 1 and any(each.type.name != "CREATE" for each in found[:-1]):
        raise KrowlError(f"{_ONLY}, not {counted(len(found), 'statement')}; {_VIEW_FORM}")
    if len(found) > VIEWS_MAX + 1:
        raise KrowlError(f"{counted(len(found) - 1, 'view')}: give {VIEWS_MAX} or fewer")
    if len(found) < 2:
        return [text]
    placed, end = [], 0
    for each in found:
        begin = text.index(each.query, end)
        end = begin + len(each.query)
        placed.append(_blank(text[:begin]) + each.query)
    return placed


def _view_of(text: str) -> tuple[str, str]:
    """Return name and query of the statement of a view."""
    found = _VIEW.match(text)
    if found is None:
        raise KrowlError(f"{_ONLY}; {_VIEW_FORM}")
    return found["name"].lower(), _blank(found[0]) + text[found.end() :]


def _blank(text: str) -> str:
    return _NOT_BLANK.sub(" ", text)


def _statements(text: str) -> list[Any]:
    duckdb = need("duckdb", "sql")
    try:
        found: list[Any] = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise KrowlError(error_line(error, text)) from error
    return found


def _parsed(text: str) -> Any:
    """Return the query as DuckDB parses it."""
    duckdb = need("duckdb", "sql")
    found = _statements(text)
    if not found:
        raise KrowlError('the SQL is empty: give a query, such as "SHOW TABLES"')
    if len(found) != 1:
        raise KrowlError(f"{_ONLY}, not {counted(len(found), 'statement')}")
    if (kind := found[0].type.name) != "SELECT":
        # PIVOT without a list of values is several statements.
        name = "a PIVOT without its values in IN (...)" if kind == "MULTI" else kind
        raise KrowlError(f"{_ONLY}, not {name.replace('_', ' ')}")
    with duckdb.connect() as parser:
        made = parser.execute("select json_serialize_sql(?)", [text]).fetchone()[0]
    try:
        tree = json.loads(made)
    except RecursionError as error:
        raise KrowlError("the SQL is nested too deeply") from error
    if tree["error"]:
        raise KrowlError(f"{_ONLY}: {printable(tree.get('error_message', 'it cannot be read'))}")
    return tree


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield each object within a parsed query. No recursion: a query may be nested deeply."""
    todo = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            yield part
            todo += part.values()
        elif isinstance(part, list):
            todo += part


def _names_of_ctes(part: dict[str, Any]) -> Iterator[str]:
    entries = part.get("cte_map")
    if isinstance(entries, dict):
        yield from (each["key"].lower() for each in entries.get("map", ()))


def _check(
    part: dict[str, Any], text: str, schemas: Schemas, names: AbstractSet[str], used: set[str]
) -> None:
    """Check one object of a parsed query, and add the table that it names to ``used``."""
    kind = part.get("type")
    if "class" in part:
        if part["class"] == "FUNCTION":
            _check_function(part, text)
    elif isinstance(kind, str) and kind.endswith("_NODE"):
        if kind not in _NODES:
            name = kind.partition("_")[0]
            what = name if name in _WRITES else kind
            raise KrowlError(f"{_ONLY}, not {what}")
    elif "sample" in part:
        _check_reference(part, text, schemas, names, used)


def _check_function(part: dict[str, Any], text: str) -> None:
    name = part["function_name"].lower()
    if name in _REFUSED_FUNCTIONS:
        raise KrowlError(f"{_place(part, text)}{name}() is refused: a query sees the crawl only")


def _check_reference(
    part: dict[str, Any], text: str, schemas: Schemas, names: AbstractSet[str], used: set[str]
) -> None:
    """Check what stands in FROM."""
    kind, where = part["type"], _place(part, text)
    if kind not in _REFERENCES:
        raise KrowlError(f"{where}{kind} is refused: {_ONLY}")
    if kind == "TABLE_FUNCTION":
        name = part["function"]["function_name"].lower()
        if name not in _TABLE_FUNCTIONS or part["function"].get("catalog"):
            raise KrowlError(
                f"{where}{printable(name)}() is refused: a query reads the tables of the crawl, no"
                " files and nothing of the machine"
            )
    elif kind == "SHOW_REF":
        shown = part["table_name"]
        if part["show_type"] == "SHOW_SPECIAL" and shown not in _SHOWN:
            raise KrowlError(f"{where}SHOW {shown} is refused: SHOW TABLES lists the tables")
        if part["show_type"] == "SHOW":
            _check_table(part, where, schemas, names, used)
    elif kind == "BASE_TABLE":
        _check_table(part, where, schemas, names, used)


def _check_table(
    part: dict[str, Any], where: str, schemas: Schemas, names: AbstractSet[str], used: set[str]
) -> None:
    schema, table = part["schema_name"].lower(), part["table_name"].lower()
    if not part["catalog_name"]:
        # Within a CTE of its name, it may be the table itself.
        if schemas.has(schema, table):
            used.add(table)
            return
        if not schema and table in names:
            return
        if schema == "information_schema" and table in _ABOUT_TABLES:
            return
    full = ".".join(filter(None, (part["catalog_name"], schema, table)))
    known = ", ".join(sorted(schemas.tables[""]))
    raise KrowlError(f"{where}there is no table {printable(full)!r}; there are {known}")


def _place(part: dict[str, Any], text: str) -> str:
    """Return where a part of a query stands, as the beginning of a message."""
    at = part.get("query_location", _NO_PLACE)
    if not isinstance(at, int) or at >= _NO_PLACE:
        return ""
    # DuckDB counts bytes.
    before = text.encode(errors="replace")[:at].decode(errors="replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"line {line}, column {column}: "


def error_line(error: Exception, text: str) -> str:
    """Return an error of DuckDB in one line, with the place in the query if it names one."""
    said, _, rest = str(error).partition("\n")
    message = said.partition("Error: ")[2] or said
    lines, where = rest.split("\n"), ""
    for at, line in enumerate(lines):
        if not line.startswith("LINE "):
            continue
        label, _, shown = line.partition(": ")
        mark = lines[at + 1] if at + 1 < len(lines) else ""
        column = mark.find("^") - len(label) - 2
        number = label.removeprefix("LINE ")
        if column < 0 or not number.isdigit():
            break
        # A long line is shown from its middle.
        if shown.startswith("..."):
            source = (text.split("\n") + [""] * int(number))[int(number) - 1]
            found = source.find(shown.strip(".")[:40])
            column = found + column - 3 if found >= 0 else -1
        where = f"line {number}, column {column + 1}: " if column >= 0 else f"line {number}: "
        break
    if message.rstrip() == _AT_FETCH:
        message += '. FETCH is a word of SQL: write "fetch", or capture'
    hints = [line.strip() for line in lines if line.startswith(("Candidate ", "Did you mean"))]
    return printable(where + " ".join([message.rstrip(), *hints]))[:1000]
