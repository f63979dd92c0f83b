"""The index of a WARC file: a line for each capture, as pywb and cdxj-indexer read and write them.

A line is the key of the URL, the time in 14 digits, and an object of JSON, all of whose values are
text. Lines are ASCII, and sorted by their bytes. ``X.warc.gz`` has its index beside it, in ``X.cdxj``.

As in cdxj-indexer, response, revisit, resource and metadata records are indexed, the last two unless
they hold fields of WARC. In two things its lines differ: media types are in lower case here, as they
are the same in any; and a chunked response has the digest of its entity, which its record leaves out,
because that is what a revisit of it has, and digests are what readers match the two by.
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

from krowlspider.archive.digests import ALGORITHMS, digest
from krowlspider.archive.disk import sync_directory
from krowlspider.archive.lookup import header, parse_record
from krowlspider.archive.members import read_member
from krowlspider.archive.payload import payload_of
from krowlspider.archive.surt import surt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fastwarc.warc import WarcRecord

WARC = ".warc.gz"
INDEX = ".cdxj"
_DRAFT = ".new"
# What stands for the media type of a revisit.
REVISIT = "warc/revisit"

_INDEXED = frozenset({"response", "revisit", "resource", "metadata"})
_ABOUT_RECORDS = "application/warc-fields"
_STATUS = re.compile(rb"HTTP/[0-9.]+[ \t]+([0-9]{3})")
_PARAMETERS = re.compile(r"[;\s]")
_NOT_DIGIT = re.compile("[^0-9]")
# What is left out of a date is its beginning: WARC 1.1 allows "2026-01".
_EARLIEST = "00000101000000"
_OF_NOTHING = frozenset(digest(b"", algorithm) for algorithm in ALGORITHMS)
# A value as JSON; an encoder of whole objects takes three times as long.
_quoted = json.encoder.encode_basestring_ascii


@dataclass(frozen=True, slots=True)
class IndexLine:
    """A capture, as its line says; ``mime``, ``status`` and ``digest`` are empty where it has none."""

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
        """Whether it is an answer 200 of no payload, as those to HEAD are; the method is in no line."""
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
    """The line of a capture, with its line break.

    ``date`` is its WARC-Date, ``mime`` what its Content-Type says or REVISIT, ``length`` that of the gzip member at
    ``offset``. An empty ``mime``, ``status`` or ``digest`` is left out.
    """
    said = f'"url": {_quoted(url)}'
    if kind := _PARAMETERS.split(mime, maxsplit=1)[0].lower():
        said += f', "mime": {_quoted(kind)}'
    if status:
        said += f', "status": {_quoted(status)}'
    # An answer 304 has no payload of its own that anything could be matched by.
    if digest and (mime, status) != (REVISIT, "304"):
        said += f', "digest": {_quoted(digest)}'
    said += f', "length": "{length}", "offset": "{offset}", "filename": {_quoted(filename)}'
    return f"{key_of(url)} {timestamp(date)} {{{said}}}\n"


def key_of(url: str) -> str:
    """The key in a line, which a blank ends: the `surt` of what is hardly a URL may have some."""
    return surt(url).replace(" ", "%20")


def parse(line: bytes) -> IndexLine:
    """What a line says, ours or another tool's. Raises ValueError when it is none."""
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
    """The 14 digits of a WARC-Date, what is less than a second cut off."""
    digits = _NOT_DIGIT.sub("", date)[:14]
    return digits + _EARLIEST[len(digits) :]


def index_path(warc: Path) -> Path:
    """Where the index of the finished file ``warc`` is."""
    return warc.with_name(warc.name.removesuffix(WARC) + INDEX)


def index_file(warc: Path, told: Callable[[int], object] | None = None) -> Iterator[str]:
    """The lines of a finished file, in the order of its records; ``told`` of each member's length.

    One record at a time is in memory. Raises RecordError where the file is broken, OSError.
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
    """The line of a record that has this block; None when it is of a kind that has none."""
    fields = record.headers
    kind, content = fields.get("WARC-Type"), fields.get("Content-Type") or ""
    # Early versions of wget write it in angle brackets, as WARC 1.0 could be read.
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
    """The algorithm of a record's digests."""
    return "sha256" if block_digest and block_digest.startswith("sha256:") else "sha1"


def write_index(warc: Path, lines: Iterable[str]) -> Path:
    """Write the index of the file whose finished name is ``warc``, durably; its path.

    ``lines`` come sorted. Raises OSError, any index that was there being as it was.
    """
    path = index_path(warc)
    with written_durably(path) as file:
        file.writelines(each.encode() for each in lines)
    return path


@contextmanager
def written_durably(path: Path) -> Iterator[BinaryIO]:
    """A file to be written that has its name only when all of it is on the disk, as is the name then.

    Raises OSError, what was there being as it was.
    """
    # Of two processes that write the same one, each has its own.
    draft = path.with_name(f"{path.name}.{os.getpid()}{_DRAFT}")
    try:
        with draft.open("wb") as file:
            # Held until it has its name: what is not held is a dead process's.
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
    """Remove what dead processes left of indexes that they wrote; those of living ones stay. Raises OSError."""
    for draft in directory.glob(f"*{INDEX}.*{_DRAFT}"):
        with suppress(FileNotFoundError, BlockingIOError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()
