"""Sign requests, so that a site can verify who crawls it (Web Bot Auth).

HTTP message signatures of RFC 9421 in the profile of draft-meunier-webbotauth-httpsig-protocol-02,
which replaces the drafts web-bot-auth-architecture and http-message-signatures-directory. The key
is Ed25519; its id is the JWK thumbprint of RFC 7638 and RFC 8037, appendix A.3.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from krowlspider.fetch.clock_check import ClockCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krowlspider.fetch.errors import Headers
    from krowlspider.fetch.http.head import Target

logger = logging.getLogger(__name__)

TAG = "web-bot-auth"
DIRECTORY_TAG = "http-message-signatures-directory"
DIRECTORY_PATH = f"/.well-known/{DIRECTORY_TAG}"
DIRECTORY_TYPE = f"application/{DIRECTORY_TAG}+json"
# The word of KROWL_SIGN for all requests.
ALWAYS = "always"
# Answers to an unsigned request after which its host is signed for.
CHALLENGES = frozenset({401, 403, 429})
# Answers by which a site refuses a request that was signed.
REFUSALS = frozenset({401, 403})
# Hosts that have asked; about 500 bytes each at most. The oldest are forgotten and may ask again.
HOSTS_MAX = 65_536
_LABEL = "sig1"
_NONCE_BYTES = 64
_KEY_FILE_MAX = 65_536
_NEW_KEY = "make one with `scrapy identity --new FILE`"
# Public by RFC 9421, appendix B.1.4, and RFC 8037, appendix A.1: whoever reads it can sign with it.
_EXAMPLES = frozenset(
    {
        "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs",
        "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    }
)


class SigningKey:
    """An Ed25519 private key. ``not_before`` and ``expires`` are epoch seconds.

    ``public`` is the public key and ``keyid`` its thumbprint, both in base64url.
    """

    def __init__(self, private: Ed25519PrivateKey, not_before: float = 0.0, expires: float = inf):
        self._private = private
        self.not_before = not_before
        self.expires = expires
        self.public = _encoded(private.public_key().public_bytes_raw())
        # RFC 7638, section 3: the required members in order, without white space.
        required = json.dumps(
            {"crv": "Ed25519", "kty": "OKP", "x": self.public}, separators=(",", ":")
        )
        self.keyid = _encoded(sha256(required.encode()).digest())

    @classmethod
    def new(cls) -> SigningKey:
        return cls(Ed25519PrivateKey.generate())

    def sign(self, base: str) -> bytes:
        return self._private.sign(base.encode())

    def pem(self) -> bytes:
        """Return the private key as PEM (PKCS #8)."""
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def jwk(self) -> dict[str, Any]:
        """Return the public key as an entry of the directory."""
        found: dict[str, Any] = {"kty": "OKP", "crv": "Ed25519", "kid": self.keyid}
        found |= {"x": self.public, "use": "sig"}
        found |= {"nbf": int(self.not_before)} if self.not_before else {}
        return found | ({"exp": int(self.expires)} if self.expires != inf else {})


def read_key(path: str | Path, now: float) -> SigningKey:
    """Return the private key in a file: PEM (PKCS #8) or a JWK. ``now`` is epoch seconds.

    :raises ValueError: it is no Ed25519 key, or one that may not be used now; the message is to be
        read after the name of the file, and has the way out
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_KEY_FILE_MAX)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    key = _from_jwk(data) if data.lstrip().startswith(b"{") else _from_pem(data)
    if key.public in _EXAMPLES:
        raise ValueError(f"is the example key of an RFC, which everybody has: {_NEW_KEY}")
    if now >= key.expires:
        raise ValueError(f"is a key that has expired (exp {key.expires:.0f}): {_NEW_KEY}")
    if now < key.not_before:
        raise ValueError(
            f"is a key that is not valid yet (nbf {key.not_before:.0f}): wait, correct the clock of"
            f" this machine, or {_NEW_KEY}"
        )
    return key


def _from_pem(data: bytes) -> SigningKey:
    try:
        private = load_pem_private_key(data, None)
    except TypeError as error:
        raise ValueError(
            "is encrypted: decrypt it with `openssl pkey -in FILE -out NEW`"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(
            f"is neither a private key as PEM (PKCS #8) nor a JWK: {_NEW_KEY}"
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        kind = type(private).__name__.removesuffix("PrivateKey").strip("_")
        raise ValueError(  # noqa: TRY004 - the content of a file
            f"is a key of the type {kind}, not Ed25519: {_NEW_KEY}"
        )
    return SigningKey(private)


def _from_jwk(data: bytes) -> SigningKey:
    try:
        jwk = json.loads(data)
        kind = jwk.get("kty"), jwk.get("crv")
        if kind != ("OKP", "Ed25519"):
            raise ValueError(
                f"is a JWK of the type {kind[0]!r}, {kind[1]!r}, not Ed25519: {_NEW_KEY}"
            )
        if "d" not in jwk:
            raise ValueError(f"is a public key: give the private one, with d, or {_NEW_KEY}")
        seed = urlsafe_b64decode(jwk["d"] + "==")
        times = float(jwk.get("nbf", 0)), float(jwk.get("exp", inf))
        if not all(isfinite(float(jwk[name])) for name in ("nbf", "exp") if name in jwk):
            raise ValueError("nbf and exp are seconds since 1970")
        key = SigningKey(Ed25519PrivateKey.from_private_bytes(seed), *times)
    except (
        *(TypeError, AttributeError, KeyError, RecursionError, OverflowError),
        json.JSONDecodeError,
    ) as error:
        raise ValueError(f"is not a JWK (RFC 8037): {_NEW_KEY}") from error
    except ValueError as error:
        if str(error).startswith("is "):
            raise
        raise ValueError(f"is not a JWK (RFC 8037): {error}; {_NEW_KEY}") from error
    if jwk.get("x", key.public) != key.public:
        raise ValueError(f"is a JWK whose x is not the public key of its d: {_NEW_KEY}")
    return key


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def agent_origin(text: str) -> str:
    """Return the origin of the directory that a URL names (the draft's type ``directory``).

    :raises ValueError: it is no https origin, nor the URL of the directory there
    """
    found = _AGENT.fullmatch(text)
    if found is None or int(found[2] or 1) not in range(1, 65_536):
        raise ValueError(
            "is not the https origin that serves the directory, such as https://bot.example.org"
        )
    return found[1]


_AGENT = re.compile(
    rf"(https://[a-z0-9._-]+(?::([0-9]{{1,5}}))?)(?:/|{re.escape(DIRECTORY_PATH)})?"
)


def parameters(values: Mapping[str, int | str]) -> str:
    """Return the parameters of a signature in their order (RFC 9651, section 4.1.1.2)."""
    return "".join(
        f";{name}={value}" if isinstance(value, int) else f';{name}="{value}"'
        for name, value in values.items()
    )


def signed(
    key: SigningKey, label: str, components: Sequence[tuple[str, str]], params: str
) -> tuple[str, str]:
    """Return the values of Signature-Input and Signature (RFC 9421, sections 2.5 and 3.1).

    A component is its identifier as it is serialized, and its value. ``params`` is as of
    `parameters`.
    """
    covered = f"({' '.join(identifier for identifier, _ in components)}){params}"
    lines = [f"{identifier}: {value}" for identifier, value in components]
    base = "\n".join([*lines, f'"@signature-params": {covered}'])
    return f"{label}={covered}", f"{label}=:{b64encode(key.sign(base)).decode()}:"


def directory_of(keys: Sequence[SigningKey]) -> bytes:
    """Return the directory, to be served at `DIRECTORY_PATH` byte for byte."""
    return json.dumps({"keys": [key.jwk() for key in keys]}, separators=(",", ":")).encode()


def directory_headers(
    keys: Sequence[SigningKey], body: bytes, authority: str, created: int, expires: int
) -> list[tuple[str, str]]:
    """Return the headers by which a directory proves that its server holds its keys.

    Appendix "Possession Proof on the Directory Response" of the draft; Content-Digest is of
    RFC 9530. ``authority`` is that of the request for the directory.
    """
    digest = f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"
    components = [('"@authority";req', authority), ('"content-digest"', digest)]
    given, signatures = [], []
    for number, key in enumerate(keys):
        values: dict[str, int | str] = {"created": created, "expires": expires}
        values |= {"keyid": key.keyid, "tag": DIRECTORY_TAG}
        made = signed(key, f"binding{number or ''}", components, parameters(values))
        given.append(made[0])
        signatures.append(made[1])
    return [
        ("Content-Type", DIRECTORY_TYPE),
        ("Content-Digest", digest),
        ("Signature-Input", ", ".join(given)),
        ("Signature", ", ".join(signatures)),
    ]


class Challenge(NamedTuple):
    """What a site asks of a signature, besides what each has: label, further derived components,
    and a nonce for the next one; "" for none."""

    label: str = _LABEL
    components: tuple[str, ...] = ()
    nonce: str = ""


# Derived components of a request that can be signed (RFC 9421, section 2.2).
_DERIVED: dict[str, Callable[[Target, str], str]] = {
    "@method": lambda target, method: method,
    "@authority": lambda target, method: target.authority.decode(),
    "@scheme": lambda target, method: target.origin.scheme,
    "@target-uri": lambda target, method: (
        f"{target.origin.scheme}://{target.authority.decode()}{target.path.decode()}"
    ),
    "@request-target": lambda target, method: target.path.decode(),
    "@path": lambda target, method: target.path.decode().partition("?")[0],
    "@query": lambda target, method: f"?{target.path.decode().partition('?')[2]}",
}
# Covered by each signature: without method and path, whoever sees it could reuse it for any page
# of the site until it expires.
_COVERED = ("@authority", "@method", "@path")

# Hosts that are named as they wait for a key.
_NAMED = 5
# Characters of Accept-Signature that are read. An ordinary one has 200.
_ASKED_MAX = 2000
# A member of the dictionary: label, components, parameters (RFC 9421, section 5.1).
_MEMBER = re.compile(
    r"[ \t]*+([a-z*][a-z0-9_.*-]*+)=\(([^()]*+)\)([^,\"]*+(?:\"[^\"]*+\"[^,\"]*+)*+)(?:,|\Z)"
)
_COMPONENT = re.compile(r'"([^"]*+)"((?:;[ ]*+[a-z0-9_.*-]++(?:=(?:"[^"]*+"|[^\s;"]*+))?+)*+)')
_PARAMETER = re.compile(r';[ \t]*+([a-z*][a-z0-9_.*-]*+)="([^"\\]*+)"')
_LABEL_MAX = 32
_NONCE_MAX = 256


def asked_in(value: str, keyid: str) -> Challenge | None:
    """Return the signature that Accept-Signature asks for; None if it asks for another one.

    Components that only a response has, and fields, are left out: the site may refuse the signature
    for that.
    """
    value = value[:_ASKED_MAX]
    place = 0
    while (member := _MEMBER.match(value, place)) is not None:
        label, inside, rest = member.groups()
        given = dict(_PARAMETER.findall(rest))
        if given.get("tag", TAG) == TAG and given.get("keyid", keyid) == keyid:
            asked = {name for name, more in _COMPONENT.findall(inside) if not more}
            nonce = given.get("nonce", "")
            return Challenge(
                label if len(label) <= _LABEL_MAX else _LABEL,
                tuple(name for name in _DERIVED if name in asked and name not in _COVERED),
                nonce
                if len(nonce) <= _NONCE_MAX and nonce.isprintable() and nonce.isascii()
                else "",
            )
        place = member.end()
    return None


class Signer:
    """Signs the requests to the hosts that ask for it, or to all hosts.

    ``agent`` is the origin of the directory, ``life`` the seconds until a signature expires,
    ``wall`` a clock in epoch seconds, ``monotonic`` one that nobody sets. The last
    hosts that have asked are known by their names.
    """

    def __init__(
        self,
        key: SigningKey,
        agent: str,
        *,
        always: bool,
        life: float,
        wall: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        nonce: Callable[[int], bytes] = secrets.token_bytes,
    ):
        self._key = key
        self._agent = agent
        self._always = always
        self._life = max(1, int(life))
        self._wall = wall
        self._nonce = nonce
        self._hosts: dict[str, Challenge] = {}
        # Hosts that were named as they wait for a key.
        self._named = 0
        self._clock = ClockCheck(self._life, wall, monotonic)

    def signs(self, host: str) -> bool:
        """Return whether requests to a host are signed now."""
        return (self._always or host in self._hosts) and not self._why_not()

    def knows(self, host: str) -> bool:
        """Return whether a host has asked for signatures."""
        return host in self._hosts

    def recall(self, host: str) -> None:
        """Take a host as one that has asked for signatures before."""
        if host not in self._hosts:
            self._learn(host, Challenge())

    def _why_not(self) -> str:
        """Return why nothing can be signed; "" if it can."""
        if self._wall() >= self._key.expires:
            return "the key has expired"
        return "the clock of this machine is wrong" if self._clock.is_off else ""

    def fault(self, host: str) -> str:
        """Return why a host that gets signed requests can have none now; "" for all others."""
        return self._why_not() if self._always or host in self._hosts else ""

    def warn_of(self, host: str) -> None:
        """Log that a host waits for a key. The first hosts are named. That the clock is wrong was
        logged when that was found."""
        if self._wall() < self._key.expires:
            return
        self._named += 1
        if self._named <= _NAMED:
            last = "; further hosts are not named" if self._named == _NAMED else ""
            logger.error(
                "The key of KROWL_SIGN_KEY has expired: %s gets signed requests, and is deferred."
                " Start again with a new key (scrapy identity --new FILE), and serve it in the"
                " directory%s",
                host,
                last,
            )

    def lines(self, host: str, target: Target, method: str) -> bytes:
        """Return the header lines that sign a request which is sent now."""
        asked = self._hosts.get(host) or Challenge()
        if asked.nonce:
            self._hosts[host] = asked._replace(nonce="")
        nonce = asked.nonce or b64encode(self._nonce(_NONCE_BYTES)).decode()
        label, created = asked.label, int(self._wall())
        names = (*_COVERED, *asked.components)
        components = [(f'"{name}"', _DERIVED[name](target, method)) for name in names]
        components.append((f'"signature-agent";key="{label}"', f'"{self._agent}"'))
        params: dict[str, int | str] = {"created": created, "keyid": self._key.keyid}
        params |= {"alg": "ed25519", "expires": int(min(created + self._life, self._key.expires))}
        params |= {"nonce": nonce, "tag": TAG}
        given, signature = signed(self._key, label, components, parameters(params))
        lines = (
            f'Signature-Agent: {label}="{self._agent}"\r\n'
            f"Signature-Input: {given}\r\nSignature: {signature}\r\n"
        )
        return lines.encode()

    def answered(
        self,
        host: str,
        status: int,
        headers: Headers,
        *,
        was_signed: bool,
        count: Callable[[str], None],
    ) -> bool:
        """Learn from an answer. Return whether the page is to be asked for again, signed.

        ``count`` is called with the name of each stat to increment.
        """
        if was_signed:
            count("krowl/identity/signed_count")
            if status in REFUSALS:
                count("krowl/identity/refused_count")
        if was_signed or self._clock.is_off:
            self._clock.hear(host, headers)
        # The head of an answer is bounded.
        values = [value for name, value in headers if name.lower() == b"accept-signature"]
        asked = asked_in(b",".join(values).decode("latin-1"), self._key.keyid) if values else None
        if asked is None and (was_signed or status not in CHALLENGES):
            return False
        is_new = host not in self._hosts
        if asked is None and self._why_not():
            # It may refuse this page to everybody.
            return False
        self._learn(host, asked or Challenge())
        # A host that is known was not signed for, as nothing can be or a spider has signed.
        if was_signed or not is_new or self._why_not():
            return False
        count("krowl/identity/challenged_count")
        # A 429 is tried again by the rules for it.
        return status in REFUSALS

    def _learn(self, host: str, asked: Challenge) -> None:
        if host not in self._hosts and len(self._hosts) >= HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[host] = asked
