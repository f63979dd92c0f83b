"""Read from OpenSSL's ClientHello which key exchange the server asked for."""

from __future__ import annotations

_HANDSHAKE, _CLIENT_HELLO = 22, 1
# A record of one byte, sent before the second ClientHello: RFC 8446, appendix D.4.
_CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"
_KEY_SHARE = 51
# ffdhe2048 to ffdhe8192: RFC 7919, section 2.
_FINITE_FIELD = range(0x100, 0x106)


def offers_finite_field(flight: bytes) -> bool:
    """Return whether ``flight`` is a ClientHello with a key share of a finite field.

    ``flight`` is as this side sends it. OpenSSL offers such a key only if the server asked for it
    (RFC 8446, section 4.1.4).
    """
    hello = flight.removeprefix(_CHANGE_CIPHER_SPEC)
    if len(hello) < 6 or hello[0] != _HANDSHAKE or hello[5] != _CLIENT_HELLO:
        return False
    # Skip the headers, version and random bytes; then session, suites and compression, each with
    # its length.
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + _number(hello, at)
    at += 1 + hello[at]
    end = at + 2 + _number(hello, at)
    at += 2
    while at < end:
        kind, length = _number(hello, at), _number(hello, at + 2)
        if kind == _KEY_SHARE:
            return _number(hello, at + 6) in _FINITE_FIELD
        at += 4 + length
    return False


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")
