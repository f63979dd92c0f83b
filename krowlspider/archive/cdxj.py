"""The index of a WARC file: a line for each capture, as pywb and cdxj-indexer have it.

A line is the key of the URL, the time in 14 digits, and a JSON object whose values are all text.
Lines are ASCII and sorted by their bytes. The index of ``X.warc.gz`` stands beside it, ``X.cdxj``.

As in cdxj-indexer, response, revisit, resource and metadata records are indexed, the last two
unless they are of type application/warc-fields. The lines differ from cdxj-indexer's in two ways.
Media types are in lower case, because case has no meaning in them. A chunked response has the
digest of its entity, which its record omits: a revisit has that digest, and readers match by it.
So has a Gemini response. The certificate of its server has no line.

The response to POST or another method has the key that pywb looks up for it, and the values
"requestBody" and "method" at the end of its line. Its request record is beside it.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from krowlspider.archive import gemini
from krowlspider.archive.disk import RecordError, write_durably
from krowlspider.archive.payload import digest, has_digest, header, payload_of, status_of
from krowlspider.archive.reading import (
    Advance,
    Damage,
    GzipMember,
    Location,
    ignore,
    read_members,
    read_readable,
)
from krowlspider.archive.surt import RequestQuery, query_of, surt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

WARC = ".warc.gz"
INDEX = ".cdxj"
# The media type of a revisit in an index line.
REVISIT = "warc/revisit"
# The URI of the resource record that has the seeds of a crawl.
SEEDS_URI = "urn:krowlspider:seeds"
# The same for the sheets of KROWL_POLICIES.
POLICIES_URI = "urn:krowlspider:policies"
# With the URL of the page, that of the resource record of a page as it was in the browser.
DOM_URI = "urn:krowlspider:dom:"

_INDEXED = frozenset({"response", "revisit", "resource", "metadata"})
_ABOUT_RECORDS = "application/warc-fields"
_PARAMETERS = re.compile(r"[;\s]")
_NOT_DIGIT = re.compile("[^0-9]")
# The missing digits of a shortened date (WARC 1.1 allows "2026-01"): those of its earliest moment.
_EARLIEST = "00000101000000"
# A text as JSON; faster than encoding a whole object.
_quoted = json.encoder.encode_basestring_ascii


class IndexLine(Struct, frozen=True):
    """The values of an index line; ``mime``, ``status`` and ``digest`` are empty if missing.

    ``timestamp`` has 14 digits. ``length`` and ``offset`` are bytes of the gzip member in the file.
    """

    key: str
    timestamp: str
    url: str
    mime: str
    status: str
    digest: str
    length: int
    offset: int
    filename: str
    # Empty for GET and HEAD.
    method: str = ""

    @property
    def is_bare(self) -> bool:
        """Return whether this is a 200 without payload, as to HEAD."""
        return self.status == "200" and has_digest(b"", self.digest)


def line(place: Location, *, url: str, date: str, mime: str, status: str, digest: str) -> str:
    """Return the line of the capture at ``place``, with its line break.

    ``date`` is the WARC-Date. ``mime`` is the value of Content-Type, or REVISIT. An empty ``mime``,
    ``status`` or ``digest`` is omitted.
    """
    values = f'"url": {_quoted(url)}'
    if kind := _PARAMETERS.split(mime, maxsplit=1)[0].lower():
        values += f', "mime": {_quoted(kind)}'
    if status:
        values += f', "status": {_quoted(status)}'
    # The revisit of an answer 304 has no payload of its own to match, so it has no digest.
    if digest and (mime, status) != (REVISIT, "304"):
        values += f', "digest": {_quoted(digest)}'
    file, offset, length = place
    values += f', "length": "{length}", "offset": "{offset}", "filename": {_quoted(file)}'
    return f"{key_of(url)} {timestamp(date)} {{{values}}}\n"


def line_of_request(text: str, url: str, query: RequestQuery) -> str:
    """Return the line of a capture of ``url`` for a request with another method than GET."""
    rest = text.removesuffix("}\n").partition(" ")[2]
    values = f'"requestBody": {_quoted(query.body)}, "method": {_quoted(query.method)}'
    return f"{key_of(query.added_to(url))} {rest}, {values}}}\n"


def key_of(url: str) -> str:
    """Return the `surt` key of ``url``; a blank would end it in a line, so blanks are escaped."""
    return surt(url).replace(" ", "%20")


def parse(line: bytes) -> IndexLine:
    """Return the values of an index line, ours or another tool's. Raises ValueError."""
    key, time, text = line.decode().split(" ", 2)
    values = json.loads(text)
    try:
        return IndexLine(
            key=key,
            timestamp=time,
            url=values["url"],
            mime=values.get("mime", ""),
            status=values.get("status", ""),
            digest=values.get("digest", ""),
            length=int(values["length"]),
            offset=int(values["offset"]),
            filename=values["filename"],
            method=values.get("method", ""),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a line of an index: {line[:200]!r}") from error


def timestamp(date: str) -> str:
    """Return a WARC-Date as 14 digits, fractions of a second cut off."""
    digits = _NOT_DIGIT.sub("", date)[:14]
    return digits + _EARLIEST[len(digits) :]


def index_path(warc: Path) -> Path:
    """Return the path of the index of the finished file ``warc``."""
    return warc.with_name(warc.name.removesuffix(WARC) + INDEX)


def index_file(warc: Path, advance: Advance = ignore) -> Iterator[str]:
    """Yield the index lines of a finished file, in the order of its records.

    ``advance`` is called with each member's length in bytes. Raises RecordError and OSError.
    """
    with warc.open("rb") as stream:
        members = ((member, member.record()) for member in read_members(stream, advance))
        yield from _lines(members, warc.name)


def index_readable(warc: Path, damage: Damage, advance: Advance = ignore) -> Iterator[str]:
    """Yield what `index_file` does, and pass over damage, as `read_readable`."""
    with warc.open("rb") as stream:
        yield from _lines(read_readable(stream, damage, advance), warc.name)


def index_whole_records(warc: Path, advance: Advance = ignore) -> Iterator[str]:
    """Yield what `index_file` does for a file that is being written, or was left by a killed crawl.

    The first member that is not whole, or is no record, ends it. Raises OSError.
    """
    with suppress(RecordError):
        yield from index_file(warc, advance)


def _lines(members: Iterable[tuple[GzipMember, WarcRecord]], filename: str) -> Iterator[str]:
    lines = LineMaker(filename)
    try:
        for member, record in members:
            yield from lines.take_record(record, record.reader.read(), member)
    except RecordError:
        yield from lines.end()
        raise
    yield from lines.end()


class LineMaker:
    """Makes the index lines of the file ``filename``, whose records it takes in their order.

    A request changes the line of the response that is beside it, so a line comes a record later.
    """

    def __init__(self, filename: str):
        self._filename = filename
        # Of the record before: its line, URL and id, and its query if it was a request.
        self._line: str | None = None
        self._url = ""
        self._id: str | None = ""
        self._query: RequestQuery | None = None

    def take(self, member: GzipMember) -> list[str]:
        """Take the next record; return the lines that are finished. Raises RecordError."""
        record = member.record()
        return self.take_record(record, record.reader.read(), member)

    def take_record(self, record: WarcRecord, block: bytes, member: GzipMember) -> list[str]:
        """Take the next record, which is read already; return the lines that are finished."""
        fields = record.headers
        place = Location(self._filename, member.offset, member.length)
        finished, line, url = self._line, record_line(record, block, place), target(record)
        query = query_of(block) if fields.get("WARC-Type") == "request" else None
        if (fields.get("WARC-Concurrent-To"), url) == (self._id, self._url):
            if finished is not None and query is not None:
                finished = line_of_request(finished, url, query)
            elif line is not None and self._query is not None:
                line = line_of_request(line, url, self._query)
        self._line, self._query = line, query
        self._url, self._id = url, fields.get("WARC-Record-ID")
        return [] if finished is None else [finished]

    @property
    def unfinished(self) -> str | None:
        """The line of the last record, which the next one may change."""
        return self._line

    def end(self) -> list[str]:
        """Return the line that is not finished yet."""
        line, self._line = self._line, None
        return [] if line is None else [line]


def target(record: WarcRecord) -> str:
    """Return the URL of a record, ``""`` without one."""
    # Early versions of wget write the URL in angle brackets, one reading of WARC 1.0.
    return (record.headers.get("WARC-Target-URI") or "").strip("<>")


def record_line(record: WarcRecord, block: bytes, place: Location) -> str | None:
    """Return the index line of a record with the block ``block``.

    None for a record of a kind that is not indexed, or without URL or date. The key is that of the
    answer to a GET.
    """
    fields = record.headers
    kind, content = fields.get("WARC-Type"), fields.get("Content-Type") or ""
    url, date = target(record), fields.get("WARC-Date")
    if kind not in _INDEXED or not url or date is None:
        return None
    if kind in {"resource", "metadata"} and content == _ABOUT_RECORDS:
        return None
    if kind == "metadata" and content == gemini.CERTIFICATE:
        return None
    mime, status = content, ""
    if content.startswith("application/http"):
        mime, status = header(block, "Content-Type"), status_of(block)
    elif gemini.is_gemini(content):
        message = gemini.read(block)
        mime, status = message.media_type, message.status
    return line(
        place,
        url=url,
        date=date,
        mime=REVISIT if kind == "revisit" else mime,
        status=status,
        digest=payload_digest(record, block),
    )


def payload_digest(record: WarcRecord, block: bytes) -> str:
    """Return the digest that a record states for its payload, else one of the kind of its block
    digest; empty for a revisit that states none."""
    fields = record.headers
    claimed = fields.get("WARC-Payload-Digest")
    if claimed is not None or fields.get("WARC-Type") == "revisit":
        return claimed or ""
    sha256 = (fields.get("WARC-Block-Digest") or "").startswith("sha256:")
    content = fields.get("Content-Type") or ""
    return digest(_payload(content, block), "sha256" if sha256 else "sha1")


def _payload(content: str, block: bytes) -> bytes:
    """Return the payload of a record with the Content-Type ``content``."""
    if content.startswith("application/http"):
        return payload_of(block)
    return gemini.read(block).payload if gemini.is_gemini(content) else block


def capture_of(
    record: WarcRecord, block: bytes, member: GzipMember, filename: str
) -> IndexLine | None:
    """Return the values of the index line of a record, as `record_line`; None if it has none."""
    text = record_line(record, block, Location(filename, member.offset, member.length))
    return None if text is None else parse(text.encode())


def write_index(warc: Path, lines: Iterable[str]) -> None:
    """Write the sorted ``lines`` durably as the index of the file whose final name is ``warc``.

    :raises OSError: it was not written; an earlier index or the whole new one stands
    """
    with write_durably(index_path(warc)) as file:
        file.writelines(each.encode() for each in lines)
