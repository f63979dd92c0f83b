"""The statements by which rows come into a database's tables, the same for each dialect. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.catalogue.columns import PARTITIONS, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.catalogue.sinks import Row

# The columns that are the key of each table: rows with the key of another replace it.
KEYS: dict[str, tuple[str, ...]] = {
    "fetch": ("krowl_record_id",),
    "host_by_file": ("host", "warc_filename"),
    "robots": ("record_id",),
    "sitemap": ("record_id",),
    "link": ("record_id", "number"),
    "change": ("record_id",),
    "page_by_file": ("url", "warc_filename"),
}
# Names of the columns of each table, in their order.
COLUMNS = {
    name: tuple(each.name for each in (*columns, *PARTITIONS[name]))
    for name, columns in TABLES.items()
}
# What is done: the names of tables are sorted, with commas between them.
CHECKPOINTS = "SELECT name, tables FROM file"
_SEPARATOR = ","


def checkpoint_text(tables: frozenset[str]) -> str:
    """Return the names of tables as a checkpoint has them."""
    return _SEPARATOR.join(sorted(tables))


def done_in(checkpoints: Iterable[tuple[str, str]], tables: frozenset[str]) -> set[str]:
    """Return the files of which all these tables have the rows."""
    return {name for name, there in checkpoints if tables <= {*there.split(_SEPARATOR)}}


def column_list(table: str) -> str:
    return ", ".join(COLUMNS[table])


def on_conflict(table: str) -> str:
    """Return the clause by which a row replaces the one with its key."""
    key = KEYS[table]
    sets = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[table] if name not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"


def cleaned(row: Row, table: str) -> list[object]:
    """Return the values of a row in the order of the columns. Texts are without NUL, which no
    database takes, and without halves of surrogate pairs, which are no text."""
    values: list[object] = [row.get(name) for name in COLUMNS[table]]
    for at, value in enumerate(values):
        if type(value) is str and not value.isascii():
            values[at] = value.encode(errors="replace").decode()
        if type(value) is str and "\0" in value:
            values[at] = str(values[at]).replace("\0", "\ufffd")
    return values
