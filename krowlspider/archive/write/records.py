"""What is handed to the archive, and the WARC/1.1 records that are built of it.

Build WARC/1.1 records as bytes (ISO 28500:2017). Pure but for `RecordIds`. No value in a field
holds a control character: it is made here, is a digest, or passes `_line` or a stricter check. So
data from the network cannot begin a field or a record.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from datetime import datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from krowlspider.archive import gemini
from krowlspider.archive.cdxj import DOM_URI, POLICIES_URI, SEEDS_URI
from krowlspider.archive.payload import Original, digest, is_chunked, is_plain, trailers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# OpenSSL's names before TLS 1.3: key exchange, signature, cipher, cipher mode, hash.
_BEFORE_1_3 = re.compile(
    r"(?:(ECDHE|DHE)-(ECDSA|RSA)-)?(AES)(128|256)(?:-(GCM))?-(SHA(?:256|384)?)"
    r"|(ECDHE|DHE)-(ECDSA|RSA)-(CHACHA20-POLY1305)"
)


class Wire(NamedTuple):
    """How the messages of a capture travelled.

    ``address`` is the origin's IP address as text, None if a proxy hides it. ``version`` is that of
    HTTP, and says nothing of Gemini. ``tls`` is the protocol and the cipher by OpenSSL's names,
    None for plain HTTP.
    """

    address: str | None
    version: str = "1.1"
    tls: tuple[str, str] | None = None


class Receipt(Struct, eq=False):
    """What became of a capture: the digest of its payload, 20 or 32 bytes, and the URL and
    WARC-Date of the record that has the payload, in seconds since the epoch.

    All are empty until its records are written.
    """

    payload: bytes = b""
    url: str = ""
    date: float = 0.0


# A field of our own: WARC 1.1, section 4, allows them.
SEED_TAG = "Krowl-Seed-Tag"
# Another one: names of header fields of request and response, of which the records have no values.
REDACTED = "Krowl-Redacted"


class Capture(Struct, eq=False):
    """One exchange of HTTP, or of Gemini, as it was on the wire.

    ``identity`` is the WARC-Record-ID of the response. ``url`` is escaped, without whitespace. The
    first ``head`` bytes of the response are status line, headers and the blank line. ``payload`` is
    the entity: after transfer decoding, before content decoding. ``media_type`` is the value of
    Content-Type, ``""`` without one. ``started`` is in seconds since the epoch. ``truncated`` is
    ``""``, or why the response is not whole: ``"length"``, ``"time"``, ``"disconnect"``.

    Of a large response ``response_bytes`` and ``payload`` are empty until the writer calls
    ``stored``, which returns both from a file of ``stored_size`` bytes. The writer fills
    ``receipt``, if there is one, before the record's future is set.

    ``original`` is the record that an answer 304 confirms. ``says_nothing``: it is a 304 that
    confirms none, and is stored as a response. ``tag`` is that of the seed that it came from, ""
    without one. ``redacted`` names header fields, in lower case, whose values are not stored.

    ``protocol`` is "gemini", or "" for HTTP. The head of a Gemini response is its header line, and
    ``media_type`` is not used. ``certificate`` is the server's in DER, if it is to be stored
    because it is new or has changed.
    """

    identity: str
    url: str
    request_bytes: bytes
    response_bytes: bytes | memoryview
    head: int
    payload: bytes | memoryview
    status: int
    media_type: str
    started: float
    truncated: str
    wire: Wire
    stored: Callable[[], tuple[memoryview, memoryview | bytes]] | None = None
    stored_size: int = 0
    receipt: Receipt | None = None
    original: Original | None = None
    says_nothing: bool = False
    tag: str = ""
    redacted: tuple[str, ...] = ()
    protocol: str = ""
    certificate: bytes = b""

    @property
    def size(self) -> int:
        """The bytes this capture holds in memory, without the fixed cost of the object."""
        return len(self.request_bytes) + len(self.response_bytes) + len(self.payload)


class FetchNote(Struct, eq=False):
    """A note about a fetch, for a metadata record.

    ``fields`` are those of WARC 1.1, section 6.6, and the crawler's own. ``concurrent`` is the
    identity of the fetch's response. ``started`` is in seconds since the epoch.
    """

    url: str
    started: float
    fields: list[tuple[str, str]]
    concurrent: str | None = None

    @property
    def size(self) -> int:
        """The characters of its names and values, about its bytes in memory."""
        return sum(len(name) + len(value) for name, value in self.fields)


class Resource(Struct, eq=False):
    """The content of a resource record: seeds of a start, sheets, an answer of the DNS, or a page
    as it was in the browser.

    ``started`` is in seconds since the epoch. ``truncated`` is whether ``block`` is only the
    beginning. ``concurrent`` is the identity of a response that it belongs to.
    """

    url: str
    started: float
    media_type: str
    block: bytes
    truncated: bool = False
    concurrent: str | None = None


def redact(capture: Capture) -> Capture:
    """Return a capture with ``[removed]`` in place of the values of its redacted fields, in
    headers and trailers.

    Payload and status line stay as they were received.
    """
    names = b"|".join(re.escape(name.encode()) for name in capture.redacted)
    # A folded value goes on in the lines behind it.
    field = re.compile(
        rb"(?<![^\r\n])(%b)[ \t]*:[^\r\n]*(?:(?:\r\n|\r|\n)[ \t]+[^\r\n]*)*" % names, re.IGNORECASE
    )
    response, request = capture.response_bytes, capture.request_bytes
    received = bytes(response[: capture.head])
    head = field.sub(rb"\1: [removed]", received)
    end = trailers_of(response, capture.head) if is_chunked(received) else len(response)
    trailers = field.sub(rb"\1: [removed]", bytes(response[end:]))
    whole = b"".join((head, response[capture.head : end], trailers))
    asked, blank, body = request.partition(b"\r\n\r\n")
    return replace(
        capture,
        head=len(head),
        response_bytes=memoryview(whole) if isinstance(response, memoryview) else whole,
        request_bytes=field.sub(rb"\1: [removed]", asked) + blank + body,
    )


def tls_protocol(name: str) -> str:
    """Return the value of WARC-Protocol: ``tls/1.3`` for ``TLSv1.3`` (IIPC, WARC-Protocol 1.0)."""
    return "tls/" + (name.removeprefix("TLSv") if "." in name else "1.0")


def cipher_suite(name: str) -> str:
    """Return the value of WARC-Cipher-Suite (IIPC): the suite's name in IANA's registry.

    Knows the suites that this crawler offers; returns any other name unchanged.
    """
    found = _BEFORE_1_3.fullmatch(name)
    if found is None:
        return name
    exchange, signature, aes, bits, mode, mac, *chacha = found.groups()
    if aes:
        kind = f"{exchange}_{signature}" if exchange else "RSA"
        return f"TLS_{kind}_WITH_AES_{bits}_{mode or 'CBC'}_{mac}"
    return f"TLS_{chacha[0]}_{chacha[1]}_WITH_CHACHA20_POLY1305_SHA256"


# UTC, but naive: an aware datetime would write its offset, and more slowly.
_EPOCH = datetime(1970, 1, 1)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# WARC 1.1, 5.12: escaped by RFC 3986, so printable ASCII without whitespace. fastwarc reads a
# header of at most 32 KiB; half of that remains for the other fields.
URI_MAX = 16384
_URI = re.compile(rf"[!-~]{{1,{URI_MAX}}}")
# WARC 1.1, 4, "token": no control characters and no separators.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Addresses remembered as they stand in fields; about 150 bytes each.
_ADDRESSES = 4096
# WARC 1.1, 5.13: the reasons for truncation that a crawler can know.
_TRUNCATED = frozenset({"length", "time", "disconnect"})
# WARC 1.1, 6.7.2 and 6.7.3: the profiles of a revisit.
_IDENTICAL = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_FORMAT = {
    "format": "WARC File Format 1.1",
    "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
}
_IDS_AT_A_TIME = 64
_END = b"\r\n\r\n"
# Bytes of a large block that are compressed and written at a time.
_PIECE = 1024 * 1024
_FIELDS = "application/warc-fields"
_RESPONSE = "application/http; msgtype=response"
_REQUEST = "application/http; msgtype=request"
_TEXT = "text/plain; charset=utf-8"
# Fields of a warcinfo record that a user may set, besides those with other names.
_OF_USER = {name.lower(): name for name in ("operator", "description", "isPartOf")}
# Fields that the crawler writes, in lower case, and the form of the names of its settings.
_OF_CRAWLER = frozenset(
    {"software", "format", "conformsto", "hostname", "ip", "robots", "http-header-user-agent"}
)
_SETTING = re.compile("[A-Z]+(_[A-Z0-9]+)+")


def record_id(entropy: bytes) -> str:
    """Return the WARC-Record-ID, a version 4 UUID, made of 16 random bytes."""
    digits = entropy.hex()
    # RFC 9562, 5.4: the version and the variant replace six of the bits.
    variant = "89ab"[entropy[8] >> 4 & 3]
    return (
        f"<urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[13:16]}"
        f"-{variant}{digits[17:20]}-{digits[20:]}>"
    )


class RecordIds:
    """Makes record ids, each of other random bytes. For one thread."""

    def __init__(self) -> None:
        self._pool = b""

    def new(self) -> str:
        if not self._pool:
            # A system call for each id takes 1 % of a crawl's CPU.
            self._pool = os.urandom(_IDS_AT_A_TIME * 16)
        entropy, self._pool = self._pool[:16], self._pool[16:]
        return record_id(entropy)


# One capture needs its date four times: two records, the payload index and the index line.
@lru_cache(maxsize=2)
def warc_date(epoch: float) -> str:
    """Return the WARC-Date, in UTC with microseconds, of a time in seconds since the epoch.

    :raises ValueError: it is not a number or outside the years 1 to 9999
    """
    try:
        moment = _EPOCH + timedelta(seconds=epoch)
    except OverflowError as error:
        raise ValueError(f"not a time: {epoch!r}") from error
    return moment.isoformat(timespec="microseconds") + "Z"


def epoch_of(date: str) -> float:
    """Return the seconds since the epoch of a WARC-Date; 0 if it is none.

    `warc_date` returns the same date for them, in microseconds.
    """
    try:
        moment = datetime.fromisoformat(date.removesuffix("Z"))
    except ValueError:
        return 0.0
    return (moment - _EPOCH).total_seconds()


def info_fault(name: object, value: object) -> str | None:
    """Return why a user may not add a field to the warcinfo record; None if it is allowed."""
    if not (isinstance(name, str) and _TOKEN.fullmatch(name)):
        return "is not the name of a field: give letters, digits, '-' and '_'"
    if name.lower() in _OF_CRAWLER or _SETTING.fullmatch(name):
        return "is written by the crawler itself: give it another name"
    if (usual := _OF_USER.get(name.lower(), name)) != name:
        return f"is spelt {usual!r}"
    if not (isinstance(value, str) and value.strip()):
        return "must have a text"
    # splitlines() knows more ends of a line than the control characters.
    if _CONTROL.search(value) or len(value.splitlines()) > 1 or not _is_utf8(value):
        return "must be one line of UTF-8 text, without control characters"
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def info_block(fields: Mapping[str, str]) -> bytes:
    """Return the block of a warcinfo record. Raises ValueError for a field that would break it."""
    return _fields_block([*(dict(fields) | _FORMAT).items()])


class RecordMaker:
    """Builds the records of the file whose warcinfo record has the id ``info``.

    ``algorithm`` is that of the digests. Each method raises ValueError for a value that no record
    may hold: a URL, an address, a truncation reason.
    """

    def __init__(self, info: str, algorithm: str):
        self._info = info
        self._algorithm = algorithm
        # The shared fields of the last capture, and the values they were made of.
        self._shared = ""
        self._made_of: tuple[str, float, Wire, str] | None = None

    def warcinfo(self, block: bytes, *, date: str, filename: str) -> bytes:
        """Return the warcinfo record that begins the file ``filename``."""
        fields = [("WARC-Date", date), ("WARC-Filename", filename)]
        head = _named("warcinfo", self._info) + _lines(fields)
        return self._record(head, _FIELDS, block)

    def response(self, capture: Capture, payload: str) -> bytes:
        """Return the response record of a capture; ``payload`` is its labelled payload digest.

        WARC-Payload-Digest is written only where every reader finds the same payload. For a chunked
        response the standard digests the entity, other tools the chunks, and they disagree where an
        irregular head ends. Of a Gemini response others digest the block. There any digest would
        make one tool call the record broken.
        """
        head = self._response_head(capture, payload)
        return self._record(head, _response_type(capture), capture.response_bytes)

    def response_pieces(self, capture: Capture, payload: str) -> Iterator[bytes | memoryview]:
        """Return what `response` does, in pieces that are not copied."""
        block = capture.response_bytes
        # Made now, because it may raise ValueError.
        head = self._response_head(capture, payload)
        start = self._start(head, _response_type(capture), block)
        blocks = (block[at : at + _PIECE] for at in range(0, len(block), _PIECE))
        return chain((start,), blocks, (_END,))

    def _response_head(self, capture: Capture, payload: str) -> str:
        head = self._capture_fields("response", capture, capture.identity)
        if not capture.protocol and _is_plain(capture):
            head += f"WARC-Payload-Digest: {payload}\r\n"
        if reason := capture.truncated:
            if reason not in _TRUNCATED:
                raise ValueError(f"not a reason for truncation: {reason!r}")
            head += f"WARC-Truncated: {reason}\r\n"
        return head

    def revisit(self, capture: Capture, payload: str, original: Original) -> bytes:
        """Return the revisit record of a capture whose payload ``original`` holds (6.7.2)."""
        fields = [
            ("WARC-Profile", _IDENTICAL),
            ("WARC-Payload-Digest", payload),
            *_refers_to(original),
            # 6.7.2 requires it of a block without its payload.
            ("WARC-Truncated", "length"),
        ]
        head = self._capture_fields("revisit", capture, capture.identity) + _lines(fields)
        return self._record(head, _response_type(capture), capture.response_bytes[: capture.head])

    def not_modified(self, capture: Capture, original: Original | None = None) -> bytes:
        """Return the revisit record of a 304 (6.7.3), which refers to ``original`` if it is known.

        Else it stands for any earlier answer.
        """
        head = self._capture_fields("revisit", capture, capture.identity)
        head += _line("WARC-Profile", _NOT_MODIFIED)
        if original is not None:
            head += _lines(_refers_to(original))
            if original.digest:
                head += _line("WARC-Payload-Digest", original.digest)
        return self._record(head, _RESPONSE, capture.response_bytes)

    def request(self, capture: Capture, identity: str) -> bytes:
        head = self._capture_fields("request", capture, identity)
        # On this record only; WARC 1.1, 5.7 reads it in both directions. So a file cut between the
        # two records names no record that is missing.
        head += _line("WARC-Concurrent-To", capture.identity)
        if capture.protocol:
            return self._record(head, gemini.REQUEST, capture.request_bytes)
        # The crawler's own requests have CRLF line ends and no transfer coding.
        if body := capture.request_bytes.partition(b"\r\n\r\n")[2]:
            head += f"WARC-Payload-Digest: {self._digest(body)}\r\n"
        return self._record(head, _REQUEST, capture.request_bytes)

    def certificate(self, capture: Capture, identity: str) -> bytes:
        """Return the metadata record of the certificate that a capture's server has shown."""
        head = _named("metadata", identity) + self._about(capture.url, capture.started)
        head += _line("WARC-Concurrent-To", capture.identity)
        return self._record(head, gemini.CERTIFICATE, _pem(capture.certificate))

    def metadata(self, note: FetchNote, identity: str) -> bytes:
        """Return the metadata record of a note (WARC 1.1, 6.6)."""
        head = _named("metadata", identity) + self._about(note.url, note.started)
        if note.concurrent is not None:
            head += _line("WARC-Concurrent-To", note.concurrent)
        return self._record(head, _FIELDS, _fields_block(note.fields))

    def resource(self, resource: Resource, identity: str) -> bytes:
        head = _named("resource", identity) + self._about(resource.url, resource.started)
        if resource.concurrent is not None:
            head += _line("WARC-Concurrent-To", resource.concurrent)
        head += f"WARC-Payload-Digest: {self._digest(resource.block)}\r\n"
        if resource.truncated:
            head += _line("WARC-Truncated", "length")
        return self._record(head, resource.media_type, resource.block)

    def conversion(
        self,
        identity: str,
        *,
        url: str,
        date: str,
        source: str | None,
        language: str | None,
        text: str,
    ) -> bytes:
        """Return a conversion record (WARC 1.1, 6.8): the text of the record ``source``.

        ``language`` is a code of ISO 639-3.
        """
        fields = [("WARC-Target-URI", _uri(url)), ("WARC-Date", date), ("WARC-Record-ID", identity)]
        if source is not None:
            fields.append(("WARC-Refers-To", source))
        if language is not None:
            fields.append(("WARC-Identified-Content-Language", language))
        # Some readers of WET find these fields by their order.
        head = "WARC-Type: conversion\r\n" + _lines(fields)
        return self._record(head, _TEXT, text.encode())

    def _capture_fields(self, kind: str, capture: Capture, identity: str) -> str:
        """Return the fields that the records of a capture share; the second record reuses them."""
        made_of = (capture.url, capture.started, capture.wire, capture.protocol)
        if made_of != self._made_of:
            self._shared = self._about(capture.url, capture.started) + _wire_lines(
                capture.wire, capture.protocol or f"http/{capture.wire.version}"
            )
            self._made_of = made_of
        head = _named(kind, identity) + self._shared
        if capture.tag:
            head += _line(SEED_TAG, capture.tag)
        return head + _line(REDACTED, " ".join(capture.redacted)) if capture.redacted else head

    def _about(self, url: str, started: float) -> str:
        return (
            f"WARC-Date: {warc_date(started)}\r\n"
            f"WARC-Target-URI: {_uri(url)}\r\n"
            f"WARC-Warcinfo-ID: {self._info}\r\n"
        )

    def _digest(self, content: bytes | memoryview) -> str:
        return digest(content, self._algorithm)

    def _record(self, head: str, content: str, block: bytes | memoryview) -> bytes:
        """Return a whole record; ``head`` are the lines before the fields about the block."""
        return b"".join((self._start(head, content, block), block, _END))

    def _start(self, head: str, content: str, block: bytes | memoryview) -> bytes:
        """Return a record up to its block."""
        about = (
            f"WARC/1.1\r\n{head}"
            f"WARC-Block-Digest: {self._digest(block)}\r\n"
            f"Content-Type: {content}\r\n"
            f"Content-Length: {len(block)}\r\n\r\n"
        )
        return about.encode()


def dns_resource(name: str, started: float, addresses: list[tuple[str, float]]) -> Resource:
    """Return an answer of the DNS: its URI (RFC 4501), and lines of a master file (RFC 4027).

    ``addresses`` are each with its time to live, in seconds.

    :raises ValueError: one of them is no address
    """
    name = name.rstrip(".")
    lines = "".join(
        f"{name}.\t{ttl:.0f}\tIN\t{'AAAA' if ':' in address else 'A'}\t{_address(address)}\r\n"
        for address, ttl in addresses
    )
    return Resource(f"dns:{name}", started, "text/dns", lines.encode())


def seeds_resource(text: bytes, started: float, *, truncated: bool = False) -> Resource:
    """Return the seeds that a start of the crawl was given, a seed a line, as they were read."""
    return Resource(SEEDS_URI, started, "text/plain", text, truncated)


def policies_resource(text: bytes, started: float) -> Resource:
    """Return the sheets that are in force from now on, as they were read."""
    return Resource(POLICIES_URI, started, "application/toml", text, truncated=False)


def dom_resource(url: str, started: float, html: bytes, concurrent: str) -> Resource:
    """Return what a page was in the browser. ``concurrent`` is the identity of its response.

    Its URI is not that of the page: replay would show it in place of the response, and run the
    page's scripts on what they have made already.

    :raises ValueError: the URL is no URI
    """
    return Resource(_uri(DOM_URI + url), started, "text/html", html, concurrent=concurrent)


def is_uri(text: str) -> bool:
    """Return whether ``text`` may stand as a URI in a field."""
    return _URI.fullmatch(text) is not None


def _refers_to(original: Original) -> list[tuple[str, str]]:
    fields = [
        ("WARC-Refers-To-Target-URI", _uri(original.url)),
        ("WARC-Refers-To-Date", original.date),
    ]
    return [("WARC-Refers-To", original.identity), *fields] if original.identity else fields


def _is_plain(capture: Capture) -> bool:
    response, payload = capture.response_bytes, capture.payload
    if isinstance(response, bytes):
        return is_plain(response, bytes(payload))
    # Of a mapped response the payload is the end, unless it was in chunks.
    whole = len(response) == capture.head + len(payload)
    return whole and is_plain(bytes(response[: capture.head]), b"")


def _pem(certificate: bytes) -> bytes:
    """Return a certificate in PEM (RFC 7468)."""
    text = b64encode(certificate)
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return b"\n".join((b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""))


def _response_type(capture: Capture) -> str:
    return gemini.RESPONSE if capture.protocol else _RESPONSE


def _wire_lines(wire: Wire, protocol: str) -> str:
    lines = f"WARC-IP-Address: {_address(wire.address)}\r\n" if wire.address is not None else ""
    lines += _line("WARC-Protocol", protocol)
    if wire.tls is not None:
        protocol, cipher = wire.tls
        lines += _line("WARC-Protocol", tls_protocol(protocol))
        lines += _line("WARC-Cipher-Suite", cipher_suite(cipher))
    return lines


def _uri(url: str) -> str:
    if not is_uri(url):
        raise ValueError(f"not an escaped URI of at most {URI_MAX} bytes: {url[:200]!r}")
    return url


@lru_cache(maxsize=_ADDRESSES)
def _address(text: str) -> str:
    # Drop the zone (fe80::1%eth0): it means something on this machine only, and may hold anything.
    return str(ip_address(text.partition("%")[0]))


def _fields_block(fields: list[tuple[str, str]]) -> bytes:
    for name, _ in fields:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"not a field name: {name!r}")
    return _lines(fields).encode()


def _named(kind: str, identity: str) -> str:
    return f"WARC-Type: {kind}\r\n" + _line("WARC-Record-ID", identity)


def _lines(fields: list[tuple[str, str]]) -> str:
    return "".join([_line(name, value) for name, value in fields])


def _line(name: str, value: str) -> str:
    # A printable value has no control character, and `isprintable` is faster than the search.
    if not value.isprintable() and _CONTROL.search(value):
        raise ValueError(f"control character in {name}: {value!r}")
    return f"{name}: {value}\r\n"
