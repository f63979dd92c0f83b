"""The rows of a catalogue in PostgreSQL, in a schema of their own.

Rows and checkpoint of a WARC file are one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.catalogue.migrations import MAKE_OWN, NAMES, OWN, pending
from krowlspider.catalogue.spool import RowSpool
from krowlspider.catalogue.statements import (
    CHECKPOINTS,
    KEYS,
    checkpoint_text,
    column_list,
    done_in,
    on_conflict,
)
from krowlspider.errors import KrowlError, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.catalogue.server import Database
    from krowlspider.catalogue.sinks import Row

SCHEMA = "krowl"
# Writers of a database take turns by this lock: a number that is always the same.
_TAKE_TURN = "SELECT pg_advisory_xact_lock(461179872108)"
_RELATIONS = """
SELECT relname FROM pg_catalog.pg_class
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relname = ANY(%s)
"""
_COLUMNS = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class PostgresqlSink:
    """A `Sink` of these tables in a database. ``say`` takes a line that a person should know.

    :raises KrowlError: the database cannot be used
    """

    def __init__(
        self, server: Database, tables: frozenset[str], say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._tables = tables
        self._say = say
        try:
            server.persist(self._migrate)
        except BaseException:
            server.close()
            raise

    def done(self) -> set[str]:
        return self._server.persist(self._done)

    def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
        with RowSpool(rows) as spool:
            if spool.left_out:
                left_out = f"{counted(spool.left_out, 'row')} with a URL too long for an index"
                self._say(f"{name}: left out of {self._server.place}: {left_out}")
            self._server.persist(lambda: self._take(name, spool))

    def close(self) -> None:
        self._server.close()

    def _done(self) -> set[str]:
        # The database may be another than before, restored from a backup.
        self._migrate()
        with self._server.transaction(SCHEMA):
            return done_in(self._checkpoints(), self._tables)

    def _checkpoints(self) -> list[tuple[str, str]]:
        return [(name, tables) for name, tables in self._server.ask(CHECKPOINTS)]

    def _take(self, name: str, spool: RowSpool) -> None:
        """Write the rows of a file, and that they are there."""
        server = self._server
        self._migrate()
        with server.transaction(SCHEMA):
            server.ask(_TAKE_TURN)
            for table in spool.tables:
                self._take_table(table, spool)
            server.ask(
                "INSERT INTO file (name, tables, rows) VALUES (%s, %s, %s) ON CONFLICT (name)"
                " DO UPDATE SET tables = excluded.tables, rows = excluded.rows",
                [name, checkpoint_text(self._tables), spool.rows],
            )

    def _take_table(self, table: str, spool: RowSpool) -> None:
        ask, staged, names = self._server.ask, f"pg_temp.staged_{table}", column_list(table)
        key = ", ".join(KEYS[table])
        ask(f'CREATE TEMP TABLE {staged} (LIKE "{table}") ON COMMIT DROP')
        self._server.copy(f"COPY {staged} ({names}) FROM STDIN", spool.blocks(table))
        # Of rows with one key, the last one holds.
        ask(
            f'INSERT INTO "{table}" ({names})'
            f" SELECT DISTINCT ON ({key}) {names} FROM {staged} ORDER BY {key}, ctid DESC"
            f" {on_conflict(table)}"
        )

    def _migrate(self) -> None:
        """Make the tables that the database lacks.

        :raises KrowlError: it is not ours, or of another version
        """
        ask, place = self._server.ask, f"schema {SCHEMA} of {self._server.place}"
        ((encoding,),) = ask("SHOW server_encoding")
        if encoding != "UTF8":
            raise KrowlError(
                f"{self._server.place} has the encoding {encoding}: create it with ENCODING 'UTF8'"
            )
        with self._server.transaction(SCHEMA):
            ask(_TAKE_TURN)
            there = {name for (name,) in ask(_RELATIONS, [SCHEMA, sorted(NAMES)])}
            columns = [name for (name,) in ask(_COLUMNS, [f"{SCHEMA}.{OWN}"])]
            is_ours = OWN in there and "number" in columns and "name" in columns
            applied = ask(f"SELECT number, name FROM {OWN}") if is_ours else []
            lacking = pending(place, there, columns, [(number, name) for number, name in applied])
            if not lacking:
                return
            if not ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", [SCHEMA]):
                ask(f"CREATE SCHEMA {SCHEMA}")
            if OWN not in there:
                ask(MAKE_OWN)
            for migration in lacking:
                for statement in migration.statements:
                    ask(statement)
                ask(
                    f"INSERT INTO {OWN} (number, name) VALUES (%s, %s)",
                    [migration.number, migration.name],
                )
