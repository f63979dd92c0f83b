"""``scrapy warc cat``: what was stored for a URL."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.archive.cdxj import REVISIT, timestamp
from krowlspider.archive.indexes import captures_of, original_of
from krowlspider.archive.lookup import header, read_record
from krowlspider.archive.payload import payload_of, without_head
from krowlspider.archive.uploadnotes import uploaded
from krowlspider.errors import KrowlError
from krowlspider.fetch.decode import decode_body
from krowlspider.fetch.errors import FetchError
from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krowlspider.archive.cdxj import IndexLine

# Bytes of a body once decoded: a hundred times what a crawl takes of one by default.
_DECODED_MAX = 1_000_000_000
# How the profile of a 304 ends, in any version of WARC.
_UNCHANGED = "/server-not-modified"
# Years, and what may follow them, to the second.
_DATE = re.compile(r"\d{4}(?:-?\d\d(?:-?\d\d(?:[T ]?\d\d(?::?\d\d(?::?\d\d(?:\.\d*)?)?)?)?)?)?Z?")
_STAMP = "%Y%m%d%H%M%S"


class NotThereError(KrowlError):
    """No such capture, or not what it stands for."""


def wanted(url: str) -> str:
    """The URL as the archive has it: as it is crawled, or the ``dns:`` of an answer.

    :raises KrowlError: it is none that is crawled
    """
    if url.startswith("dns:"):
        return url
    normal = normalise(url)
    if normal is None:
        raise KrowlError(f"{url!r} is not a URL that is crawled: give https://...")
    return normal


def captures(indexes: Sequence[Path], url: str) -> list[IndexLine]:
    """What there is of a URL, and of those that replay takes for the same, oldest first.

    :raises NotThereError: nothing
    """
    found = captures_of(indexes, url)
    if not found:
        raise NotThereError(f"there is no capture of {url}")
    return found


def choose(found: Sequence[IndexLine], url: str, at: str | None) -> IndexLine:
    """The newest capture, or the one nearest to a date, of the very URL if there is one.

    The newest is one with a payload, rather than an answer to HEAD, if there is one.

    :raises KrowlError: it is no date
    """
    exact = [line for line in found if line.url == url] or found
    if at is None:
        return ([line for line in exact if not line.is_bare] or exact)[-1]
    moment = _moment(_stamp(at))
    return min(exact, key=lambda line: (_distance(line, moment), line.is_bare))


def _distance(line: IndexLine, moment: float) -> float:
    """Seconds between them."""
    try:
        return abs(_moment(line.timestamp) - moment)
    except ValueError:
        # Another tool may write what is no date.
        return inf


def _stamp(date: str) -> str:
    stamp = timestamp(date)
    try:
        if _DATE.fullmatch(date):
            _moment(stamp)
            return stamp
    except ValueError:
        pass
    raise KrowlError(f"{date!r} is not a date: give 2026-01-31, or 2026-01-31T12:00:00")


def _moment(stamp: str) -> float:
    return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp()


def read(folder: Path, indexes: Sequence[Path], line: IndexLine, *, payload: bool) -> bytes:
    """What is stored for a capture: an HTTP message as it was on the wire, or the ``payload`` with no coding left. A
    revisit has its own head, and the body of what it refers to; one that says that nothing has changed stands for that.

    :raises NotThereError: the file is not there, or not what the revisit stands for
    :raises KrowlError: the payload cannot be decoded
    """
    fields, block = _record(folder, line)
    if line.mime == REVISIT:
        revisit = fields
        original = original_of(indexes, line, revisit)
        if original is None:
            raise NotThereError(
                f"what was stored for {line.url} at {line.timestamp} is a revisit, and what it stands for is not there"
            )
        head = block
        fields, block = _record(folder, original)
        # Other tools leave the head out.
        if head and not revisit.get("WARC-Profile", "").endswith(_UNCHANGED):
            block = head + without_head(block)
    if not payload or not fields.get("Content-Type", "").startswith("application/http"):
        return block
    try:
        return decoded(payload_of(block), header(block, "Content-Encoding"))
    except ValueError as error:
        raise KrowlError(
            f"{line.url} cannot be decoded, {error}: without --payload it is printed as it was sent"
        ) from error


def _record(folder: Path, line: IndexLine) -> tuple[dict[str, str], bytes]:
    # A name only, whatever an index says.
    path = folder / Path(line.filename).name
    try:
        return read_record(path, line.offset)
    except FileNotFoundError as error:
        there = uploaded(folder).get(path.name)
        raise NotThereError(
            f"{line.url} is in {line.filename}, which is not in {folder}"
            + (f": it was uploaded to {there}" if there else "")
        ) from error


def decoded(payload: bytes, codings: str) -> bytes:
    """A payload without its content codings. Raises ValueError when it is not in them, or very large."""
    try:
        return decode_body(payload, codings.encode("latin-1"), _DECODED_MAX)
    except FetchError as error:
        raise ValueError(str(error)) from error
