"""The record of a page, the lines that workers hand over, and the final shards.

Shards are JSON lines, Parquet or WET. WET has conversion records that refer to their responses. The
fields and the block, its first line the title, are those of Common Crawl's WET files.
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
from krowlspider.archive.write.records import URI_MAX, RecordIds, RecordMaker, info_block, warc_date
from krowlspider.archive.write.series import compressor
from krowlspider.corpus.folder import LINES
from krowlspider.corpus.optouts import OptOutSignal
from krowlspider.corpus.text.document import LANGUAGES, Document
from krowlspider.corpus.text.extractors import CorpusLink, NameValue
from krowlspider.errors import need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from krowlspider.corpus.warc_pages import CapturedPage

# Increase it when a field gets another form: a corpus has one.
FORM = 4


class CorpusRecord(msgspec.Struct):
    """A page of the corpus; docs/corpus.md describes the fields. All are in each record."""

    url: str
    date: str
    warc_file: str
    warc_offset: int
    record_id: str
    digest: str
    text: str
    language: str
    language_confidence: float
    media_type: str
    encoding: str
    signals: list[OptOutSignal]
    previous: str | None = None
    tag: str | None = None
    title: str | None = None
    description: str | None = None
    author: str | None = None
    published: str | None = None
    modified: str | None = None
    site_name: str | None = None
    canonical: str | None = None
    html_lang: str | None = None
    license: str | None = None
    og_type: str | None = None
    json_ld: list[str] | None = None
    json_ld_fields: list[NameValue] | None = None
    open_graph: list[NameValue] | None = None
    hreflang: list[NameValue] | None = None
    links: list[CorpusLink] | None = None


class Refusal(msgspec.Struct, omit_defaults=True):
    """A page that is not in the corpus: the rule and its value, or what went wrong.

    ``overlap`` is the share of its sequences of words that a near duplicate has in common with the
    page that is kept.
    """

    warc_file: str
    warc_offset: int
    url: str
    rule: str
    value: float | str
    overlap: float | None = None


class Fetch(msgspec.Struct, omit_defaults=True):
    """When a page was fetched, in which record it is, and the digest of its payload.

    ``resource`` is what was asked: the URL with method and body in its query as replay has them, if
    the method is not GET. It is empty for a GET.
    """

    date: str
    record_id: str
    digest: str
    is_revisit: bool = False
    resource: str = ""


class Line(msgspec.Struct):
    """A record on its way to the duplicates, or a page refused already, or a revisit.

    ``chars`` is the length of the text; a page that could not be read has no language. ``masked``
    counts what was masked, by kind. Pages have a ``fetch`` if they are accepted, or are refused by
    a signal. Revisits have nothing else.
    """

    number: int
    offset: int
    url: str
    language: str = ""
    chars: int = 0
    exact: bytes = b""
    minhash: bytes = b""
    core: bytes = b""
    record: msgspec.Raw = msgspec.Raw(b"null")
    refusal: Refusal | None = None
    masked: dict[str, int] = {}
    fetch: Fetch | None = None

    @property
    def is_revisit(self) -> bool:
        return self.fetch is not None and self.fetch.is_revisit


def record_of(
    page: CapturedPage, document: Document, signals: list[OptOutSignal], place: tuple[str, int]
) -> CorpusRecord:
    return CorpusRecord(
        page.url,
        page.date,
        *place,
        page.record_id,
        page.digest,
        document.text,
        document.language,
        document.confidence,
        page.media_type,
        document.encoding,
        signals,
        tag=page.tag,
        **document.fields,
    )


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
    "signals": OptOutSignal,
    "json_ld_fields": NameValue,
    "open_graph": NameValue,
    "hreflang": NameValue,
    "links": CorpusLink,
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
    decode = msgspec.json.Decoder(CorpusRecord).decode
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
    schema = arrow.schema([(name, _kind(arrow, name)) for name in CorpusRecord.__struct_fields__])
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
