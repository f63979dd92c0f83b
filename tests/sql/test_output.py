"""What a result looks like in each format."""

from __future__ import annotations

import csv
import json
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest

from krowlspider.engine.csv_export import harmless
from krowlspider.errors import KrowlError
from krowlspider.sql.output import CELL_MAX, CsvOutput, JsonOutput, ParquetOutput, TableOutput

if TYPE_CHECKING:
    from krowlspider.sql.output import Output


def shown(output: Output, query: str) -> None:
    reader = duckdb.sql(query).to_arrow_reader(2)
    output.begin(reader.schema)
    for batch in reader:
        output.write(batch)
    output.end()


def table(query: str) -> str:
    file = StringIO()
    shown(TableOutput(file), query)
    return file.getvalue()


def rows(query: str) -> list[dict[str, Any]]:
    file = StringIO()
    shown(JsonOutput(file), query)
    return [json.loads(line) for line in file.getvalue().split("\n")[:-1]]


def test_a_table_has_widths_of_its_rows():
    assert table("SELECT 'ab' AS name, 5 AS n UNION ALL SELECT NULL, 12345") == (
        "name      n\n----  -----\nab        5\n      12345\n2 rows\n"
    )


def test_a_table_without_rows_has_its_head():
    assert table("SELECT 1 AS a WHERE false") == "a\n-\n0 rows\n"


def test_a_cell_can_change_no_terminal_and_is_cut():
    found = table(f"SELECT 'a' || chr(27) || '[2J' || chr(10) || repeat('x', {2 * CELL_MAX}) AS a")
    assert "\x1b" not in found
    assert found.splitlines()[2] == f"a?[2J?{'x' * (CELL_MAX - 7)}…"


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("NULL", None),
        ("true", True),
        ("'nan'::DOUBLE", None),
        ("'infinity'::DOUBLE", None),
        ("1.5::DECIMAL(3, 1)", 1.5),
        ("170141183460469231731687303715884105727", 2**127 - 1),
        ("TIMESTAMP '2026-01-02 03:04:05.5'", "2026-01-02T03:04:05.500000Z"),
        ("DATE '2026-01-02'", "2026-01-02"),
        ("TIME '01:02:03'", "01:02:03"),
        ("'\\x00\\xff'::BLOB", "00ff"),
        ("[1, NULL]", [1, None]),
        ("{'a': {'b': [1.5::DOUBLE]}}", {"a": {"b": [1.5]}}),
        ("MAP {'a': 1}", [["a", 1]]),
        ("INTERVAL '1 day 90.5 seconds'", "P0M1DT90.5S"),
        ("'ü\u2028😀'", "ü\u2028😀"),
    ],
)
def test_json_has_each_type(sql: str, value: object):
    assert rows(f"SELECT {sql} AS v") == [{"v": value}]


def test_a_time_without_a_date_in_python_is_a_number():
    assert isinstance(rows("SELECT TIMESTAMP '290000-01-01' AS v")[0]["v"], int)


def test_json_needs_names_that_differ():
    with pytest.raises(KrowlError, match="use AS"):
        rows("SELECT 1 AS a, 2 AS a")


def test_csv_is_read_back_and_has_no_formula():
    file = StringIO()
    shown(CsvOutput(file, harmless), """SELECT 'a,"b"' || chr(10) AS t, NULL AS n, '=1+1' AS f""")
    assert list(csv.reader(StringIO(file.getvalue()))) == [
        ["t", "n", "f"],
        ['a,"b"\n', "", "'=1+1"],
    ]


def test_parquet_has_rows_and_types():
    file = BytesIO()
    shown(ParquetOutput(file), "SELECT range AS n, TIMESTAMP '2026-01-02' AS t FROM range(5)")
    found = pq.read_table(file)
    assert found.num_rows == 5
    assert [str(each.type) for each in found.schema] == ["int64", "timestamp[us]"]


def test_parquet_lacks_intervals():
    with pytest.raises(KrowlError, match="Parquet lacks a type"):
        shown(ParquetOutput(BytesIO()), "SELECT INTERVAL 1 DAY AS i")
