"""Read the pages of HTML and of gemtext in a WARC file of any writer, in bounded memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from fastwarc.warc import ArchiveIterator, WarcRecordType

from krowlspider.archive import gemini
from krowlspider.archive.cdxj import payload_digest
from krowlspider.archive.payload import body_of, head_bytes, status_of, unfolded
from krowlspider.archive.reading import RecordSearch
from krowlspider.archive.tools.inputs import cut_record, read_records
from krowlspider.archive.write.records import SEED_TAG
from krowlspider.urls.encoding import HTML, PDF, ContentType, computed_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.disk import RecordError

# Bytes of a stored response, and of a decoded body: larger ones are skipped.
BLOCK_MAX = 16 * 1024 * 1024
_STARTS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"WARC/")
_GZIP = b"\x1f\x8b"
# In each record that has part of what was fetched: the others are continuation records.
SEGMENT = "WARC-Segment-Number"
# The end of a record, and the next one. No HTML has its id, because "<" is escaped there.
_NEXT = b"\r\n\r\nWARC/1."
_NEXT_HEAD = re.compile(
    rb"\r\n\r\nWARC/1\.[01]\r\n(?:[^\r\n]+\r\n)*?WARC-Record-ID:[ \t]*<", re.IGNORECASE
)
# The types of records that the standard has.
_KINDS = {
    name: getattr(WarcRecordType, name)
    for name in (
        *("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion"),
        "continuation",
    )
}
_ANY_KIND = sum(map(int, _KINDS.values()))
# Bytes in which the head of a message must end.
_HEAD_MAX = 64 * 1024


class NoPage(Exception):
    """A response that is no HTML page; the message is the reason, a count's name."""


class Unreadable(ValueError):
    """A page that cannot be read; the message is the reason, the name of a rule."""


@dataclass(frozen=True, slots=True)
class CapturedPage:
    """A page as it was fetched; ``headers`` have lower-case names, repeated ones too.

    ``media_type`` is what browsers take it for, ``charset`` the encoding that its header names.
    ``tag`` is that of the seed that it came from.
    """

    url: str
    date: str
    record_id: str
    digest: str
    headers: list[tuple[str, str]]
    body: bytes
    media_type: str = "text/html"
    charset: str | None = None
    tag: str | None = None

    @property
    def kind(self) -> str:
        """Return "html", "pdf" or "gemtext"."""
        if self.media_type == gemini.GEMTEXT:
            return "gemtext"
        return "pdf" if self.media_type == PDF else "html"


def records(
    stream: BinaryIO,
    start: int,
    damage: Callable[[int, str], object],
    kinds: WarcRecordType = WarcRecordType.response,
) -> Iterator[tuple[int, WarcRecord]]:
    """Yield the records of ``kinds`` from ``start`` with their offsets; their blocks are not read
    yet.

    ``damage`` is called with the offset and reason of each damaged stretch. After one, a gzip file
    is read on from its next whole record; any other file ends there. Raises OSError.
    """
    stream.seek(0)
    gzip = stream.read(2) == _GZIP
    search = RecordSearch(stream)
    while True:
        stream.seek(start)
        last = start
        try:
            for record in ArchiveIterator(stream, parse_http=False):
                last = record.stream_pos
                if _is_misread(record) and is_record_start(stream, last):
                    yield from _records_by_name(stream, last, damage, kinds)
                    return
                if record.record_type & kinds:
                    yield last, record
            # fastwarc ends without an error where a record is longer than the rest of the file, at
            # an empty member, and where a file ends within a record.
            misfit = search.misfit(last) if gzip else None
            if misfit is not None:
                place, start = misfit
                damage(place, "the member is not one record")
                continue
            cut = cut_record(stream, last if is_record_start(stream, last) else 0)
            if cut is not None:
                damage(cut, "the file ends within this record")
            return
        except OSError as error:
            if error.errno is not None:
                raise
            damage(last, f"damaged after this record: {error}")
        following = search.behind(last) if gzip else None
        if following is None:
            return
        start = following


def _is_misread(record: WarcRecord) -> bool:
    """Return whether fastwarc has missed a field, because it is not spelt as in the standard."""
    fields = record.headers
    if not record.record_type & _ANY_KIND:
        return fields.get("WARC-Type") in _KINDS
    return not record.content_length and (fields.get("Content-Length") or "").strip("0") != ""


def _records_by_name(
    stream: BinaryIO, start: int, damage: Callable[[int, str], object], kinds: WarcRecordType
) -> Iterator[tuple[int, WarcRecord]]:
    """Yield what `records` does, of a file with names of fields in any case.

    A record is in memory, up to the size of one that is read.
    """

    def note(error: RecordError) -> None:
        damage(error.offset, error.reason)

    for member, record in read_records(stream, note, start=start, most=BLOCK_MAX + _HEAD_MAX):
        if record.record_type & kinds:
            yield member.offset, record


def is_record_start(stream: BinaryIO, offset: int) -> bool:
    """Return whether reading can begin at ``offset``: in a file compressed as one it cannot."""
    before = stream.tell()
    stream.seek(offset)
    found = stream.read(8).startswith(_STARTS)
    stream.seek(before)
    return found


def page_of(
    record: WarcRecord, decode: Callable[[bytes, str], bytes], *, pdf: bool = False
) -> CapturedPage:
    """Return the page in a response; ``decode`` undoes a Content-Encoding.

    A response of Gemini is a page if it is of gemtext.

    :raises NoPage: it is no whole HTML page with status 200, nor with ``pdf`` a PDF
    :raises Unreadable: it is too large, cut off, not in its coding, or reaches into the next record
    """
    if SEGMENT in record.headers:
        raise NoPage("segmented")
    if record.content_length > BLOCK_MAX:
        raise Unreadable("too large")
    block = record.reader.read()
    if len(block) < record.content_length:
        raise Unreadable("cut off")
    if block.find(_NEXT) != -1 and _NEXT_HEAD.search(block):
        # Its Content-Length is too large, and fastwarc reads on into the next record.
        raise Unreadable("damaged")
    if gemini.is_gemini(record.headers.get("Content-Type")):
        return _gemtext_page(record, block)
    status, headers = head_of(block)
    if status != "200":
        raise NoPage("not status 200")
    if given := _type_of(headers, b"").essence:
        _check(given, pdf=pdf)
    try:
        body = body_of(block, decode)
    except ValueError as error:
        raise Unreadable("not decodable") from error
    kind = _type_of(headers, body)
    _check(kind.essence, pdf=pdf)
    return _page(record, payload_digest(record, block), headers, body, kind)


def _gemtext_page(record: WarcRecord, block: bytes) -> CapturedPage:
    """Return the page in a response of Gemini. Raises NoPage."""
    message = gemini.read(block)
    if message.status[:1] != "2":
        raise NoPage("not status 200")
    if message.type.essence != gemini.GEMTEXT:
        raise NoPage("not HTML")
    headers = [("content-type", message.media_type)]
    digest = payload_digest(record, block)
    return _page(record, digest, headers, message.payload, message.type)


def _page(
    record: WarcRecord,
    digest: str,
    headers: list[tuple[str, str]],
    body: bytes,
    kind: ContentType,
) -> CapturedPage:
    fields = record.headers
    return CapturedPage(
        (fields.get("WARC-Target-URI") or "").strip("<>"),
        fields.get("WARC-Date") or "",
        (record.record_id or "").strip("<>"),
        digest,
        headers,
        body,
        *kind,
        fields.get(SEED_TAG) or None,
    )


def _check(media: str, *, pdf: bool) -> None:
    if media == PDF and not pdf:
        raise NoPage("PDF")
    if media not in HTML and media != PDF:
        raise NoPage("not HTML")


def _type_of(headers: list[tuple[str, str]], body: bytes) -> ContentType:
    types, options = (
        [value.encode("latin-1") for each, value in headers if each == name]
        for name in ("content-type", "x-content-type-options")
    )
    return computed_type(types, options, body)


def codings_of(headers: list[tuple[str, str]]) -> str:
    """Return the content codings of a message, in their order."""
    return ",".join(value for name, value in headers if name == "content-encoding")


def head_of(block: bytes) -> tuple[str, list[tuple[str, str]]]:
    """Return the status, empty without one, and the headers of an HTTP message, folds undone."""
    start = block[:_HEAD_MAX]
    message = unfolded((head_bytes(start) or start).lstrip()).replace(b"\r\n", b"\n")
    lines = message.partition(b"\n\n")[0].decode("latin-1").split("\n")
    pairs = (line.partition(":") for line in lines[1:])
    return (
        status_of(start),
        [(name.strip().lower(), value.strip()) for name, colon, value in pairs if colon],
    )
