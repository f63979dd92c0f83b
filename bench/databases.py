"""Measure how fast rows of a catalogue come into Parquet, PostgreSQL and SQLite."""

from __future__ import annotations

import random
import statistics
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from krowlspider.catalogue.columns import PARTITIONS, SUBSETS, TABLES, Column
from krowlspider.catalogue.databases import sink_at
from krowlspider.catalogue.parquet import ParquetSink
from tests.support import postgresql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.catalogue.sinks import Row, Sink

# A crawl has about as many rows of pages as of fetches, and one of a host for ten.
_EVERY = {"fetch": 1, "page_by_file": 1, "host_by_file": 10}
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TELL = partial(print, flush=True)


def measure(fetches: int, files: int, scratch: Path | None) -> dict[str, dict[str, float]]:
    """Return rows a second of a WARC file with so many fetches, whose rows are at hand: of the
    first file, the median of all, and the last; and the median by seconds of CPU of this process.

    The server is one of its own, as Debian configures it: each commit is synced.
    """
    tables = frozenset(_EVERY)
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory(dir=scratch) as name, postgresql.running(fsync=True) as server:
        sqlite = f"sqlite:///{Path(name, 'bench.db').absolute()}"
        sinks: dict[str, Callable[[], Sink]] = {
            "parquet": lambda: ParquetSink(Path(name, "tables"), tables),
            "postgresql": lambda: sink_at(server.make("bench"), tables, _TELL),
            "sqlite": lambda: sink_at(sqlite, tables, _TELL),
        }
        for kind, make in sinks.items():
            rates, of_cpu = [], []
            with closing(make()) as sink:
                for number in range(files):
                    file = f"{number}.warc.gz"
                    rows = list(_rows(file, fetches))
                    begun, cpu = perf_counter(), process_time()
                    sink.write(file, rows)
                    rates.append(len(rows) / (perf_counter() - begun))
                    of_cpu.append(len(rows) / (process_time() - cpu))
            kinds = {"first": rates[0], "median": statistics.median(rates), "last": rates[-1]}
            kinds["of_cpu"] = statistics.median(of_cpu)
            found[kind] = {key: round(rate) for key, rate in kinds.items()}
    return found


def _rows(file: str, fetches: int) -> Iterator[tuple[str, Row]]:
    chance = random.Random(file)
    for number in range(fetches):
        host = f"www.host{chance.randrange(500)}.example"
        for table, every in _EVERY.items():
            if number % every:
                continue
            row: Row = {
                each.name: _value(each, chance) for each in (*TABLES[table], *PARTITIONS[table])
            }
            own: Row = {
                "krowl_record_id": f"urn:uuid:{chance.getrandbits(128):032x}",
                "url": f"https://{host}/section/{chance.randrange(10**9)}/page.html?x=1",
                "host": f"{number}.{host}",
                "url_host_name": host,
                "warc_filename": file,
                "crawl": "bench",
                "subset": SUBSETS[0],
            }
            yield table, row | {key: value for key, value in own.items() if key in row}


def _value(column: Column, chance: random.Random) -> str | int | float | bool | datetime | None:
    if not column.required and chance.random() < 0.4:
        return None
    match column.type:
        case "text":
            return f"{column.name} {chance.getrandbits(60):x}"
        case "double":
            return chance.random()
        case "boolean":
            return chance.random() < 0.5
        case "timestamp":
            return _START + timedelta(seconds=chance.random() * 1e6)
        case _:
            return chance.randrange(1000)
