"""WARC/1.1 records as bytes (ISO 28500:2017); pure: ids and dates are handed in.

Every value is made here, or is a digest, or goes through `_line` or a stricter check: none has a
control character, so nothing taken from the network can begin a field or a record of its own.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from krowlspider.archive.digests import digest
from krowlspider.archive.payload import is_plain
from krowlspider.archive.tlsnames import cipher_suite, protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.archive.capture import Capture, NameAnswer, Note
    from krowlspider.archive.payloadindex import Original

# In UTC; a datetime that knows so writes it out, which takes longer.
_EPOCH = datetime(1970, 1, 1)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# WARC 1.1, 5.12: escaped by RFC 3986, so printable ASCII without whitespace. Readers take a header
# of 32 KiB (fastwarc); half of that is left to the other fields.
_URI = re.compile(r"[!-~]{1,16384}")
# WARC 1.1, 4 "token": no control characters, no separators.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# An IPv4 address as `ip_address` writes it, which takes four times as long to say so.
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}")
# WARC 1.1, 5.13: the reasons that a crawler can know.
_TRUNCATED = frozenset({"length", "time", "disconnect"})
# WARC 1.1, 6.7.2 and 6.7.3.
_IDENTICAL = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_FORMAT = {
    "format": "WARC File Format 1.1",
    "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
}
_FIELDS = "application/warc-fields"
_RESPONSE = "application/http; msgtype=response"
_REQUEST = "application/http; msgtype=request"
DNS = "text/dns"


def record_id(entropy: bytes) -> str:
    """The WARC-Record-ID (a version 4 UUID) made of 16 random bytes."""
    digits = entropy.hex()
    # RFC 9562, 5.4: the version and the variant take the place of six bits.
    variant = "89ab"[entropy[8] >> 4 & 3]
    return (
        f"<urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[13:16]}"
        f"-{variant}{digits[17:20]}-{digits[20:]}>"
    )


# A capture's is asked for by both records, the payload index and the index line.
@lru_cache(maxsize=2)
def warc_date(epoch: float) -> str:
    """The WARC-Date, in UTC with microseconds, of a time in seconds since the epoch.

    Raises ValueError when the time is not a number or lies outside the years 1 to 9999.
    """
    try:
        moment = _EPOCH + timedelta(seconds=epoch)
    except OverflowError as error:
        raise ValueError(f"not a time: {epoch!r}") from error
    return moment.isoformat(timespec="microseconds") + "Z"


def info_block(fields: Mapping[str, str]) -> bytes:
    """The block of a warcinfo record: ``fields``, then the format it conforms to.

    Raises ValueError when a name is not a token or a value holds a control character.
    """
    return _fields_block([*(dict(fields) | _FORMAT).items()])


class RecordMaker:
    """The records of one file, of which ``info`` is the id of the warcinfo record; ``algorithm`` is that of digests.

    What cannot stand in a record (a URL, an address, a reason) raises ValueError.
    """

    def __init__(self, info: str, algorithm: str):
        self._info = info
        self._algorithm = algorithm
        # The fields that both records of a capture have, kept from the first for the second, and what they say.
        self._common = ""
        self._said: object = None

    def warcinfo(self, block: bytes, *, date: str, filename: str) -> bytes:
        """The warcinfo record that begins the file ``filename``."""
        fields = [("WARC-Date", date), ("WARC-Filename", filename)]
        head = _named("warcinfo", self._info) + _lines(fields)
        return self._record(head, _FIELDS, block)

    def response(self, capture: Capture, payload: str) -> bytes:
        """The response record of a capture; ``payload`` is the labelled digest of its payload."""
        head = self._exchanged("response", capture, capture.identity)
        # Of a chunked response the standard digests the entity, warcio the chunks, and of an irregular
        # head tools disagree where it ends: whichever digest stood here, one of them would call the
        # record broken. The block digest guards it.
        if is_plain(capture.response_bytes, capture.payload):
            head += f"WARC-Payload-Digest: {payload}\r\n"
        if capture.truncated:
            head += f"WARC-Truncated: {_reason(capture.truncated)}\r\n"
        return self._record(head, _RESPONSE, capture.response_bytes)

    def revisit(self, capture: Capture, payload: str, original: Original) -> bytes:
        """The revisit record of a capture whose payload ``original`` holds: its head alone (WARC 1.1, 6.7.2)."""
        fields = [
            ("WARC-Profile", _IDENTICAL),
            ("WARC-Payload-Digest", payload),
            ("WARC-Refers-To-Target-URI", _uri(original.url)),
            ("WARC-Refers-To-Date", original.date),
            # As 6.7.2 has it where a block stands without its payload.
            ("WARC-Truncated", "length"),
        ]
        head = self._exchanged("revisit", capture, capture.identity) + _lines(fields)
        return self._record(head, _RESPONSE, capture.response_bytes[: capture.head])

    def not_modified(self, capture: Capture) -> bytes:
        """The revisit record of an answer 304 (WARC 1.1, 6.7.3), whatever the condition was held against."""
        head = self._exchanged("revisit", capture, capture.identity)
        head += _line("WARC-Profile", _NOT_MODIFIED)
        return self._record(head, _RESPONSE, capture.response_bytes)

    def request(self, capture: Capture, identity: str) -> bytes:
        """The request record of a capture.

        The association with the response stands on this record only, which WARC 1.1, 5.7 takes as bidirectional: a
        file cut between the two then names no record that is not there.
        """
        head = self._exchanged("request", capture, identity)
        head += _line("WARC-Concurrent-To", capture.identity)
        # A request that we sent has CRLF line ends and no transfer coding.
        if body := capture.request_bytes.partition(b"\r\n\r\n")[2]:
            head += f"WARC-Payload-Digest: {self._digest(body)}\r\n"
        return self._record(head, _REQUEST, capture.request_bytes)

    def metadata(self, note: Note, identity: str) -> bytes:
        """The metadata record of a note (WARC 1.1, 6.6)."""
        head = _named("metadata", identity) + self._about(note.url, note.started)
        if note.concurrent is not None:
            head += _line("WARC-Concurrent-To", note.concurrent)
        return self._record(head, _FIELDS, _fields_block(note.fields))

    def resource(self, answer: NameAnswer, identity: str) -> bytes:
        """The resource record of an answer of the DNS."""
        block = dns_lines(answer)
        head = _named("resource", identity) + self._about(dns_uri(answer.name), answer.started)
        head += f"WARC-Payload-Digest: {self._digest(block)}\r\n"
        return self._record(head, DNS, block)

    def _exchanged(self, kind: str, capture: Capture, identity: str) -> str:
        """The first fields of a record of what was on the wire."""
        said = (capture.url, capture.started, capture.address, capture.version, capture.tls)
        if said != self._said:
            self._common = self._wire(capture)
            self._said = said
        return _named(kind, identity) + self._common

    def _wire(self, capture: Capture) -> str:
        lines = self._about(capture.url, capture.started)
        lines += f"WARC-IP-Address: {_address(capture.address)}\r\n"
        lines += _line("WARC-Protocol", f"http/{capture.version}")
        if capture.tls is not None:
            version, cipher = capture.tls
            lines += _line("WARC-Protocol", protocol(version))
            lines += _line("WARC-Cipher-Suite", cipher_suite(cipher))
        return lines

    def _about(self, url: str, started: float) -> str:
        return (
            f"WARC-Date: {warc_date(started)}\r\n"
            f"WARC-Target-URI: {_uri(url)}\r\n"
            f"WARC-Warcinfo-ID: {self._info}\r\n"
        )

    def _digest(self, content: bytes) -> str:
        return digest(content, self._algorithm)

    def _record(self, head: str, content: str, block: bytes) -> bytes:
        """A record of the lines ``head``, then those that tell of its block."""
        about = (
            f"WARC/1.1\r\n{head}"
            f"WARC-Block-Digest: {self._digest(block)}\r\n"
            f"Content-Type: {content}\r\n"
            f"Content-Length: {len(block)}\r\n\r\n"
        )
        return b"".join((about.encode(), block, b"\r\n\r\n"))


def dns_uri(name: str) -> str:
    """The URI of a name in the DNS (RFC 4501)."""
    return f"dns:{name.rstrip('.')}"


def dns_lines(answer: NameAnswer) -> bytes:
    """An answer as lines of a master file (RFC 4027)."""
    name = answer.name.rstrip(".")
    return "".join(
        f"{name}.\t{ttl:.0f}\tIN\t{'AAAA' if ':' in address else 'A'}\t{_address(address)}\r\n"
        for address, ttl in answer.addresses
    ).encode()


def is_uri(text: str) -> bool:
    """Whether a text can stand as a URI in a field."""
    return _URI.fullmatch(text) is not None


def _uri(url: str) -> str:
    if not _URI.fullmatch(url):
        raise ValueError(f"not an escaped URI of at most 16384 bytes: {url[:200]!r}")
    return url


def _address(text: str) -> str:
    # A zone (fe80::1%eth0) is a word of this machine, of any characters.
    return text if _IPV4.fullmatch(text) else str(ip_address(text.partition("%")[0]))


def _reason(truncated: str) -> str:
    if truncated not in _TRUNCATED:
        raise ValueError(f"not a reason for truncation: {truncated!r}")
    return truncated


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
    # What is printable has no control character; to search it takes ten times as long.
    if not value.isprintable() and _CONTROL.search(value):
        raise ValueError(f"control character in {name}: {value!r}")
    return f"{name}: {value}\r\n"
