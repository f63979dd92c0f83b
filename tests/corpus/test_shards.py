"""Shards of Parquet: the fields of a record come back as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet

from krowlspider.corpus.optouts.signals import Signal
from krowlspider.corpus.record import Record
from krowlspider.corpus.shards import write_shard
from krowlspider.corpus.text.head import Link, Pair

if TYPE_CHECKING:
    from pathlib import Path


def test_parquet_keeps_lists_of_pairs_and_links(tmp_path: Path) -> None:
    record = Record("u", "d", "f", 7, "i", "s", "text", "en", 300, "text/html", "utf-8", [])
    record.signals = [Signal("noai", "urn:x")]
    record.open_graph = [Pair("type", "article")]
    record.links = [Link("http://a.example/", "A")]
    path = tmp_path / "a.parquet"
    write_shard(path, "parquet", iter([msgspec.json.encode(record)]))
    assert pyarrow.parquet.read_table(path).to_pylist() == [msgspec.to_builtins(record)]
