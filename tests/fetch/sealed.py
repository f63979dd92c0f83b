"""Records of TLS 1.3 sealed by hand, to send what no library sends (RFC 8446)."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

if TYPE_CHECKING:
    from pathlib import Path

HANDSHAKE, CONTENT = 22, 23


class Sealer:
    """Seals the records of a server after the handshake. ``log`` is the file of secrets of its
    SSLContext, whose ``num_tickets`` must be 0."""

    def __init__(self, log: Path) -> None:
        lines = [line.split() for line in log.read_text().splitlines()]
        self._secret = bytes.fromhex(
            [words[2] for words in lines if words[0] == "SERVER_TRAFFIC_SECRET_0"][-1]
        )
        self._renew()

    def seal(self, kind: int, data: bytes, padding: int = 0) -> bytes:
        """Return one record."""
        inner = data + bytes([kind]) + bytes(padding)
        head = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (self._iv ^ self._count).to_bytes(12, "big")
        self._count += 1
        return head + self._cipher.encrypt(nonce, inner, head)

    def content(self, data: bytes, most: int = 16_384) -> bytes:
        """Return the content in records of at most ``most`` bytes."""
        pieces = (data[start : start + most] for start in range(0, len(data), most))
        return b"".join(self.seal(CONTENT, piece) for piece in pieces)

    def key_update(self) -> bytes:
        """Change the keys and ask the other side to change its own (section 4.6.3)."""
        record = self.seal(HANDSHAKE, b"\x18\x00\x00\x01\x01")
        self._secret = self._expand(b"traffic upd", len(self._secret))
        self._renew()
        return record

    def ticket(self) -> bytes:
        """Return a session ticket, which no client here uses (section 4.6.1)."""
        body = struct.pack(">IIB", 100, 5, 1) + b"x" + b"\x00\x01t" + b"\x00\x00"
        return self.seal(HANDSHAKE, b"\x04" + len(body).to_bytes(3, "big") + body)

    def _renew(self) -> None:
        self._cipher = AESGCM(self._expand(b"key", 32 if len(self._secret) == 48 else 16))
        self._iv = int.from_bytes(self._expand(b"iv", 12), "big")
        self._count = 0

    def _expand(self, label: bytes, length: int) -> bytes:
        """Return HKDF-Expand-Label without a context (section 7.1)."""
        algorithm = hashes.SHA384() if len(self._secret) == 48 else hashes.SHA256()
        label = b"tls13 " + label
        info = struct.pack(">HB", length, len(label)) + label + b"\x00"
        return HKDFExpand(algorithm, length, info).derive(self._secret)


def hello_retry(hello: bytes, group: int) -> bytes:
    """Return a server's request for a key of ``group`` (RFC 8446, section 4.1.4)."""
    session = hello[43 : 44 + hello[43]]
    versions = b"\x00\x2b\x00\x02\x03\x04"
    wanted = b"\x00\x33\x00\x02" + group.to_bytes(2, "big")
    extensions = (len(versions + wanted)).to_bytes(2, "big") + versions + wanted
    asking = hashlib.sha256(b"HelloRetryRequest").digest()
    body = b"\x03\x03" + asking + session + b"\x13\x01\x00" + extensions
    message = b"\x02" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x03" + len(message).to_bytes(2, "big") + message


def by_bytes(flight: bytes) -> bytes:
    """Return the plain records of a flight, cut into records of one byte."""
    parts = []
    while flight:
        end = 5 + int.from_bytes(flight[3:5], "big")
        parts += [flight[:3] + b"\x00\x01" + bytes([byte]) for byte in flight[5:end]]
        flight = flight[end:]
    return b"".join(parts)
