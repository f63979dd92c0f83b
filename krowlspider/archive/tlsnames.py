"""What OpenSSL calls protocols and cipher suites, in the words of the archive."""

from __future__ import annotations

import re

# Key exchange, signature, cipher, its mode, hash.
_BEFORE_1_3 = re.compile(
    r"(?:(ECDHE|DHE)-(ECDSA|RSA)-)?(AES)(128|256)(?:-(GCM))?-(SHA(?:256|384)?)"
    r"|(ECDHE|DHE)-(ECDSA|RSA)-(CHACHA20-POLY1305)"
)


def protocol(name: str) -> str:
    """``TLSv1.3`` as ``tls/1.3``, a value of WARC-Protocol (IIPC, WARC-Protocol 1.0)."""
    return "tls/" + (name.removeprefix("TLSv") if "." in name else "1.0")


def cipher_suite(name: str) -> str:
    """The name in IANA's registry of a suite that this crawler offers, a value of WARC-Cipher-Suite (IIPC); one
    that it does not offer as it is."""
    found = _BEFORE_1_3.fullmatch(name)
    if found is None:
        return name
    exchange, signature, aes, bits, mode, mac, *chacha = found.groups()
    if aes:
        kind = f"{exchange}_{signature}" if exchange else "RSA"
        return f"TLS_{kind}_WITH_AES_{bits}_{mode or 'CBC'}_{mac}"
    return f"TLS_{chacha[0]}_{chacha[1]}_WITH_CHACHA20_POLY1305_SHA256"
