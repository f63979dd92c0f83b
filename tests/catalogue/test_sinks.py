"""What holds for every sink: the same rows go in, and the same come out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import pytest
from pyarrow.dataset import dataset

from krowlspider.catalogue.columns import PARTITIONS, TABLES
from krowlspider.catalogue.databases import sink_at
from krowlspider.catalogue.parquet import ParquetSink
from krowlspider.catalogue.sqlite import SqliteSink
from krowlspider.errors import KrowlError
from tests.catalogue.made_rows import ALL, made_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from krowlspider.catalogue.sinks import Row, Sink
    from tests.support.postgresql import Server

FILE = "krowl-20260101000000-00001-node.warc.gz"
OTHER = "krowl-20260101000000-00002-node.warc.gz"


class Kept(Protocol):
    """A sink that can be opened again, and read."""

    url: str

    def open(self, tables: frozenset[str] = ALL) -> Sink: ...

    def read(self, table: str) -> list[tuple[Any, ...]]: ...


class _Postgresql:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._name = f"sink-{uuid4()}"
        self.url = server.make(self._name)

    def open(self, tables: frozenset[str] = ALL) -> Sink:
        return sink_at(self.url, tables, pytest.fail)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return list(self._server.ask(self._name, f"SET search_path = krowl; {query}"))

    def read(self, table: str) -> list[tuple[Any, ...]]:
        rows = self._server.ask(self._name, f"SELECT {_listed(table)} FROM krowl.{table}")
        return [tuple(_utc(value) for value in row) for row in rows]


class _Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def open(self, tables: frozenset[str] = ALL) -> Sink:
        return sink_at(self.url, tables, pytest.fail)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(query).fetchall()

    def read(self, table: str) -> list[tuple[Any, ...]]:
        types = [each.type for each in _columns(table)]
        rows = self.ask(f'SELECT {_listed(table)} FROM "{table}"')
        return [tuple(map(_typed, types, row)) for row in rows]


class _Parquet:
    url = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, tables: frozenset[str] = ALL) -> Sink:
        return ParquetSink(self._folder, tables)

    def read(self, table: str) -> list[tuple[Any, ...]]:
        if not (folder := self._folder / table).is_dir():
            return []
        rows = dataset(folder, partitioning="hive").to_table().to_pylist()
        return [tuple(row[each.name] for each in _columns(table)) for row in rows]


def _columns(table: str) -> list[Any]:
    return [*TABLES[table], *PARTITIONS[table]]


def _listed(table: str) -> str:
    return ", ".join(each.name for each in _columns(table))


def _utc(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _typed(kind: str, value: Any) -> object:
    if value is None:
        return None
    if kind == "timestamp":
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return bool(value) if kind == "boolean" else value


@pytest.fixture(params=["postgresql", "sqlite", "parquet"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return sink_in(request.param, request, tmp_path)


def sink_in(kind: str, request: pytest.FixtureRequest, folder: Path) -> Kept:
    if kind == "sqlite":
        return _Sqlite(folder / "catalogue.db")
    if kind == "parquet":
        return _Parquet(folder / "catalogue")
    return _Postgresql(request.getfixturevalue("postgresql"))


def given(rows: list[tuple[str, Row]], table: str) -> list[tuple[Any, ...]]:
    names = [each.name for each in _columns(table)]
    return _sorted([tuple(row[name] for name in names) for kind, row in rows if kind == table])


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def assert_has(kept: Kept, rows: list[tuple[str, Row]]) -> None:
    for table in TABLES:
        assert _sorted(kept.read(table)) == given(rows, table)


def test_every_row_comes_out_as_it_went_in(kept: Kept) -> None:
    rows = [*made_rows(FILE, 20), *made_rows(OTHER, 20)]
    with closing(kept.open()) as sink:
        sink.write(FILE, made_rows(FILE, 20))
        assert sink.done() == {FILE}
        sink.write(OTHER, iter(rows[20 * len(TABLES) :]))
        assert sink.done() == {FILE, OTHER}
    assert_has(kept, rows)


def test_a_file_is_in_it_once_however_often_it_is_written(kept: Kept) -> None:
    for _ in range(2):
        with closing(kept.open()) as sink:
            sink.write(FILE, made_rows(FILE, 5))
            sink.write(FILE, made_rows(FILE, 5))
            assert sink.done() == {FILE}
    assert_has(kept, list(made_rows(FILE, 5)))


def test_a_file_that_cannot_be_read_to_its_end_leaves_nothing(kept: Kept) -> None:
    def broken() -> Iterator[tuple[str, Row]]:
        yield from made_rows(OTHER, 50)
        raise OSError("the disk")

    with closing(kept.open()) as sink:
        sink.write(FILE, made_rows(FILE, 5))
        with pytest.raises(OSError, match="the disk"):
            sink.write(OTHER, broken())
        assert sink.done() == {FILE}
        assert_has(kept, list(made_rows(FILE, 5)))
        sink.write(OTHER, made_rows(OTHER, 5))
    assert_has(kept, [*made_rows(FILE, 5), *made_rows(OTHER, 5)])


def test_a_file_without_rows_is_done(kept: Kept) -> None:
    with closing(kept.open()) as sink:
        sink.write(FILE, [])
        assert sink.done() == {FILE}
    with closing(kept.open()) as sink:
        assert sink.done() == {FILE}
    assert_has(kept, [])


@pytest.mark.parametrize("kept", ["postgresql", "sqlite"], indirect=True)
def test_what_is_no_text_becomes_replacement_characters(kept: Kept) -> None:
    ((_, row),) = made_rows(FILE, 1, ("fetch",))
    row |= {"krowl_title": "a\0b", "krowl_description": "a\ud800b"}
    with closing(kept.open()) as sink:
        sink.write(FILE, [("fetch", row)])
    row |= {"krowl_title": "a\ufffdb", "krowl_description": "a?b"}
    assert_has(kept, [("fetch", row)])


def test_a_file_is_done_again_for_further_tables(kept: Kept) -> None:
    few, rows = frozenset({"fetch", "host_by_file"}), list(made_rows(FILE, 5))
    with closing(kept.open(few)) as sink:
        sink.write(FILE, [each for each in rows if each[0] in few])
        assert sink.done() == {FILE}
    with closing(kept.open()) as sink:
        assert sink.done() == set()
        sink.write(FILE, rows)
        assert sink.done() == {FILE}
    with closing(kept.open(few)) as sink:
        assert sink.done() == {FILE}
    assert_has(kept, rows)


@pytest.mark.parametrize("kept", ["postgresql", "sqlite"], indirect=True)
def test_a_record_is_in_a_database_once(kept: Kept) -> None:
    """Also if two of its rows are in a file, or one in each of two."""
    ((_, first),) = made_rows(FILE, 1, ("fetch",))
    second = first | {"krowl_title": "second"}
    third = first | {"krowl_title": "third", "warc_filename": OTHER}
    with closing(kept.open()) as sink:
        sink.write(FILE, [("fetch", first), ("fetch", second)])
        assert_has(kept, [("fetch", second)])
        sink.write(OTHER, [("fetch", third)])
    assert_has(kept, [("fetch", third)])


def test_a_file_of_sqlite_that_another_program_writes_to_is_named(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    with closing(SqliteSink(path, ALL, lock_max=0.05)) as sink:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(KrowlError, match="is locked: another program writes to it"):
                sink.write(FILE, made_rows(FILE, 1))
        sink.write(FILE, made_rows(FILE, 1))
        assert sink.done() == {FILE}
