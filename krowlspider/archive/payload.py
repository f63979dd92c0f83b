"""Payloads of HTTP messages, and the digests by which they are recognised.

Digests as in WARC fields: a label, then SHA-1 in Base32, or SHA-256 in hexadecimal. The Base32 form
of SHA-256 ends in "=", which WARC 1.1, section 4 does not allow in a token. So records written by
other tools may spell a digest otherwise.

The payload of an HTTP message: its entity, transfer coding removed (WARC 1.1, 6.3.2). For a fetched
response it equals the payload that the fetcher found, however irregular the response. The index
line written with a capture has that digest; a line made from its record must have it too.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32decode, urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from krowlspider.urls.encoding import ContentType, computed_type

if TYPE_CHECKING:
    from collections.abc import Iterator

ALGORITHMS = ("sha1", "sha256")
_URL_SAFE = str.maketrans("+/", "-_")
# Other tools write MD5 and SHA-512 too.
_BITS = {"md5": 128, "sha1": 160, "sha256": 256, "sha512": 512}
# Two letters for each ten bits: faster than `b32encode`, for the four digests of each page.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _LETTERS for second in _LETTERS]


def raw_digest(content: bytes | memoryview, algorithm: str) -> bytes:
    """Return the 20 or 32 bytes of a digest; ``algorithm`` is one of ALGORITHMS."""
    new = hashlib.sha1 if algorithm == "sha1" else hashlib.sha256
    return new(content, usedforsecurity=False).digest()


def label(raw: bytes, algorithm: str) -> str:
    """Return the value of a WARC field for the 20 or 32 bytes ``raw``."""
    if len(raw) != 20:
        return f"{algorithm}:{raw.hex()}"
    of, n = _PAIRS, int.from_bytes(raw)
    return (
        f"{algorithm}:"
        f"{of[n >> 150]}{of[n >> 140 & 1023]}{of[n >> 130 & 1023]}{of[n >> 120 & 1023]}"
        f"{of[n >> 110 & 1023]}{of[n >> 100 & 1023]}{of[n >> 90 & 1023]}{of[n >> 80 & 1023]}"
        f"{of[n >> 70 & 1023]}{of[n >> 60 & 1023]}{of[n >> 50 & 1023]}{of[n >> 40 & 1023]}"
        f"{of[n >> 30 & 1023]}{of[n >> 20 & 1023]}{of[n >> 10 & 1023]}{of[n & 1023]}"
    )


def digest(content: bytes | memoryview, algorithm: str = "sha1") -> str:
    return label(raw_digest(content, algorithm), algorithm)


def has_digest(content: bytes, claimed: str) -> bool:
    """Return whether ``claimed`` is the labelled digest of ``content``, by a known algorithm."""
    algorithm, raw = parsed(claimed)
    return (
        algorithm in _BITS
        and hashlib.new(algorithm, content, usedforsecurity=False).digest() == raw
    )


def is_checkable(labelled: str) -> bool:
    """Return whether `has_digest` knows the algorithm of a labelled digest."""
    return parsed(labelled)[0] in _BITS


def are_equal(one: str, other: str) -> bool:
    """Return whether two labelled digests are the same one, in whatever spelling."""
    return one == other or parsed(one) == parsed(other)


def is_spelt_as_ours(labelled: str) -> bool:
    """Return whether `label` writes this digest in the same spelling."""
    algorithm, raw = parsed(labelled)
    return isinstance(raw, bytes) and labelled == label(raw, algorithm)


def parsed(labelled: str) -> tuple[str, bytes | str]:
    """Return the algorithm and the bytes of a digest; its text if the form is not known."""
    label, _, value = labelled.partition(":")
    algorithm = label.lower().replace("-", "")
    bits = _BITS.get(algorithm)
    if bits is None:
        return algorithm, value
    digits = value.rstrip("=")
    with suppress(ValueError):
        if len(digits) == bits // 4:
            return algorithm, bytes.fromhex(digits)
        if len(digits) == -(-bits // 5):
            return algorithm, b32decode(digits + "=" * (-len(digits) % 8), casefold=True)
        if len(digits) == -(-bits // 6):
            return algorithm, urlsafe_b64decode(digits.translate(_URL_SAFE) + "==")
    return algorithm, value


@dataclass(frozen=True, slots=True)
class Original:
    """The response record that holds a payload: the text of its WARC-Target-URI and WARC-Date.

    ``identity`` is its WARC-Record-ID, ``digest`` its labelled payload digest if it is spelt in
    another way than here; ``""`` otherwise.
    """

    url: str
    date: str
    identity: str = ""
    digest: str = ""


# Returns a body without these content codings; raises ValueError if it is broken.
Decode = Callable[[bytes, str], bytes]

_HEAD_END = re.compile(rb"\n\r?\n")
# Servers send such before a status line; the fetcher keeps them.
_BLANKS = re.compile(rb"[\r\n \t]*+")
_STATUS = re.compile(rb"[\r\n \t]*+HTTP(?:/[0-9.]+)?[ \t]++([0-9]{3})(?![0-9])", re.IGNORECASE)
_MAY_BE_CHUNKED = re.compile(rb"chunked", re.IGNORECASE)
_FOLD = re.compile(rb"\r?\n[ \t]+")
# RFC 9112, 4 and 5: a status line, then fields, without folds or other lines.
_REGULAR_HEAD = re.compile(rb"HTTP/[^\r\n\0]*(?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*)*")
# RFC 9112, 7.1: the size in hexadecimal, optional extensions after a semicolon; blanks are allowed.
# At most fifteen digits after zeros: sixteen may not fit a position in memory.
_CHUNK_SIZE = re.compile(
    rb"[ \t]*+(0++[0-9A-Fa-f]{0,15}|[0-9A-Fa-f]{1,15})[ \t]*+(?:;[^\n]*+|\r?)\n"
)
# The start of such a line, at which a message may be cut off.
_CHUNK_SIZE_START = re.compile(
    rb"[ \t]*+(?:(?:0++[0-9A-Fa-f]{0,15}|[0-9A-Fa-f]{1,15})[ \t]*+(?:;[^\n]*+|\r?))?"
)
_LAST_CHUNK = re.compile(rb"[ \t]*+0++[ \t]*+(?:;[^\n]*+|\r?)\n")
_CHUNK_END = re.compile(rb"\r?\n")
# The longest head that the fetcher takes. Longer ones are not parsed, because the parser's time is
# quadratic in the folds of a field.
_PARSED = 64 * 1024


def payload_of(message: bytes) -> bytes:
    """Return the payload of a request or response; it ends where the message is cut or broken.

    A body that does not begin with the size of a chunk is not chunked, whatever its head says: many
    archives store it so.
    """
    end = _end_of_head(message)
    if end is None:
        return b""
    if _MAY_BE_CHUNKED.search(message, 0, end) and is_chunked(message[:end]):
        return _dechunk(message, end)
    return message[end:]


def body_of(message: bytes, decode: Decode) -> bytes:
    """Return the payload of a message without its content codings. Raises what ``decode`` does."""
    return decode(payload_of(message), ",".join(_values(message, "Content-Encoding")))


def lacks_chunk(message: bytes) -> bool:
    """Return whether a message without payload is one cut off before the data of its first chunk,
    rather than one of no data."""
    end = _end_of_head(message) or len(message)
    return end < len(message) and _LAST_CHUNK.match(message, end) is None


def without_head(message: bytes) -> bytes:
    """Return the bytes after the head of a message, unchanged; none if the head does not end."""
    return message[_end_of_head(message) or len(message) :]


def head_bytes(message: bytes) -> bytes:
    """Return the head of a message, with the empty line behind it; empty if it does not end."""
    return message[: _end_of_head(message) or 0]


def status_of(message: bytes) -> str:
    """Return the three digits of a response's status; empty without a status line."""
    found = _STATUS.match(message)
    return found[1].decode() if found else ""


def _end_of_head(message: bytes) -> int | None:
    """Return the end of the head, behind an empty line. Blanks before its first line are in it."""
    begun = _BLANKS.match(message)
    end = _HEAD_END.search(message, begun.end() if begun else 0)
    return end.end() if end else None


def unfolded(head: bytes) -> bytes:
    """Return a head with each field on one line (RFC 9112, 5.2)."""
    return _FOLD.sub(b" ", head)


def header(message: bytes, name: str) -> str:
    """Return the value of the first header ``name``, folds undone; empty without such a header."""
    return next(_values(message, name), "")


def _values(message: bytes, name: str) -> Iterator[str]:
    """Yield the values of all headers ``name``, folds undone."""
    for found in _lines(name).finditer(message, 0, _end_of_head(message) or len(message)):
        yield unfolded(found[1]).strip().decode("latin-1")


@cache
def _lines(name: str) -> re.Pattern[bytes]:
    field = rb"\n%b[ \t]*:((?:[^\r\n]|\r?\n[ \t]|\r(?!\n))*)" % re.escape(name.encode())
    return re.compile(field, re.IGNORECASE)


def media_type(message: bytes, decode: Decode) -> str:
    """Return the media type of a message as browsers find it, in lower case; empty if they find
    none. Its body is decoded only if its header names no type."""
    if named := type_of(message, b"").essence:
        return named
    body = b""
    with suppress(ValueError):
        body = body_of(message, decode)
    return type_of(message, body).essence


def type_of(message: bytes, body: bytes) -> ContentType:
    """Return the type of a message as browsers find it, given its body without codings."""
    types, options = (
        [value.encode("latin-1") for value in _values(message, name)]
        for name in ("Content-Type", "X-Content-Type-Options")
    )
    return computed_type(types, options, body)


def is_plain(message: bytes, payload: bytes) -> bool:
    """Return whether every reader finds this payload: behind a regular head, without coding."""
    end = message.find(b"\r\n\r\n")
    return (
        end != -1
        and _REGULAR_HEAD.fullmatch(message, 0, end) is not None
        and len(message) == end + 4 + len(payload)
        and message.endswith(payload)
    )


def is_chunked(head: bytes) -> bool:
    """Return whether chunked is the last transfer coding (RFC 9112, 6.3)."""
    # As in the fetcher, which mends a head that begins otherwise before it is parsed.
    is_usual = head.startswith(b"HTTP/") and len(head) <= _PARSED
    codings = _parsed(head) if is_usual else None
    if codings is None:
        codings = _mended(head)
    return codings[-1:] == [b"chunked"]


class _Codings:
    """Collects the transfer codings of a head, in order; httptools calls `on_header`."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        # Whether a blank stood before a colon: the parser accepts that, the fetcher refuses it.
        self.blank = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.blank |= name.endswith(b" ")
        if name.lower() == b"transfer-encoding":
            # Empty elements of a list are ignored (RFC 9110, 5.6.1).
            self.found += filter(None, map(bytes.strip, value.lower().split(b",")))


def _parsed(head: bytes) -> list[bytes] | None:
    """Return the codings that the fetcher's parser finds; None for a head that it refuses."""
    codings = _Codings()
    parser = HttpResponseParser(codings)
    # The fetcher's own leniencies, so that both refuse the same heads.
    parser.set_dangerous_leniencies(
        lenient_headers=True,
        lenient_chunked_length=True,
        lenient_transfer_encoding=True,
        lenient_version=True,
        lenient_optional_lf_after_cr=True,
        lenient_optional_cr_before_lf=True,
    )
    try:
        parser.feed_data(head)
    except HttpParserUpgrade:
        # The head is read; another protocol follows it.
        pass
    except HttpParserError:
        return None
    return None if codings.blank else codings.found


def _mended(head: bytes) -> list[bytes]:
    """Return the codings that a browser finds: folds undone, names trimmed, any line end."""
    codings = _Codings()
    for line in unfolded(head.replace(b"\0", b" ")).splitlines()[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            codings.on_header(name.strip(), value)
    return codings.found


def _dechunk(message: bytes, position: int) -> bytes:
    if not _CHUNK_SIZE.match(message, position):
        return b"" if _CHUNK_SIZE_START.fullmatch(message, position) else message[position:]
    chunks = []
    while size := _CHUNK_SIZE.match(message, position):
        length = int(size[1], 16)
        chunks.append(message[size.end() : size.end() + length])
        line_end = _CHUNK_END.match(message, size.end() + length)
        if not length or line_end is None:
            break
        position = line_end.end()
    return b"".join(chunks)


def trailers_of(message: bytes | memoryview, position: int) -> int:
    """Return where the trailers of a message begin whose chunks begin at ``position``; its length
    if its last chunk has not come."""
    while size := _CHUNK_SIZE.match(message, position):
        length = int(size[1], 16)
        if not length:
            return size.end()
        line_end = _CHUNK_END.match(message, size.end() + length)
        if line_end is None:
            break
        position = line_end.end()
    return len(message)
