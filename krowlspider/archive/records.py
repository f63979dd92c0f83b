"""WARC/1.1 records as bytes (ISO 28500:2017); pure: ids and dates are handed in.

Every field goes through `_field`, which refuses control characters, so that nothing taken from
the network can begin a field or a record of its own.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING
from uuid import UUID

from krowlspider.archive.payload import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krowlspider.archive.capture import Capture

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# WARC 1.1, 5.12: escaped by RFC 3986, so printable ASCII without whitespace. Readers take a header
# of 32 KiB (fastwarc); half of that is left to the other fields.
_URI = re.compile(r"[!-~]{1,16384}")
# WARC 1.1, 4 "token": no control characters, no separators.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# WARC 1.1, 5.13: the reasons that a crawler can know.
_TRUNCATED = frozenset({"length", "time", "disconnect"})
_FORMAT = {
    "format": "WARC File Format 1.1",
    "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
}


def record_id(entropy: bytes) -> str:
    """The WARC-Record-ID (a version 4 UUID) made of 16 random bytes."""
    return f"<urn:uuid:{UUID(bytes=entropy, version=4)}>"


def warc_date(epoch: float) -> str:
    """The WARC-Date, in UTC with microseconds, of a time in seconds since the epoch.

    Raises ValueError when the time is not a number or lies outside the years 1 to 9999.
    """
    try:
        moment = _EPOCH + timedelta(seconds=epoch)
    except OverflowError as error:
        raise ValueError(f"not a time: {epoch!r}") from error
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def digest(content: bytes) -> str:
    """The labelled digest of ``content``: ``sha1:`` and 32 letters of Base32."""
    return "sha1:" + b32encode(hashlib.sha1(content, usedforsecurity=False).digest()).decode()


def info_block(fields: Mapping[str, str]) -> bytes:
    """The block of a warcinfo record: ``fields``, then the format it conforms to.

    Raises ValueError when a name is not a token or a value holds a control character.
    """
    for name in fields:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"not a field name: {name!r}")
    return b"".join(_field(name, value) for name, value in (dict(fields) | _FORMAT).items())


def warcinfo(block: bytes, *, identity: str, date: str, filename: str) -> bytes:
    """The warcinfo record that begins the file ``filename``."""
    fields = [
        ("WARC-Type", "warcinfo"),
        ("WARC-Record-ID", identity),
        ("WARC-Date", date),
        ("WARC-Filename", filename),
        ("Content-Type", "application/warc-fields"),
        ("WARC-Block-Digest", digest(block)),
    ]
    return _record(fields, block)


def response(capture: Capture, *, identity: str, date: str, info: str) -> bytes:
    """The response record of ``capture``; ``info`` is the id of its file's warcinfo record.

    Raises ValueError when the capture's URL, address or truncation cannot stand in a record.
    """
    fields = [*_common("response", capture, identity, date, info)]
    # Of a chunked response the standard digests the entity, warcio the chunks, and of an irregular
    # head tools disagree where it ends: whichever digest stood here, one of them would call the
    # record broken. The block digest guards it.
    if is_plain(capture.response_bytes, capture.payload):
        fields.append(("WARC-Payload-Digest", digest(capture.payload)))
    if capture.truncated:
        fields.append(("WARC-Truncated", _reason(capture.truncated)))
    return _record(fields, capture.response_bytes)


def request(capture: Capture, *, identity: str, date: str, info: str, concurrent: str) -> bytes:
    """The request record of ``capture``; ``concurrent`` is the id of its response record.

    The association stands on this record only, which WARC 1.1, 5.7 takes as bidirectional: a file
    cut between the two then names no record that is not there.
    """
    fields = [
        *_common("request", capture, identity, date, info),
        ("WARC-Concurrent-To", concurrent),
    ]
    # A request that we sent has CRLF line ends and no transfer coding.
    body = capture.request_bytes.partition(b"\r\n\r\n")[2]
    if body:
        fields.append(("WARC-Payload-Digest", digest(body)))
    return _record(fields, capture.request_bytes)


def metadata(capture: Capture, *, identity: str, date: str, info: str, concurrent: str) -> bytes:
    """The metadata record of ``capture``, which says by which redirects it was come to; ``concurrent`` is
    the id of its response record.

    ``via`` is as in WARC 1.1, 6.6: the referring URI. What is no URI is left out.
    """
    chain = [url for url in capture.chain if _URI.fullmatch(url)]
    block = b"".join(_field("redirected-from", url) for url in chain)
    block += b"".join(_field("via", url) for url in chain[-1:])
    fields = [
        ("WARC-Type", "metadata"),
        ("WARC-Record-ID", identity),
        ("WARC-Date", date),
        ("WARC-Target-URI", _uri(capture.url)),
        ("WARC-Concurrent-To", concurrent),
        ("WARC-Warcinfo-ID", info),
        ("Content-Type", "application/warc-fields"),
        ("WARC-Block-Digest", digest(block)),
    ]
    return _record(fields, block)


def _common(
    kind: str, capture: Capture, identity: str, date: str, info: str
) -> Iterable[tuple[str, str]]:
    block = capture.response_bytes if kind == "response" else capture.request_bytes
    return (
        ("WARC-Type", kind),
        ("WARC-Record-ID", identity),
        ("WARC-Date", date),
        ("WARC-Target-URI", _uri(capture.url)),
        ("WARC-IP-Address", str(ip_address(capture.address))),
        ("WARC-Warcinfo-ID", info),
        ("Content-Type", f"application/http; msgtype={kind}"),
        ("WARC-Block-Digest", digest(block)),
    )


def _uri(url: str) -> str:
    if not _URI.fullmatch(url):
        raise ValueError(f"not an escaped URI of at most 16384 bytes: {url[:200]!r}")
    return url


def _reason(truncated: str) -> str:
    if truncated not in _TRUNCATED:
        raise ValueError(f"not a reason for truncation: {truncated!r}")
    return truncated


def _record(fields: Iterable[tuple[str, str]], block: bytes) -> bytes:
    lines = [_field(name, value) for name, value in fields]
    length = _field("Content-Length", str(len(block)))
    return b"".join((b"WARC/1.1\r\n", *lines, length, b"\r\n", block, b"\r\n\r\n"))


def _field(name: str, value: str) -> bytes:
    if _CONTROL.search(value):
        raise ValueError(f"control character in {name}: {value!r}")
    return f"{name}: {value}\r\n".encode()
