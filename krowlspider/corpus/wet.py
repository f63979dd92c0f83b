"""Write the text of pages as WET: conversion records that refer to their responses.

The fields and the block, its first line the title, are those of Common Crawl's WET files.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

import msgspec

from krowlspider import __version__
from krowlspider.archive.write.compression import compressor
from krowlspider.archive.write.records import URI_MAX, RecordIds, RecordMaker, info_block, warc_date
from krowlspider.corpus.languages import LANGUAGES
from krowlspider.corpus.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

_PRINTABLE = "".join(map(chr, range(ord("!"), ord("~") + 1)))
_DATE = re.compile(r"[0-9]{4}[0-9TZ:.+-]*")
_ID = re.compile(r"[!-~]{1,1000}")
_COMPRESSION = "zlib-ng-6"


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
