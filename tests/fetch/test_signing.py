"""Signatures of requests: RFC 9421, in the profile of Web Bot Auth."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from krowlspider.fetch import signing
from krowlspider.fetch.http.head import build_request, split_target, with_lines
from krowlspider.fetch.signing import Challenge, Signer, SigningKey, agent_origin, asked_in
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000.0
AGENT = "https://bot.library.internal"
PKCS8 = PrivateFormat.PKCS8
PRIVATE = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = SigningKey(PRIVATE)
D = signing._encoded(bytes(range(32)))
JWK: dict[str, Any] = {"kty": "OKP", "crv": "Ed25519", "d": D, "x": KEY.public}


class Crawler:
    """A signer, whose clock and nonces are of the test, and what it has counted."""

    def __init__(self, *, always: bool = False, key: SigningKey = KEY):
        self.now = NOW
        # What a person has set the clock forward by.
        self.set = 0.0
        self.counted: list[str] = []
        self.signer = Signer(
            key,
            AGENT,
            always=always,
            life=60.0,
            wall=lambda: self.now,
            monotonic=lambda: self.now - self.set,
            nonce=lambda n: b"\1" * n,
        )

    def answered(self, status: int, *headers: tuple[bytes, bytes], host: str = "a.test") -> bool:
        was_signed = self.signer.signs(host)
        return self.signer.answered(
            host, status, [*headers], was_signed=was_signed, count=self.counted.append
        )

    def lines(self, url: str, method: str = "GET", host: str = "a.test") -> dict[str, str]:
        lines = self.signer.lines(host, split_target(url), method).decode().splitlines()
        return dict(line.split(": ", 1) for line in lines)


def test_a_request_is_signed_for_its_authority_method_and_path() -> None:
    """The public vectors are in tests/commands/test_identity.py."""
    lines = Crawler().lines("https://A.test:8443/x/y?z=1".lower(), "HEAD")
    nonce = b64encode(b"\1" * 64).decode()
    covered = (
        '("@authority" "@method" "@path" "signature-agent";key="sig1")'
        f';created=1800000000;keyid="{KEY.keyid}";alg="ed25519";expires=1800000060'
        f';nonce="{nonce}";tag="web-bot-auth"'
    )
    base = (
        '"@authority": a.test:8443\n"@method": HEAD\n"@path": /x/y\n'
        f'"signature-agent";key="sig1": "{AGENT}"\n"@signature-params": {covered}'
    )
    assert lines == {
        "Signature-Agent": f'sig1="{AGENT}"',
        "Signature-Input": f"sig1={covered}",
        "Signature": f"sig1=:{b64encode(PRIVATE.sign(base.encode())).decode()}:",
    }
    with pytest.raises(InvalidSignature):
        PRIVATE.public_key().verify(PRIVATE.sign(base.encode()), base.replace("/x", "/w").encode())


def test_lines_go_to_the_end_of_the_head_alone() -> None:
    made = build_request(split_target("http://a.test/"), "POST", [(b"X", b"1")], b"a\r\n\r\nb")
    assert with_lines(made, b"Signature: s\r\n") == (
        b"POST / HTTP/1.1\r\nHost: a.test\r\nX: 1\r\nContent-Length: 6\r\nSignature: s\r\n\r\n"
        b"a\r\n\r\nb"
    )


@table(
    ("status", "headers", "signs", "again"),
    [
        (200, [], False, False),
        (404, [], False, False),
        (401, [], True, True),
        (403, [], True, True),
        # It is tried again by the rules of a 429.
        (429, [], True, False),
        (200, [(b"Accept-Signature", b'sig1=("@authority");tag="web-bot-auth"')], True, False),
        (200, [(b"accept-signature", b"sig1=()")], True, False),
        # It asks for the signature of another application.
        (200, [(b"Accept-Signature", b'sig1=("@method");tag="payment"')], False, False),
        (200, [(b"Accept-Signature", b"no dictionary (")], False, False),
        (403, [(b"Accept-Signature", b"no dictionary (")], True, True),
    ],
)
def test_a_host_that_asks_is_signed_for(
    status: int, headers: list[tuple[bytes, bytes]], signs: bool, again: bool
) -> None:
    crawler = Crawler()
    assert crawler.answered(status, *headers) is again
    assert crawler.signer.signs("a.test") is signs
    assert not crawler.signer.signs("b.test")
    assert crawler.counted == ["krowl/identity/challenged_count"] * signs


def test_a_page_is_not_asked_for_again_once_its_host_is_known() -> None:
    """A spider has signed it by itself."""
    crawler = Crawler()
    again = [
        crawler.signer.answered("a.test", 403, [], was_signed=False, count=crawler.counted.append)
        for _ in range(3)
    ]
    assert again == [True, False, False]
    assert crawler.counted == ["krowl/identity/challenged_count"]


def test_a_signed_request_that_is_refused_is_not_sent_again() -> None:
    crawler = Crawler(always=True)
    assert not crawler.answered(403)
    assert not crawler.answered(401, (b"Accept-Signature", b'a=();nonce="x"'))
    names = ["signed_count", "refused_count"]
    assert crawler.counted == [f"krowl/identity/{name}" for name in names * 2]


@table(
    ("value", "asked"),
    [
        ("sig1=()", Challenge()),
        (
            'x=("@status" "@query" "date" "@path");created;tag="web-bot-auth";nonce="n-1"',
            Challenge("x", ("@query",), "n-1"),
        ),
        ('s=("signature-agent";key="s" "@scheme" "@target-uri");expires', None),
        (
            'a=("@method");tag="other", b=("@scheme");tag="web-bot-auth"',
            Challenge("b", ("@scheme",)),
        ),
        ('a=();keyid="another"', None),
        ('a=();tag="x,y"', None),
        (f"{'a' * 33}=()", Challenge()),
        (f'a=();nonce="{"n" * 257}"', Challenge("a")),
        ('a=();nonce="n\xe9"', Challenge("a")),
        ('a=("@path', None),
        ("", None),
    ],
)
def test_accept_signature_is_read(value: str, asked: Challenge | None) -> None:
    """RFC 9421, section 5.1."""
    if asked is None and value.startswith("s="):
        asked = Challenge("s", ("@scheme", "@target-uri"))
    assert asked_in(value, KEY.keyid) == asked


def test_a_nonce_of_the_site_is_used_once() -> None:
    crawler = Crawler()
    crawler.answered(403, (b"Accept-Signature", b's=("@query");nonce="once";tag="web-bot-auth"'))
    first, second = (crawler.lines("https://a.test/?q")["Signature-Input"] for _ in range(2))
    assert first.startswith('s=("@authority" "@method" "@path" "@query" "signature-agent";key="s")')
    assert 'nonce="once"' in first
    assert 'nonce="once"' not in second
    assert crawler.lines("https://b.test/", host="b.test")["Signature-Agent"] == f'sig1="{AGENT}"'


@pytest.mark.parametrize("hostile", ['a=("', 'a=();x="', "a=(),", 'a=("";', '";'])
def test_only_the_start_of_a_long_accept_signature_is_read(hostile: str) -> None:
    """More would be work without a bound."""
    start = 'b=();tag="other",'
    end = 'c=();tag="web-bot-auth"'
    assert asked_in(start + " " * 100 + end, KEY.keyid) == Challenge("c")
    assert asked_in(start + " " * 2000 + end, KEY.keyid) is None
    assert asked_in(start + hostile * 20_000, KEY.keyid) in {None, Challenge("a")}


def test_hosts_that_asked_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "HOSTS_MAX", 2)
    crawler = Crawler()
    for host in ("a.test", "b.test", "b.test", "c.test"):
        crawler.answered(403, host=host)
    assert [crawler.signer.signs(f"{name}.test") for name in "abc"] == [False, True, True]


@pytest.mark.parametrize(
    ("off", "age", "logged"),
    [(59, None, ""), (-59, None, ""), (61, None, "behind"), (-61, None, "ahead"), (90, b"40", "")],
)
def test_a_clock_that_is_off_is_logged_once(
    off: int, age: bytes | None, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    crawler = Crawler(always=True)
    headers = [(b"Date", formatdate(NOW - off, usegmt=True).encode())]
    headers += [] if age is None else [(b"Age", age)]
    for host in ("a.test", "b.test"):
        crawler.answered(200, *headers, host=host)
    crawler.answered(200, (b"Date", b"no date"))
    lines = [record.message for record in caplog.records]
    assert len(lines) == bool(logged)
    if logged:
        assert f"that of a.test is 61 s {logged}" in lines[0]
        assert "timedatectl set-ntp true" in lines[0]


def dated(*seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((b"Date", formatdate(NOW - each, usegmt=True).encode()) for each in seconds)


def test_nothing_is_signed_with_a_clock_that_is_off(caplog: pytest.LogCaptureFixture) -> None:
    """Three domains that agree decide. One of them that is right, and a set clock, end that."""
    crawler = Crawler(always=True)
    for host in ("a.test", "www.b.test", "b.test", "a.test"):
        crawler.answered(200, *dated(3600), host=host)
        assert crawler.signer.signs("d.test")
    crawler.answered(200, *dated(3610), host="c.test")
    assert not crawler.signer.signs("d.test")
    assert crawler.signer.fault("d.test") == "the clock of this machine is wrong"
    # It says nothing about signatures.
    assert not crawler.answered(403, host="e.test")
    (line,) = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert "is 3600 s ahead, as b.test, a.test, c.test say" in line
    assert "timedatectl" in line
    crawler.answered(200, *dated(0), host="f.test")
    assert crawler.signer.signs("d.test")
    for host in "ghi":
        crawler.answered(200, *dated(-3600), host=f"{host}.test")
    assert crawler.signer.fault("d.test")
    crawler.now += 3600
    crawler.set += 3600
    assert crawler.signer.signs("d.test")


def test_sites_that_disagree_about_the_time_do_not_decide() -> None:
    crawler = Crawler(always=True)
    for number, off in enumerate((3600, -3600, 7200, 0, 3600, 3600)):
        crawler.answered(200, *dated(off), host=f"{number}.test")
        assert crawler.signer.signs("x.test")


@pytest.mark.parametrize("always", [True, False])
def test_hosts_with_signatures_wait_for_a_key_that_has_expired(
    always: bool, caplog: pytest.LogCaptureFixture
) -> None:
    crawler = Crawler(always=always, key=SigningKey(PRIVATE, expires=NOW + 30))
    assert f"expires={NOW + 30:.0f};" in crawler.lines("https://a.test/")["Signature-Input"]
    assert crawler.answered(403) is not always
    assert not crawler.signer.fault("a.test")
    crawler.now += 30
    # After that, a 403 says nothing of signatures. It would be asked for again and again.
    assert not crawler.answered(403, host="b.test")
    assert crawler.signer.fault("a.test") == "the key has expired"
    assert bool(crawler.signer.fault("b.test")) is always
    assert not crawler.signer.signs("a.test")
    for number in range(9):
        crawler.signer.warn_of(f"{number}.test")
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 5
    assert "scrapy identity --new" in caplog.text


def pem(private: Any, encryption: Any = None) -> bytes:
    made: bytes = private.private_bytes(Encoding.PEM, PKCS8, encryption or NoEncryption())
    return made


@pytest.mark.parametrize(
    "data",
    [
        KEY.pem(),
        json.dumps(JWK).encode(),
        json.dumps({**JWK, "nbf": NOW, "exp": NOW + 1, "kid": "any"}).encode(),
    ],
)
def test_a_key_is_read_from_pem_and_jwk(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(data)
    key = signing.read_key(tmp_path / "key", NOW)
    assert (key.keyid, key.public) == (KEY.keyid, KEY.public)
    times = {"nbf": int(NOW), "exp": int(NOW) + 1} if b"nbf" in data else {}
    common = {"kty": "OKP", "crv": "Ed25519", "kid": KEY.keyid, "x": KEY.public, "use": "sig"}
    assert key.jwk() == {**common, **times}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (None, "cannot be read: No such file"),
        (b"", "neither a private key as PEM"),
        (pem(rsa.generate_private_key(65537, 2048)), "of the type RSA, not Ed25519"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "not Ed25519"),
        (pem(PRIVATE, BestAvailableEncryption(b"x")), "is encrypted: decrypt it"),
        (
            PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "neither a private key as PEM",
        ),
        (b"{", "is not a JWK"),
        (b"{" * 60_000, "is not a JWK"),
        (json.dumps({**JWK, "crv": "P-256", "kty": "EC"}).encode(), "'EC', 'P-256', not Ed25519"),
        (json.dumps({**JWK, "d": "AAAA"}).encode(), "is not a JWK"),
        (json.dumps({**JWK, "d": 5}).encode(), "is not a JWK"),
        (json.dumps({**JWK, "x": "AAAA"}).encode(), "x is not the public key of its d"),
        (json.dumps({key: JWK[key] for key in ("kty", "crv", "x")}).encode(), "is a public key"),
        (json.dumps({**JWK, "exp": NOW}).encode(), "has expired (exp 1800000000)"),
        (json.dumps({**JWK, "nbf": NOW + 1}).encode(), "is not valid yet (nbf 1800000001)"),
        (json.dumps({**JWK, "exp": "soon"}).encode(), "is not a JWK"),
        (json.dumps({**JWK, "exp": float("nan")}).encode(), "nbf and exp are seconds"),
        (json.dumps({**JWK, "nbf": 10**400}).encode(), "is not a JWK"),
        (
            b'{"kty":"OKP","crv":"Ed25519","d":"n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"}',
            "example key of an RFC",
        ),
        (
            b'{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}',
            "example key of an RFC",
        ),
    ],
)
def test_a_file_that_is_no_usable_key_is_refused(
    data: bytes | None, fault: str, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / "key").write_bytes(data)
    with pytest.raises(ValueError, match=r"^(is|cannot) ") as refused:
        signing.read_key(tmp_path / "key", NOW)
    assert fault in str(refused.value)


@table(
    ("given", "origin"),
    [
        ("https://bot.test", "https://bot.test"),
        ("https://bot.test:8443/", "https://bot.test:8443"),
        (f"https://bot.test{signing.DIRECTORY_PATH}", "https://bot.test"),
        ("http://bot.test", None),
        ("https://bot.test/keys", None),
        ("https://u@bot.test", None),
        ('https://bot.test"', None),
        ("https://bot.test:0", None),
        ("https://bot.test:65536", None),
    ],
)
def test_the_agent_is_an_https_origin(given: str, origin: str | None) -> None:
    if origin is None:
        with pytest.raises(ValueError, match="https origin"):
            agent_origin(given)
    else:
        assert agent_origin(given) == origin
