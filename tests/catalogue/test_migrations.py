"""The tables of a database: as the rows have them, and never those of another program."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from krowlspider.catalogue.columns import PARTITIONS, TABLES
from krowlspider.catalogue.databases import sink_at
from krowlspider.catalogue.migrations import MIGRATIONS, NAMES, OWN, OWN_COLUMNS, pending
from krowlspider.errors import KrowlError
from krowlspider.policies.keys import KEYS
from tests.catalogue.made_rows import ALL, made_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgresql import Server

# Places in WARC files of over 2 GiB need more than the 32 bits of an integer.
TYPES = {
    "text": "text",
    "smallint": "smallint",
    "integer": "bigint",
    "bigint": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "timestamp": "timestamp with time zone",
}
VIEWS = ("page", "latest_robots", "host", "host_error", "host_speed", "seed_total")


def test_columns_of_the_tables_are_those_of_the_rows(postgresql: Server) -> None:
    with closing(sink_at(postgresql.make("columns"), ALL, pytest.fail)):
        found = postgresql.ask(
            "columns",
            "SELECT table_name, column_name, data_type, is_nullable"
            " FROM information_schema.columns WHERE table_schema = 'krowl'"
            " ORDER BY table_name, ordinal_position",
        )
    for table, columns in TABLES.items():
        assert [each[1:] for each in found if each[0] == table] == [
            (each.name, TYPES[each.type], "NO" if each.required else "YES")
            for each in (*columns, *PARTITIONS[table])
        ]
    assert {each for _, each, *_ in found if _ == "policy"} <= {"name", "match", *KEYS}


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [each.number for each in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert len(NAMES) == 1 + sum(len(each.makes) for each in MIGRATIONS)
    assert NAMES >= {*TABLES, "policy", "file", *VIEWS}


def test_a_database_gets_what_it_lacks() -> None:
    first, second = ((each.number, each.name) for each in MIGRATIONS)
    made = [OWN, *MIGRATIONS[0].makes]
    assert pending("x", [], [], []) == MIGRATIONS
    assert pending("x", made, OWN_COLUMNS, [first]) == MIGRATIONS[1:]
    assert pending("x", NAMES, OWN_COLUMNS, [second, first]) == ()


@pytest.mark.parametrize(
    ("there", "columns", "applied", "error"),
    [
        (["page"], [], [], "x has a table page that scrapy catalogue has not made: rename it"),
        ([OWN], ["id", "number", "name"], [], "x has a table migration that"),
        (["host_error"], [], [], "x has a table host_error that"),
        ([OWN, "seed_total"], OWN_COLUMNS, [(1, "0001_tables")], "has a table seed_total that"),
        (
            [OWN],
            OWN_COLUMNS,
            [(7, "0007_future")],
            "by a newer krowlspider: it has migration 7",
        ),
        ([OWN], OWN_COLUMNS, [(1, "0001_other")], "has migrations that are not of this"),
        ([OWN], OWN_COLUMNS, [(2, "0002_views")], "has migrations that are not of this"),
    ],
)
def test_a_database_of_others_or_of_later_is_refused(
    there: list[str], columns: list[str], applied: list[tuple[int, str]], error: str
) -> None:
    with pytest.raises(KrowlError, match=re.escape(error)):
        pending("x", there, columns, applied)


def test_a_foreign_table_of_our_name_stays_as_it_is(postgresql: Server, tmp_path: Path) -> None:
    url, ask = postgresql.make("foreign"), postgresql.ask
    for schema in ("public", "krowl"):
        ask("foreign", f"CREATE SCHEMA IF NOT EXISTS {schema}")
        ask("foreign", f"CREATE TABLE {schema}.host AS SELECT 'theirs' AS name")
    with pytest.raises(KrowlError, match=r"^schema krowl of PostgreSQL at .* has a table host "):
        sink_at(url, ALL, pytest.fail)
    assert ask("foreign", "SELECT * FROM krowl.host") == [("theirs",)]
    assert ask("foreign", "SELECT to_regclass('krowl.file')") == [(None,)]
    # Beside one in another schema, ours is made.
    ask("foreign", "ALTER TABLE krowl.host RENAME TO their_host")
    with closing(sink_at(url, ALL, pytest.fail)) as sink:
        ask("foreign", "CREATE TABLE krowl.staged_page_by_file ()")
        sink.write("a", made_rows("a", 1, ("page_by_file",)))
    assert ask("foreign", "SELECT * FROM public.host, krowl.their_host") == [("theirs", "theirs")]

    path = tmp_path / "foreign.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE host AS SELECT 'theirs' AS name")
    before = path.read_bytes()
    with pytest.raises(KrowlError, match=r"foreign\.db has a table host that"):
        sink_at(f"sqlite:///{path}", ALL, pytest.fail)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(postgresql: Server, tmp_path: Path) -> None:
    newer, path = f"INSERT INTO {OWN} VALUES (9, '0009_later', now())", tmp_path / "newer.db"
    url = postgresql.make("newer")
    for each in (url, f"sqlite:///{path}"):
        sink_at(each, ALL, pytest.fail).close()
    postgresql.ask("newer", f"SET search_path = krowl; {newer}")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(newer.replace("now()", "''"))
    for each in (url, f"sqlite:///{path}"):
        with pytest.raises(KrowlError, match="made by a newer krowlspider: it has migration 9"):
            sink_at(each, ALL, pytest.fail)
