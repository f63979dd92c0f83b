"""The certificates that the proxy shows to the browser. Their key stays in memory.

The browser trusts this one key (`Certificates.pin`), and no authority is made that others might
trust. What origins show is another matter: it is in their records.
"""

from __future__ import annotations

import datetime
import hashlib
from base64 import b64encode
from functools import lru_cache
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from OpenSSL import SSL

# Hosts whose contexts are kept; each takes 30 kB.
_HOSTS = 256
_DAY = datetime.timedelta(days=1)
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "krowlspider")])


class Certificates:
    """Makes a certificate for each host, all with one new key.

    ``pin`` names the key as Chromium's ``--ignore-certificate-errors-spki-list`` does.
    """

    def __init__(self) -> None:
        self._key = generate_private_key(SECP256R1())
        public = self._key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        self.pin = b64encode(hashlib.sha256(public).digest()).decode()
        self.context = lru_cache(maxsize=_HOSTS)(self._context)
        """Return the TLS context for connections to a host.

        :raises ValueError: it is no name for a certificate
        """

    def _context(self, host: str) -> SSL.Context:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.use_privatekey(self._key)
        context.use_certificate(self._certificate(host))
        return context

    def _certificate(self, host: str) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(subject_name=_NAME, issuer_name=_NAME)
        return (
            builder.public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 365 * _DAY)
            .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
            .sign(self._key, SHA256())
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
