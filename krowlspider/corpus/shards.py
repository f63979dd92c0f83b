"""Write the final shards: JSON lines, Parquet or WET.

WET has conversion records that refer to their responses. The fields and the block, its first line
the title, are those of Common Crawl's WET files.
"""

from __future__ import annotations

import re
import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import msgspec
from backports.zstd import ZstdFile

from krowlspider import __version__
from krowlspider.archive.disk import write_durably
from krowlspider.archive.write.compression import compressor
from krowlspider.archive.write.records import URI_MAX, RecordIds, RecordMaker, info_block, warc_date
from krowlspider.corpus.folder import LINES
from krowlspider.corpus.optouts.signals import Signal
from krowlspider.corpus.record import Record
from krowlspider.corpus.text.head import Link, Pair
from krowlspider.corpus.text.languages import LANGUAGES
from krowlspider.errors import need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_PRINTABLE = "".join(map(chr, range(ord("!"), ord("~") + 1)))
_DATE = re.compile(r"[0-9]{4}[0-9TZ:.+-]*")
_ID = re.compile(r"[!-~]{1,1000}")
_COMPRESSION = "zlib-ng-6"

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


def write_wet(file: BinaryIO, records: Iterable[bytes], filename: str) -> None:
    """Write records, given as JSON, behind a warcinfo record, each as a gzip member."""
    ids, compress = RecordIds(), compressor(_COMPRESSION)
    now = warc_date(time.time())
    maker = RecordMaker(ids.new(), "sha1")
    about = {
        "software": f"krowlspider/{__version__}",
        "description": "Text of web pages, extracted from the responses that it refers to",
    }
    file.write(compress(maker.warcinfo(info_block(about), date=now, filename=filename)))
    decode = msgspec.json.Decoder(Record).decode
    for each in records:
        found = decode(each)
        member = maker.conversion(
            ids.new(),
            # WARC files of other tools have URLs that are not escaped.
            url=quote(found.url, safe=_PRINTABLE)[:URI_MAX],
            date=found.date if _DATE.fullmatch(found.date) else now,
            source=f"<{found.record_id}>" if _ID.fullmatch(found.record_id) else None,
            language=LANGUAGES.get(found.language),
            text=f"{found.title}\n{found.text}\n" if found.title else f"{found.text}\n",
        )
        file.write(compress(member))


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
