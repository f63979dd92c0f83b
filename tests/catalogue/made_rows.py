"""Rows of every table, made by chance from a seed."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from krowlspider.catalogue.columns import PARTITIONS, SUBSETS, TABLES, Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.catalogue.sinks import Row

ALL = frozenset(TABLES)
_NASTY = (
    "",
    "\\",
    "\\N",
    "a\tb",
    "line\r\nline",
    "\\.",
    "'; --",
    "é 日 😀",
    '{"a": [1]}',
    "x" * 5000,
)


def made_rows(
    file: str, count: int, tables: tuple[str, ...] = tuple(TABLES)
) -> Iterator[tuple[str, Row]]:
    """Yield ``count`` rows of each table, as of a WARC file: its name decides them."""
    chance = random.Random(file)
    for number in range(count):
        for table in tables:
            row: Row = {
                column.name: _value(column, chance)
                for column in (*TABLES[table], *PARTITIONS[table])
            }
            own = f"urn:uuid:{chance.getrandbits(128):032x}"
            special: Row = {
                **dict.fromkeys(("krowl_record_id", "record_id"), own),
                "warc_filename": file,
                "host": f"h{number}.example",
                "url": f"https://h{number}.example/{chance.randrange(10**9)}",
                "number": number,
                "crawl": "made",
                "subset": chance.choice(SUBSETS),
            }
            yield table, row | {name: value for name, value in special.items() if name in row}


def _value(column: Column, chance: random.Random) -> str | int | float | bool | datetime | None:
    if not column.required and chance.random() < 0.3:
        return None
    match column.type:
        case "text":
            return chance.choice(_NASTY) if chance.random() < 0.3 else f"{chance.random()}"
        case "double":
            return chance.random()
        case "boolean":
            return chance.random() < 0.5
        case "timestamp":
            start = datetime(2026, 1, 1, tzinfo=UTC)
            return start + timedelta(microseconds=chance.randrange(10**13))
        case _:
            return chance.randrange(1000)
