"""What an answer says of its page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from krowlspider.recrawl.validators import Meaning

# Bytes of the longest ETag and Last-Modified that are kept.
ETAG_MAX = 1024
MODIFIED_MAX = 64
# RFC 9110, section 8.8.3. Servers that leave out the quotes compare them as they please.
_ETAG = re.compile(rb'(?:W/)?"[!#-~\x80-\xff]*"')
# RFC 9110, section 5.5: what a field may have inside.
_TEXT = re.compile(rb"[ -~]+")


class Receipt(Protocol):
    """What the archive says of a record: the digest of its payload, and the URL and WARC-Date of
    the record that has the payload; empty without one.

    The archive's thread fills it. It is whole once the record is durable.
    """

    payload: bytes
    url: str
    date: float


class Fetched(Struct, eq=False):
    """The last answer to the request of a page.

    ``started`` is its WARC-Date, in seconds since the epoch. ``etag`` and ``modified`` are as the
    server sent them, empty where they cannot be sent back. ``meaning`` is what it says of the page
    that was there before. ``text`` is the digest of its main text, empty without KROWL_RECRAWL, and
    where it has none.
    """

    started: float
    status: int
    etag: bytes
    modified: bytes
    meaning: Meaning
    receipt: Receipt
    text: bytes = b""


def validators_in(
    headers: Iterable[tuple[bytes, bytes]], on_left: Callable[[str], object]
) -> tuple[bytes, bytes]:
    """Return the ETag and the Last-Modified of an answer, empty where it has none.

    One that is too long, binary, repeated or, of an ETag, without quotes, is left out: ``on_left``
    is called with ``etag`` or ``modified``.
    """
    etag = modified = b""
    left = 0
    for name, value in headers:
        size = len(name)
        if size == 4 and name.lower() == b"etag":
            left |= bool(etag)
            etag = value
        elif size == 13 and name.lower() == b"last-modified":
            left |= 2 * bool(modified)
            modified = value
    if etag and (left & 1 or len(etag) > ETAG_MAX or not _ETAG.fullmatch(etag)):
        on_left("etag")
        etag = b""
    if modified and (left & 2 or len(modified) > MODIFIED_MAX or not _TEXT.fullmatch(modified)):
        on_left("modified")
        modified = b""
    return etag, modified
