"""Certificates of Gemini servers: trusted on first use, then expected at every connection.

A server is known by its host and port, a certificate by its public key: whoever renews the
certificate and keeps the key is the same server. The digest of the whole certificate is kept too,
so that one that has not changed is not parsed.
"""

from __future__ import annotations

import warnings
from enum import Enum
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from krowlspider.fetch.errors import CertificateRefused, LocalExhausted
from krowlspider.frontier.store.schema import CERTIFICATE, certificate_key
from krowlspider.frontier.store.store import STORE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.store.store import Store

# Servers whose certificates are kept, of about 100 bytes each. Nothing is known of further ones.
MOST = 1_000_000
# Whether its record is in the archive; digests of the certificate and of its public key; the end of
# its validity in seconds since the epoch.
_PIN = Struct(">?32s32sq")
_COUNT = Struct(">Q")
# The end of the validity of a certificate that cannot be read.
NEVER = 2**62


class Pin(NamedTuple):
    """What is kept of the certificate of a server. ``ends`` is in seconds since the epoch."""

    is_recorded: bool
    digest: bytes
    key: bytes
    ends: int


class PinMatch(Enum):
    """What a certificate is to a server's pin. The values are words for counters."""

    SAME = "same"
    FIRST = "first"
    RENEWED = "renewed"
    """Another certificate of the same public key."""
    AFTER_EXPIRY = "after_expiry"
    """Another key, when the certificate before it had expired."""
    ACCEPTED = "accepted"
    """Another key, by the policy."""
    REFUSED = "refused"


def judge(pin: Pin | None, shown: Pin, now: float, *, accepts_changes: bool) -> PinMatch:
    """Return what a certificate is to what was known of its server; ``now`` is an epoch time.

    Gemini network protocol specification 0.24.1: another certificate is evidence of an attack while
    the certificate before it has not expired.
    """
    if pin is None:
        return PinMatch.FIRST
    if shown.digest == pin.digest:
        return PinMatch.SAME
    if shown.key == pin.key:
        return PinMatch.RENEWED
    if now > pin.ends:
        return PinMatch.AFTER_EXPIRY
    return PinMatch.ACCEPTED if accepts_changes else PinMatch.REFUSED


def pin_of(certificate: bytes) -> Pin:
    """Return what is kept of a certificate in DER.

    One that cannot be parsed is its own key, and does not expire.
    """
    digest = sha256(certificate).digest()
    try:
        with warnings.catch_warnings():
            # They tell of certificates that later versions will not parse.
            warnings.simplefilter("ignore")
            parsed = x509.load_der_x509_certificate(certificate)
            ends = int(parsed.not_valid_after_utc.timestamp())
            key = parsed.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, OverflowError, UnsupportedAlgorithm):
        return Pin(is_recorded=False, digest=digest, key=digest, ends=NEVER)
    return Pin(is_recorded=False, digest=digest, key=sha256(key).digest(), ends=ends)


class CertificatePins:
    """The certificates of at most ``most`` servers, in the store of the frontier.

    ``accepts_changes`` is the policy for another key before the certificate has expired. ``wall``
    returns the epoch time. ``count`` is called with the word of each judgement but SAME, and with
    "unknown" where there is no room for a first certificate.

    A pin is durable with the next commit. One that a power loss takes is a first use again.
    """

    def __init__(
        self,
        store: Store,
        *,
        accepts_changes: bool,
        wall: Callable[[], float],
        count: Callable[[str], None],
        most: int = MOST,
    ) -> None:
        self._store = store
        self._accepts_changes = accepts_changes
        self._wall = wall
        self._count = count
        self._most = most
        counted = store.get(CERTIFICATE)
        self.kept: int = 0 if counted is None else _COUNT.unpack(counted)[0]

    def check(self, server: str, certificate: bytes | None) -> PinMatch:
        """Judge the certificate in DER that a server shows, and keep it unless it is refused.

        ``server`` is a host and its port.

        :raises CertificateRefused: it is another one than before, or there is none
        :raises LocalExhausted: the store cannot be read or written
        """
        if certificate is None:
            raise CertificateRefused(f"{server} shows no certificate")
        try:
            return self._judged(server, certificate)
        except STORE_ERRORS as error:
            raise LocalExhausted(f"certificates cannot be kept: {error}") from error

    def lacks_record(self, server: str, certificate: bytes) -> bool:
        """Return whether this certificate of a server is kept and has no record in the archive."""
        pin = self._pin(server)
        return (
            pin is not None and not pin.is_recorded and pin.digest == sha256(certificate).digest()
        )

    def recorded(self, server: str, certificate: bytes) -> None:
        """Note that the archive has the record of a certificate."""
        pin = self._pin(server)
        if pin is not None and pin.digest == sha256(certificate).digest():
            self._put(server, pin._replace(is_recorded=True))

    def _judged(self, server: str, certificate: bytes) -> PinMatch:
        pin = self._pin(server)
        if pin is not None and pin.digest == sha256(certificate).digest():
            return PinMatch.SAME
        shown = pin_of(certificate)
        trust = judge(pin, shown, self._wall(), accepts_changes=self._accepts_changes)
        if trust is PinMatch.FIRST and self.kept >= self._most:
            self._count("unknown")
            return trust
        self._count(trust.value)
        if trust is PinMatch.REFUSED:
            raise CertificateRefused(
                f"{server} shows another certificate than before, whose validity has not ended:"
                " perhaps somebody else answers in its place. KROWL_GEMINI_CERTIFICATES=accept"
                " accepts it"
            )
        self._put(server, shown, is_new=trust is PinMatch.FIRST)
        return trust

    def _pin(self, server: str) -> Pin | None:
        value = self._store.get(certificate_key(server))
        return None if value is None else Pin(*_PIN.unpack(value))

    def _put(self, server: str, pin: Pin, *, is_new: bool = False) -> None:
        batch = self._store.batch()
        batch.put(certificate_key(server), _PIN.pack(*pin))
        if is_new:
            batch.put(CERTIFICATE, _COUNT.pack(self.kept + 1))
        batch.write()
        self.kept += is_new
