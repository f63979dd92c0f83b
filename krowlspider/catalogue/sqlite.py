"""The rows of a catalogue in a file of SQLite. Rows and checkpoint are one transaction."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from krowlspider.catalogue.migrations import MAKE_OWN, NAMES, OWN, pending
from krowlspider.catalogue.statements import (
    CHECKPOINTS,
    COLUMNS,
    KEYS,
    checkpoint_text,
    cleaned,
    column_list,
    done_in,
    on_conflict,
)
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from krowlspider.catalogue.sinks import Row

# Seconds that another program may hold the file.
_LOCK_MAX = 60.0
# What to do, by a part of SQLite's message.
_WAYS = {
    "locked": ": another program writes to it; do it again",
    "unable to open": ": give a path of a file, in a folder that is there and yours",
}
_INSERTS = {
    table: f'INSERT INTO "{table}" ({column_list(table)})'
    f" VALUES ({', '.join('?' * len(COLUMNS[table]))}) {on_conflict(table)}"
    for table in KEYS
}


class SqliteSink:
    """A `Sink` of these tables in a file. Times are text in UTC, as SQLite's functions take them.

    :raises KrowlError: the file cannot be used
    """

    def __init__(self, path: Path, tables: frozenset[str], lock_max: float = _LOCK_MAX) -> None:
        self._tables = tables
        self.place = str(path)
        with _one_line(self.place):
            self._connection = sqlite3.connect(path, timeout=lock_max, isolation_level=None)
            try:
                self._connection.execute("PRAGMA synchronous = FULL")
                with self._transaction():
                    self._migrate()
                # Readers do not wait for a writer, nor a writer for them. It is kept in the file.
                self._connection.execute("PRAGMA journal_mode = WAL")
            except BaseException:
                self._connection.close()
                raise

    def done(self) -> set[str]:
        with _one_line(self.place):
            return done_in(self._connection.execute(CHECKPOINTS), self._tables)

    def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
        count = 0
        with _one_line(self.place), self._transaction():
            for table, row in rows:
                self._connection.execute(_INSERTS[table], _values(row, table))
                count += 1
            self._connection.execute(
                "INSERT INTO file (name, tables, rows) VALUES (?, ?, ?) ON CONFLICT (name)"
                " DO UPDATE SET tables = excluded.tables, rows = excluded.rows",
                [name, checkpoint_text(self._tables), count],
            )

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _migrate(self) -> None:
        execute = self._connection.execute
        there = {name for (name,) in execute("SELECT name FROM sqlite_master")} & NAMES
        columns = [row[1] for row in execute(f"PRAGMA table_info({OWN})")]
        is_ours = "number" in columns and "name" in columns
        applied = list(execute(f"SELECT number, name FROM {OWN}")) if is_ours else []
        lacking = pending(self.place, there, columns, applied)
        if lacking and OWN not in there:
            execute(MAKE_OWN)
        for migration in lacking:
            for statement in migration.statements:
                execute(statement)
            execute(
                f"INSERT INTO {OWN} (number, name) VALUES (?, ?)",
                [migration.number, migration.name],
            )


def read(path: Path, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns that a query yields, and its rows.

    :raises KrowlError: the file cannot be used
    """
    with _one_line(str(path)):
        # A reader with mode=ro would leave the files of the write-ahead log behind.
        url = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(url, uri=True, timeout=_LOCK_MAX)) as connection:
            connection.execute("PRAGMA query_only = ON")
            cursor = connection.execute(query)
            return [each[0] for each in cursor.description], cursor.fetchall()


@contextmanager
def _one_line(place: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        way = next((way for part, way in _WAYS.items() if part in str(error)), "")
        raise KrowlError(f"{place} cannot be used: {error}{way}") from error


def _values(row: Row, table: str) -> list[object]:
    return [
        value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        if isinstance(value, datetime)
        else value
        for value in cleaned(row, table)
    ]
