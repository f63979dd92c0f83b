"""Keys of servers, and certificates of them with any name and validity."""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Key:
    """A key pair, ``private``; each certificate of it is another one."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())

    def certificate(
        self, name: str = "a.test", *, begins: float = -1, ends: float = 365, names: int = 1
    ) -> x509.Certificate:
        """Return a self-signed certificate for ``name``, valid from and to days from now.

        Of its ``names`` all but the first are there to make it large.
        """
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        others = [x509.DNSName(f"{number:058d}.test") for number in range(names - 1)]
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self.private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=begins))
            .not_valid_after(now + timedelta(days=ends))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), *others]), False)
            .sign(self.private, hashes.SHA256())
        )

    def context(self, certificate: x509.Certificate | None = None) -> ssl.SSLContext:
        """Return the context of a server that shows a certificate of this key."""
        shown = self.certificate() if certificate is None else certificate
        private = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # OpenSSL reads certificates from files only.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            path.write_bytes(private + shown.public_bytes(Encoding.PEM))
            context.load_cert_chain(path)
        return context


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
