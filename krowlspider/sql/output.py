"""Write the rows of a result, batch by batch: as a table, CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from krowlspider.errors import KrowlError, counted, need, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Characters of a cell that a table shows.
CELL_MAX = 100
_MEASURED = 1000


class Output(Protocol):
    """Takes the batches of a result, which are Arrow record batches of one schema."""

    def begin(self, schema: Any) -> None: ...
    def write(self, batch: Any) -> None: ...
    def end(self) -> None: ...


class TableOutput:
    """A table for people. The first _MEASURED rows decide the widths of the columns.

    Cells are cut to CELL_MAX characters; characters that may change a terminal become "?".
    """

    def __init__(self, file: IO[str]):
        self._file = file
        self._widths: list[int] | None = None
        self._waiting: list[list[str]] = []
        self._rows = 0

    def begin(self, schema: Any) -> None:
        pyarrow = need("pyarrow", "sql")
        self._names = [_cell(name) for name in schema.names]
        self._are_numbers = [
            pyarrow.types.is_integer(each.type)
            or pyarrow.types.is_floating(each.type)
            or pyarrow.types.is_decimal(each.type)
            for each in schema
        ]

    def write(self, batch: Any) -> None:
        rows = [[_cell(_text(_rounded(value))) for value in row] for row in rows_in(batch)]
        self._rows += len(rows)
        if self._widths is None:
            self._waiting += rows
            if len(self._waiting) >= _MEASURED:
                self._begin_table()
        else:
            for row in rows:
                self._line(row)

    def end(self) -> None:
        if self._widths is None:
            self._begin_table()
        self._file.write(f"{counted(self._rows, 'row')}\n")

    def _begin_table(self) -> None:
        rows = [self._names, *self._waiting]
        self._widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self._line(self._names)
        self._line(["-" * width for width in self._widths])
        for row in self._waiting:
            self._line(row)
        self._waiting.clear()

    def _line(self, cells: Sequence[str]) -> None:
        assert self._widths is not None
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(cells, self._widths, self._are_numbers, strict=True)
        )
        self._file.write("  ".join(padded).rstrip() + "\n")


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _cell(text: str) -> str:
    text = printable(text[: CELL_MAX + 1])
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


class CsvOutput:
    """CSV with a header. Null is an empty cell; ``clean`` returns text as a cell may have it."""

    def __init__(self, file: IO[str], clean: Callable[[str], str]):
        self._writer = csv.writer(file, lineterminator="\n")
        self._clean = clean

    def begin(self, schema: Any) -> None:
        self._writer.writerow([self._clean(name) for name in schema.names])

    def write(self, batch: Any) -> None:
        self._writer.writerows(
            [self._clean(value) if isinstance(value, str) else _text(value) for value in row]
            for row in rows_in(batch)
        )

    def end(self) -> None: ...


class JsonOutput:
    """A JSON object a line. Times are of UTC; a number that JSON lacks is null."""

    def __init__(self, file: IO[str]):
        self._file = file

    def begin(self, schema: Any) -> None:
        self._names = schema.names
        if len(set(self._names)) < len(self._names):
            raise KrowlError("two columns have one name, which a JSON object cannot have: use AS")

    def write(self, batch: Any) -> None:
        for row in rows_in(batch):
            known = {name: plain(value) for name, value in zip(self._names, row, strict=True)}
            self._file.write(f"{as_json(known)}\n")

    def end(self) -> None: ...


class ParquetOutput:
    """A Parquet file; intervals and unions, which Parquet lacks, are refused."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._writer: Any = None

    def begin(self, schema: Any) -> None:
        pyarrow = need("pyarrow", "sql")
        parquet = need("pyarrow.parquet", "sql")
        try:
            self._writer = parquet.ParquetWriter(self._file, schema, compression="zstd")
        except pyarrow.ArrowException as error:
            raise KrowlError(f"Parquet lacks a type of the result: {error}") from error

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)

    def end(self) -> None:
        self._writer.close()


def rows_in(batch: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch, with the values as Python has them."""
    return zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        # After the year 9999, or infinite.
        pyarrow = need("pyarrow", "sql")
        values = column.cast(pyarrow.int64()).to_pylist()
    return values


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat()}Z"
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, tuple):
        return _interval(*value) if hasattr(value, "nanoseconds") else [*map(plain, value)]
    return str(value)


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Return a duration as in ISO 8601."""
    seconds = f"{nanoseconds / 1e9:.9f}".rstrip("0").rstrip(".")
    return f"P{months}M{days}DT{seconds}S"


def _text(value: Any) -> str:
    """Return a value as a cell has it."""
    if value is None:
        return ""
    known = value if isinstance(value, float) else plain(value)
    return known if isinstance(known, str) else as_json(known)


def as_json(value: Any) -> str:
    """Return a value as JSON. Only Python's own encoder takes numbers of more than 64 bits."""
    try:
        return msgspec.json.encode(value).decode()
    except OverflowError:
        return json.dumps(value, ensure_ascii=False)
