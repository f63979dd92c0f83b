"""What the crawler offers in TLS, and the bounds of the work that a server may cause by it."""

from __future__ import annotations

import ssl
import time

from krowlspider.fetch.errors import TLSFailed

# TLS 1.2: all AES and ChaCha20 suites with a certificate, forward secrecy first, any key size, as
# no certificate is verified. No DHE: the server's modulus may cost a second of CPU.
_CIPHERS = (
    "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:RSA+AESGCM:RSA+AES"
    ":!aNULL:!eNULL:!aDSS:!PSK:!SRP:!AESCCM:@SECLEVEL=0"
)
# SSL_OP_LEGACY_SERVER_CONNECT accepts servers from before RFC 5746. Python names it from 3.12.
_LEGACY_SERVERS = 0x4


def crawler_tls() -> ssl.SSLContext:
    """Return a TLS context that verifies no certificate, as pages behind bad ones count too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= _LEGACY_SERVERS
    context.set_alpn_protocols(["http/1.1"])
    return context


def server_name(host: str) -> str:
    """Return the name for SNI; OpenSSL sends none for an address.

    :raises TLSFailed: SNI cannot carry the name
    """
    # Checked before there is a socket: asyncio would notice only after connecting, and leave it
    # open.
    name = host.rstrip(".")  # RFC 6066, section 3: without the root dot
    try:
        name.encode("idna")
    except UnicodeError as e:
        raise TLSFailed(f"{host}: not a name for TLS: {e}") from e
    return name


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


# Bytes at which a handshake is cut off, and later as many in a row without content. Certificate
# chains of the web have 3 to 10 kB.
BARE_MOST = 32_768
# CPU seconds that a connection may take, and more for each byte of content: a hundred times an
# ordinary handshake, and the cost of records of 30 bytes.
WORK = 0.05
WORK_BYTE = 50e-9


class TlsWork:
    """The bytes and CPU seconds of one connection; ``step`` is the seconds since it was set to 0.

    ``bare`` is the bytes received since the last content.
    """

    def __init__(self) -> None:
        self.bare = 0
        self.step = 0.0
        self._content = 0
        self._spent = 0.0
        # Reading the CPU clock takes ten times as long, so only connections that are not light use
        # it.
        self.timer = time.perf_counter

    @property
    def is_light(self) -> bool:
        """Return whether the server has caused little work so far."""
        return self._spent < WORK / 10 + WORK_BYTE * self._content

    def charge(self, begun: float) -> None:
        """Count the seconds since ``begun``, a time of ``timer``."""
        # Capped, because a garbage collection may fall within it.
        took = min(self.timer() - begun, WORK / 2)
        self.step += took
        self._spent += took
        if self.timer is time.perf_counter and not self.is_light:
            # Wall time may have been spent waiting for the CPU, so measure anew in CPU time.
            self.timer, self._spent = time.thread_time, 0.0

    def add_content(self, size: int) -> None:
        """Count ``size`` bytes of content; 0 for the end of the handshake."""
        self.bare = 0
        self._content += size

    def excess(self) -> str | None:
        """Return why the server must be cut off, or None."""
        if self.bare >= BARE_MOST:
            return f"{self.bare} bytes of TLS without content"
        if self._spent > WORK + WORK_BYTE * self._content:
            spent = f"{1000 * self._spent:.0f} ms of CPU"
            return f"TLS took {spent} for {self._content} bytes of content"
        return None
