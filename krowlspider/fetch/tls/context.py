"""What the crawler offers in TLS."""

from __future__ import annotations

import ssl

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
