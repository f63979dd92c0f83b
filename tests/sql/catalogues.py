"""Write catalogues of made-up rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from krowlspider.catalogue.columns import PARTITIONS, TABLES
from krowlspider.catalogue.parquet import MARKERS, schema_of

if TYPE_CHECKING:
    from pathlib import Path

_VALUES: dict[str, Any] = {
    "text": "",
    "smallint": 0,
    "integer": 0,
    "bigint": 0,
    "double": 0.0,
    "boolean": False,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
}


def minute(number: int) -> datetime:
    return datetime(2026, 1, 1, 0, number, tzinfo=UTC)


def put(
    folder: Path, table: str, file: str, *rows: dict[str, Any], crawl: str = "job", subset: str = ""
) -> Path:
    """Write the rows of a WARC file to a table of a catalogue. Columns that a row lacks are null,
    or have some value if they must have one."""
    columns = TABLES[table]
    made = [
        {
            each.name: row.get(each.name, _VALUES[each.type] if each.required else None)
            for each in columns
        }
        for row in rows
    ]
    assert all(row.keys() <= {each.name for each in columns} for row in rows)
    (folder / MARKERS).mkdir(parents=True, exist_ok=True)
    path = folder / table / f"crawl={crawl}"
    if len(PARTITIONS[table]) > 1:
        path /= f"subset={subset or 'warc'}"
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(made, schema=schema_of(columns)), path / f"{file}.parquet")
    return path / f"{file}.parquet"
