"""A query ends at its limits, and by the person who started it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import duckdb
import pytest

from krowlspider.errors import KrowlError
from krowlspider.sql.database import database
from krowlspider.sql.execution import QueryLimits, Run, resident
from krowlspider.sql.tables import LIVE

if TYPE_CHECKING:
    from pathlib import Path

# Rows that take for ever.
ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000) b"


def run(text: str, seconds: float = 20.0, memory: int = 100_000_000) -> list[int]:
    """Return the numbers of rows of the batches of a query."""
    found: list[int] = []
    with duckdb.connect(config={"memory_limit": f"{memory}B"}) as connection:
        query = Run(connection, text, QueryLimits(seconds, memory))
        query.each(lambda _: None, lambda batch: found.append(len(batch)))
        assert not query.is_alive
    return found


def test_a_result_comes_in_batches():
    assert sum(run("SELECT * FROM range(10000)")) == 10_000


def test_a_query_ends_at_its_time():
    begun = time.monotonic()
    with pytest.raises(KrowlError, match=r"ended after 0\.2 s.* --timeout"):
        run(ENDLESS, seconds=0.2)
    assert time.monotonic() - begun < 10


def test_a_query_without_end_is_streamed():
    """Its rows wait until they are taken; a reader that takes its time is not counted."""
    taken = 0

    class EnoughError(Exception):
        pass

    def take(batch: object) -> None:
        nonlocal taken
        taken += len(batch)  # type: ignore[arg-type]
        if taken > 100_000:
            raise EnoughError
        time.sleep(0.005)

    with duckdb.connect() as connection:
        query = Run(connection, "SELECT * FROM range(1000000000000)", QueryLimits(0.5, 100_000_000))
        before = resident()
        with pytest.raises(EnoughError):
            query.each(lambda _: None, take)
        assert resident() - before < 100_000_000
        assert not query.is_alive


def test_an_error_while_it_runs_is_one_line():
    with pytest.raises(
        KrowlError, match=r"^line 1, column 34: Could not convert string 'a' to INT"
    ) as refused:
        run("SELECT if(range = 9000, 'a', '1')::INTEGER FROM range(10000)")
    assert "\n" not in str(refused.value)


def test_an_error_names_the_column_and_its_place():
    with pytest.raises(KrowlError, match=r"^line 2, column 2: .*\"b\" not found.*Candidate"):
        run("SELECT a,\n b FROM (SELECT 1 AS a)")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nope FROM queue",
        "SELECT q.nope FROM queue q",
        "SELECT * FROM queue JOIN queue AS r USING (nope)",
        "SELECT 1 FROM queue q WHERE q.nope = 1 ORDER BY 1",
        "SELECT * EXCLUDE (nope) FROM queue",
        "SELECT * REPLACE (1 AS nope) FROM queue",
        "SELECT COLUMNS('nope') FROM queue",
        "WITH t AS (FROM queue) SELECT t.nope FROM t",
    ],
)
def test_an_unknown_column_is_told_those_of_the_tables(text: str, tmp_path: Path):
    columns = [each.name for each in LIVE["queue"]]
    with database(64_000_000, tmp_path, {}, {}) as connection:
        query = Run(connection, text, QueryLimits(20.0, 100_000_000), {"queue"})
        with pytest.raises(KrowlError) as refused:
            query.each(lambda _: None, lambda _: None)
    assert str(refused.value).endswith(f"; queue has {', '.join(columns)}")


def test_seconds_before_the_query_count_and_the_limit_is_told():
    with duckdb.connect() as connection:
        query = Run(connection, ENDLESS, QueryLimits(50.0, 1_000_000_000), used=50.0)
        with pytest.raises(KrowlError, match=r"ended after 50\.0 s"):
            query.each(lambda _: None, lambda _: None)


def test_more_than_the_memory_ends_it(tmp_path: Path):
    connection = database(64_000_000, tmp_path, {}, {})
    query = Run(
        connection, "SELECT list(range) FROM range(100000000)", QueryLimits(60.0, 64_000_000)
    )
    with pytest.raises(KrowlError, match="--memory"):
        query.each(lambda _: None, lambda _: None)
    assert not query.is_alive
    connection.close()


def test_a_query_spills_no_more_than_its_part_of_the_disk(tmp_path: Path):
    connection = database(64_000_000, tmp_path, {}, {})
    text = "SELECT * FROM range(100000000) ORDER BY hash(range)"
    query = Run(connection, text, QueryLimits(60.0, 64_000_000))
    with pytest.raises(KrowlError, match="--memory"):
        query.each(lambda _: None, lambda _: None)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 300_000_000
    connection.close()
