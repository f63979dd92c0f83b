"""A catalogue of Parquet files: ``TABLE/crawl=NAME/subset=S/FILE.parquet``.

The rows of a WARC file are in files of its name, one for each table and partition, sorted by SURT.
Each appears whole. The marker of a WARC file is written when all are durable: without it the files
are made again, with the same names. Names that begin with "_" or "." are no data to Spark, DuckDB
and Athena.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from krowlspider.archive.cdxj import WARC
from krowlspider.archive.disk import (
    ArchiveError,
    lock_directory,
    make_directory,
    remove_drafts,
    write_durably,
)
from krowlspider.catalogue.columns import PARTITIONS, SUBSETS, TABLES
from krowlspider.errors import KrowlError, need

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from krowlspider.catalogue.columns import Column
    from krowlspider.catalogue.sinks import Row

_SUFFIX = ".parquet"
# The folder of the markers, which each catalogue has.
MARKERS = "_done"
# Rows that are kept as objects; further ones are kept as columns, about 700 bytes each.
ROWS_AT_ONCE = 5_000
# Rows that a reader decodes at once.
_GROUP = 100_000
_TYPES = {
    "text": "string",
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "double": "float64",
    "boolean": "bool_",
}


class Marker(msgspec.Struct):
    """What was written of a WARC file: its tables, and the rows of each."""

    tables: list[str]
    rows: dict[str, int]


class ParquetSink:
    """The catalogue in ``folder``, with these tables. One process has it, by a lock.

    :raises KrowlError: pyarrow is missing, there is something else, or another process has it
    :raises OSError: the folder cannot be made
    """

    def __init__(self, folder: Path, tables: frozenset[str]):
        need("pyarrow", "sql")
        _refuse_others(folder)
        self._folder = folder
        self._tables = tables
        self._markers = folder / MARKERS
        # Whether each marker that was read has all tables: nobody else writes them.
        self._has_all: dict[str, bool] = {}
        make_directory(self._markers)
        try:
            self._lock = lock_directory(folder)
        except ArchiveError as error:
            raise KrowlError(f"another scrapy catalogue writes to {folder}") from error
        for part in (self._markers, *(each for name in TABLES for each in self._parts(name))):
            remove_drafts(part, "")

    def close(self) -> None:
        os.close(self._lock)

    @property
    def crawls(self) -> set[str]:
        """The names of the crawls that have rows."""
        return {unquote(part.name.partition("=")[2]) for part in self._folder.glob("*/crawl=*")}

    def done(self) -> set[str]:
        """Return the names of the WARC files that have a marker with all tables."""
        there = {path.name for path in self._markers.glob(f"*{WARC}")}
        for name in there - self._has_all.keys():
            self._has_all[name] = self._tables.issubset(_read(self._markers / name).tables)
        return {name for name in there if self._has_all[name]}

    def write(self, name: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Write the files of a WARC file, then its marker. Raises OSError, and what ``rows`` does.

        Rows are in memory as columns until they are sorted.
        """
        # By the table and the values of its partition.
        tables: dict[tuple[object, ...], _Table] = {}
        counts = dict.fromkeys(sorted(self._tables), 0)
        for table, row in rows:
            counts[table] += 1
            key = (table, *(row[name] for name, _, _ in PARTITIONS[table]))
            if key not in tables:
                tables[key] = _Table(TABLES[table])
            tables[key].add(row)
        file = name.removesuffix(WARC) + _SUFFIX
        made = set()
        for (name_of_table, *values), rest in tables.items():
            table = str(name_of_table)
            made.add(part := self._folder / table / _partition(table, values))
            make_directory(part)
            with write_durably(part / file) as draft:
                rest.write(draft)
        for part in {each for table in TABLES for each in self._parts(table)} - made:
            # Another try may have had other partitions.
            (part / file).unlink(missing_ok=True)
        with write_durably(self._markers / name) as draft:
            draft.write(msgspec.json.encode(Marker(sorted(self._tables), counts)))
        self._has_all[name] = True

    def _parts(self, table: str) -> list[Path]:
        """Return the folders of partitions of a table that are there."""
        crawls = list((self._folder / table).glob("crawl=*"))
        if len(PARTITIONS[table]) == 1:
            return crawls
        parts = (crawl / f"subset={subset}" for crawl in crawls for subset in SUBSETS)
        return [part for part in parts if part.is_dir()]


def _read(path: Path) -> Marker:
    """Return a marker; one that is damaged has no tables, so its file is made again."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Marker)
    return Marker([], {})


def _refuse_others(folder: Path) -> None:
    """:raises KrowlError: there is a file, or a folder that holds some and is no catalogue"""
    if folder.is_dir():
        names = {path.name for path in folder.iterdir()}
        if not names or MARKERS in names:
            return
        raise KrowlError(f"{folder} exists and is no catalogue: give a new folder with -o")
    if os.path.lexists(folder):
        raise KrowlError(f"{folder} is a file: give a folder with -o")


def _partition(table: str, values: Sequence[object]) -> str:
    named = zip(PARTITIONS[table], values, strict=True)
    return "/".join(f"{column.name}={quote(str(value), safe=' ')}" for column, value in named)


class _Table:
    """The rows of a file."""

    def __init__(self, columns: Sequence[Column]):
        self._columns = columns
        self._schema = schema_of(columns)
        self._rows: list[Row] = []
        self._batches: list[Any] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == ROWS_AT_ONCE:
            self._turn()

    def _turn(self) -> None:
        """Make columns of the rows."""
        arrow, rows = need("pyarrow"), self._rows
        columns = [
            arrow.array([row.get(field.name) for row in rows], field.type) for field in self._schema
        ]
        self._batches.append(arrow.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows = []

    def write(self, file: Any) -> None:
        """Write the rows in the order of the first column, equal ones as they came."""
        arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
        compute = need("pyarrow.compute")
        self._turn()
        table = arrow.Table.from_batches(self._batches)
        self._batches = []
        # Of equal keys the first comes first.
        place = arrow.array(range(len(table)), arrow.int64())
        by = [(self._columns[0].name, "ascending"), ("_place", "ascending")]
        order = compute.sort_indices(table.append_column("_place", place), sort_keys=by)
        parquet.write_table(
            table.take(order), file, compression="zstd", row_group_size=_GROUP,
            sorting_columns=[parquet.SortingColumn(0)],
        )  # fmt: skip


def schema_of(columns: Sequence[Column]) -> Any:
    """Return the schema of these columns as pyarrow has it."""
    arrow = need("pyarrow", "sql")
    return arrow.schema(
        [
            arrow.field(
                name,
                arrow.timestamp("us", "UTC") if kind == "timestamp" else _type(arrow, kind),
                nullable=not required,
            )
            for name, kind, required in columns
        ]
    )


def _type(arrow: Any, kind: str) -> Any:
    return getattr(arrow, _TYPES[kind])()
