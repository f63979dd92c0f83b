"""The objects handed to the archive, and the names of TLS that WARC fields have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.archive.payloads.digests import Original

# OpenSSL's names before TLS 1.3: key exchange, signature, cipher, cipher mode, hash.
_BEFORE_1_3 = re.compile(
    r"(?:(ECDHE|DHE)-(ECDSA|RSA)-)?(AES)(128|256)(?:-(GCM))?-(SHA(?:256|384)?)"
    r"|(ECDHE|DHE)-(ECDSA|RSA)-(CHACHA20-POLY1305)"
)


class Wire(NamedTuple):
    """How the messages of a capture travelled.

    ``address`` is the origin's IP address as text, None if a proxy hides it. ``version`` is that of
    HTTP. ``tls`` is the protocol and the cipher by OpenSSL's names, None for plain HTTP.
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


class Capture(Struct, eq=False):
    """One HTTP exchange as it was on the wire.

    ``identity`` is the WARC-Record-ID of the response. ``url`` is escaped, without whitespace. The
    first ``head`` bytes of the response are status line, headers and the blank line. ``payload`` is
    the entity: after transfer decoding, before content decoding. ``media_type`` is the value of
    Content-Type, ``""`` without one. ``started`` is in seconds since the epoch. ``truncated`` is
    ``""``, or why the response is not whole: ``"length"``, ``"time"``, ``"disconnect"``.

    Of a large response ``response_bytes`` and ``payload`` are empty until the writer calls
    ``stored``, which returns both from a file of ``stored_size`` bytes. The writer fills
    ``receipt``, if there is one, before the record's future is set.

    ``original`` is the record that an answer 304 confirms. ``says_nothing``: it is a 304 that
    confirms none, and is stored as a response.
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
    """The content of a resource record: the seeds of a start, or an answer of the DNS.

    ``started`` is in seconds since the epoch. ``truncated`` is whether ``block`` is only the
    beginning.
    """

    url: str
    started: float
    media_type: str
    block: bytes
    truncated: bool = False


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
