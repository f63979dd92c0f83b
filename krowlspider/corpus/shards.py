"""Write the final shards: JSON lines, Parquet or WET."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from backports.zstd import ZstdFile

from krowlspider.archive.disk import write_durably
from krowlspider.corpus.extras import need
from krowlspider.corpus.folder import LINES
from krowlspider.corpus.head import Link, Pair
from krowlspider.corpus.record import Record
from krowlspider.corpus.signals import Signal
from krowlspider.corpus.wet import write_wet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

ENDINGS = {"jsonl": LINES, "parquet": ".parquet", "wet": ".warc.wet.gz"}
# Records that Parquet holds in memory: one row group.
_ROWS = 5000
_NUMBERS = {"warc_offset": "int64", "language_confidence": "float64"}
_LISTS = frozenset({"json_ld"})
_STRUCTS = {
    "signals": Signal,
    "json_ld_fields": Pair,
    "open_graph": Pair,
    "hreflang": Pair,
    "links": Link,
}


def write_shard(path: Path, form: str, records: Iterator[bytes]) -> None:
    """Write records, given as JSON, durably in the place of ``path``; no file if there are none.

    ``form`` is a key of ENDINGS. Raises OSError.
    """
    first = next(records, None)
    if first is None:
        path.unlink(missing_ok=True)
        return
    with write_durably(path) as file:
        _WRITERS[form](file, chain([first], records), path.name)


def _jsonl(file: BinaryIO, records: Iterable[bytes], _: str) -> None:
    with ZstdFile(file, "wb") as stream:
        for record in records:
            stream.write(record + b"\n")


def _parquet(file: BinaryIO, records: Iterable[bytes], _: str) -> None:
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    schema = arrow.schema([(name, _kind(arrow, name)) for name in Record.__struct_fields__])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        decoded = map(msgspec.json.decode, records)
        while rows := list(islice(decoded, _ROWS)):
            writer.write_table(arrow.Table.from_pylist(rows, schema))


def _kind(arrow: Any, name: str) -> Any:
    if name in _NUMBERS:
        return getattr(arrow, _NUMBERS[name])()
    if name in _STRUCTS:
        fields = _STRUCTS[name].__struct_fields__
        return arrow.list_(arrow.struct([(each, arrow.string()) for each in fields]))
    return arrow.list_(arrow.string()) if name in _LISTS else arrow.string()


_WRITERS: dict[str, Callable[[BinaryIO, Iterable[bytes], str], None]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "wet": write_wet,
}
