"""Translate OpenSSL's names of protocols and cipher suites to the values of WARC fields."""

from __future__ import annotations

import re

# OpenSSL's names before TLS 1.3: key exchange, signature, cipher, cipher mode, hash.
_BEFORE_1_3 = re.compile(
    r"(?:(ECDHE|DHE)-(ECDSA|RSA)-)?(AES)(128|256)(?:-(GCM))?-(SHA(?:256|384)?)"
    r"|(ECDHE|DHE)-(ECDSA|RSA)-(CHACHA20-POLY1305)"
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
