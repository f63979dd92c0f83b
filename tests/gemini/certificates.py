"""Self-signed certificates, as capsules have them."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Identity:
    """What the certificate of a host is made of.

    Two with other values are other certificates with other keys. ``name`` is the name in it, "" for
    that of the host. ``begins`` and ``ends`` are days from now.
    """

    generation: int = 0
    name: str = ""
    begins: float = -1.0
    ends: float = 365.0
    tls_1_2: bool = False


def pem_of(host: str, identity: Identity) -> bytes:
    """Return a new key and a certificate that it signs, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = identity.name or host
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    alternative: x509.GeneralName
    try:
        alternative = x509.IPAddress(ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=identity.begins))
        .not_valid_after(now + timedelta(days=identity.ends))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


class Contexts:
    """TLS contexts of servers, one for each host and identity; made when they are first asked."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Identity], ssl.SSLContext] = {}

    def of(self, host: str, identity: Identity) -> ssl.SSLContext:
        """Return the context of a host with an identity."""
        key = (host, identity)
        if key not in self._made:
            self._made[key] = _context(pem_of(host, identity), identity)
        return self._made[key]


def _context(pem: bytes, identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if identity.tls_1_2:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    # OpenSSL reads certificates from files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "both.pem"
        path.write_bytes(pem)
        context.load_cert_chain(path)
    return context
