"""Read one record at a given offset, and a header of its HTTP message."""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from fastwarc.warc import ArchiveIterator

from krowlspider.archive.errors import RecordError
from krowlspider.archive.members import read_member

if TYPE_CHECKING:
    from pathlib import Path

    from fastwarc.warc import WarcRecord

_RECORD_END = b"\r\n\r\n"
_HEAD_END = re.compile(rb"\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")


def read_record(path: Path, offset: int) -> tuple[dict[str, str], bytes]:
    """Return the WARC fields and the block of the record at ``offset``.

    The names of the fields are spelt as in the record.

    :raises RecordError: no whole record begins there
    :raises OSError: the file cannot be read
    """
    with path.open("rb") as stream:
        return record_at(stream, offset)


def record_at(stream: BinaryIO, offset: int) -> tuple[dict[str, str], bytes]:
    """Return and raise the same as `read_record`, for an open file."""
    content = BytesIO()
    read_member(stream, offset, content.write)
    record = parse_record(content.getvalue(), offset)
    return record.headers.to_dict(), record.reader.read()


def parse_record(content: bytes, offset: int) -> WarcRecord:
    """Return the one record in ``content``, the member at ``offset``; its block is not read yet.

    fastwarc accepts any bytes after a block, so they are checked here.

    :raises RecordError: the member is not exactly one record
    """
    try:
        record = next(iter(ArchiveIterator(BytesIO(content), parse_http=False)), None)
    except OSError as error:
        raise RecordError(offset, f"not a WARC record: {error}") from error
    if record is None:
        raise RecordError(offset, "the member is empty")
    block = content.find(_RECORD_END) + len(_RECORD_END)
    if content[block + record.content_length :] != _RECORD_END:
        raise RecordError(offset, f"Content-Length {record.content_length} does not fit the block")
    return record


def header(message: bytes, name: str) -> str:
    """Return the value of the first header ``name`` in an HTTP message, folds undone.

    Empty without such a header.
    """
    end = _HEAD_END.search(message)
    field = rb"\n%b[ \t]*:((?:[^\r\n]|\r?\n[ \t]|\r(?!\n))*)" % re.escape(name.encode())
    found = re.compile(field, re.IGNORECASE).search(message, 0, end.end() if end else len(message))
    return _FOLD.sub(b" ", found[1]).strip().decode("latin-1") if found else ""
