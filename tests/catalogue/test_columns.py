"""The columns of a catalogue are Common Crawl's, and each row has them."""

from __future__ import annotations

import json
from pathlib import Path

from krowlspider.catalogue.columns import COMMON_CRAWL, PARTITIONS, TABLES
from krowlspider.catalogue.parquet import schema_of

SCHEMA = Path(__file__).parent / "common_crawl" / "cc-index-schema-flat.json"
_SPARK = {"text": "string", "smallint": "short", "integer": "integer", "timestamp": "timestamp"}


def test_captures_have_the_columns_of_common_crawl():
    """Names, order, types, and which may be null."""
    expected = [
        (field["name"], field["type"], field["nullable"])
        for field in json.loads(SCHEMA.read_text())["fields"]
    ]
    columns = (*COMMON_CRAWL, *PARTITIONS["fetch"])
    assert [(name, _SPARK[kind], not needed) for name, kind, needed in columns] == expected
    ours = TABLES["fetch"][len(COMMON_CRAWL) :]
    assert all(column.name.startswith("krowl_") for column in ours)


def test_arrow_has_the_same_types():
    kinds = {"string": "string", "short": "int16", "integer": "int32"}
    kinds["timestamp"] = "timestamp[us, tz=UTC]"
    fields = {each["name"]: each for each in json.loads(SCHEMA.read_text())["fields"]}
    for field in schema_of(COMMON_CRAWL):
        assert str(field.type) == kinds[fields[field.name]["type"]]
        assert field.nullable == fields[field.name]["nullable"]
