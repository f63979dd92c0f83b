"""The index of a WARC file: a line for each capture, as pywb and cdxj-indexer read and write them.

A line is the key of the URL, the time in 14 digits, and a JSON object whose values are all text.
Lines are ASCII and sorted by their bytes. The index of ``X.warc.gz`` stands beside it, ``X.cdxj``.

As in cdxj-indexer, response, revisit, resource and metadata records are indexed, the last two
unless they are of type application/warc-fields. The lines differ from cdxj-indexer's in two ways.
Media types are in lower case, because case has no meaning in them. A chunked response has the
digest of its entity, which its record omits: a revisit has that digest, and readers match by it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import sync_directory
from krowlspider.archive.index.lookup import header, parse_record
from krowlspider.archive.index.surt import surt
from krowlspider.archive.members import read_member
from krowlspider.archive.payloads.digests import ALGORITHMS, digest
from krowlspider.archive.payloads.payload import payload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

WARC = ".warc.gz"
INDEX = ".cdxj"
_DRAFT = ".new"
# The media type of a revisit in an index line.
REVISIT = "warc/revisit"

_INDEXED = frozenset({"response", "revisit", "resource", "metadata"})
_ABOUT_RECORDS = "application/warc-fields"
_STATUS = re.compile(rb"HTTP/[0-9.]+[ \t]+([0-9]{3})")
_PARAMETERS = re.compile(r"[;\s]")
_NOT_DIGIT = re.compile("[^0-9]")
# The missing digits of a shortened date (WARC 1.1 allows "2026-01"): those of its earliest moment.
_EARLIEST = "00000101000000"
_OF_NOTHING = frozenset(digest(b"", algorithm) for algorithm in ALGORITHMS)
# A text as JSON; faster than encoding a whole object.
_quoted = json.encoder.encode_basestring_ascii


@dataclass(frozen=True, slots=True)
class IndexLine:
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

    @property
    def is_bare(self) -> bool:
        """Return whether this is a 200 without payload, as to HEAD; no line holds the method."""
        return self.status == "200" and self.digest in _OF_NOTHING


def line(
    *,
    url: str,
    date: str,
    mime: str,
    status: str,
    digest: str,
    length: int,
    offset: int,
    filename: str,
) -> str:
    """Return the line of a capture, with its line break.

    ``date`` is the WARC-Date. ``mime`` is the value of Content-Type, or REVISIT. ``length`` is the
    bytes of the gzip member at ``offset``. An empty ``mime``, ``status`` or ``digest`` is omitted.
    """
    said = f'"url": {_quoted(url)}'
    if kind := _PARAMETERS.split(mime, maxsplit=1)[0].lower():
        said += f', "mime": {_quoted(kind)}'
    if status:
        said += f', "status": {_quoted(status)}'
    # The revisit of an answer 304 has no payload of its own to match, so it has no digest.
    if digest and (mime, status) != (REVISIT, "304"):
        said += f', "digest": {_quoted(digest)}'
    said += f', "length": "{length}", "offset": "{offset}", "filename": {_quoted(filename)}'
    return f"{key_of(url)} {timestamp(date)} {{{said}}}\n"


def key_of(url: str) -> str:
    """Return the `surt` key of ``url`` without blanks, because a blank ends the key in a line.

    The `surt` of an invalid URL may hold blanks.
    """
    return surt(url).replace(" ", "%20")


def parse(line: bytes) -> IndexLine:
    """Return the values of an index line, ours or another tool's.

    :raises ValueError: it is not a line of an index
    """
    key, time, values = line.decode().split(" ", 2)
    said = json.loads(values)
    try:
        return IndexLine(
            key=key,
            timestamp=time,
            url=said["url"],
            mime=said.get("mime", ""),
            status=said.get("status", ""),
            digest=said.get("digest", ""),
            length=int(said["length"]),
            offset=int(said["offset"]),
            filename=said["filename"],
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


def index_file(warc: Path, told: Callable[[int], object] | None = None) -> Iterator[str]:
    """Yield the index lines of a finished file, in the order of its records.

    ``told`` is called with each member's length in bytes. One record at a time is in memory.

    :raises RecordError: the file is broken
    :raises OSError: the file cannot be read
    """
    with warc.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        offset = 0
        while offset < size:
            content = BytesIO()
            length = read_member(stream, offset, content.write)
            record = parse_record(content.getvalue(), offset)
            said = index_record(record, record.reader.read(), offset, length, warc.name)
            if said is not None:
                yield said
            offset += length
            if told is not None:
                told(length)


def index_record(
    record: WarcRecord, block: bytes, offset: int, length: int, filename: str
) -> str | None:
    """Return the index line of a record with the block ``block``.

    None for a record of a kind that is not indexed, or without URL or date.
    """
    fields = record.headers
    kind, content = fields.get("WARC-Type"), fields.get("Content-Type") or ""
    # Early versions of wget write the URL in angle brackets, one reading of WARC 1.0.
    url, date = (fields.get("WARC-Target-URI") or "").strip("<>") or None, fields.get("WARC-Date")
    if kind not in _INDEXED or url is None or date is None:
        return None
    if kind in {"resource", "metadata"} and content == _ABOUT_RECORDS:
        return None
    http = content.startswith("application/http")
    status = _STATUS.match(block) if http else None
    mime = header(block, "Content-Type") if http else content
    claimed = fields.get("WARC-Payload-Digest")
    if claimed is None and kind != "revisit":
        payload = payload_of(block) if http else block
        claimed = digest(payload, _algorithm(fields.get("WARC-Block-Digest")))
    return line(
        url=url,
        date=date,
        mime=REVISIT if kind == "revisit" else mime,
        status=status[1].decode() if status else "",
        digest=claimed or "",
        length=length,
        offset=offset,
        filename=filename,
    )


def _algorithm(block_digest: str | None) -> str:
    """Return the algorithm of a record's digests; ``sha1`` without a block digest."""
    return "sha256" if block_digest and block_digest.startswith("sha256:") else "sha1"


def write_index(warc: Path, lines: Iterable[str]) -> Path:
    """Write the index of the file whose final name is ``warc`` durably, and return its path.

    ``lines`` must be sorted.

    :raises OSError: it could not be written durably; an earlier index or the whole new one stands
    """
    path = index_path(warc)
    with written_durably(path) as file:
        file.writelines(each.encode() for each in lines)
    return path


@contextmanager
def written_durably(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write; on exit its content and its name, ``path``, are durable.

    Before that ``path`` is unchanged, so it never holds half a file.

    :raises OSError: the file or its name could not be made durable
    """
    # Two processes may write the same file: each has its own draft.
    draft = path.with_name(f"{path.name}.{os.getpid()}{_DRAFT}")
    try:
        with draft.open("wb") as file:
            # Locked until it has its name: an unlocked draft is that of a dead process.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
            draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_drafts(directory: Path) -> None:
    """Remove the drafts of indexes that dead processes left; those of living processes stay.

    Raises OSError.
    """
    for draft in directory.glob(f"*{INDEX}.*{_DRAFT}"):
        with suppress(FileNotFoundError, BlockingIOError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()
