"""``scrapy identity``: the key, its directory, and the public vectors."""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.fetch.signing import DIRECTORY_TYPE
from krowlspider.programs.identity import VECTORS, check_vectors
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path


def test_every_public_vector_is_right() -> None:
    vectors: dict[str, Any] = json.loads(VECTORS.read_bytes())
    found = check_vectors(vectors)
    assert len(found) == len(vectors["thumbprints"]) + len(vectors["signatures"]) + 1 == 9
    assert [source for source, is_right in found if not is_right] == []
    said = scrapy("identity", "--check").stdout.decode().splitlines()
    assert said == [f"ok    {source}" for source, _ in found]


def test_a_wrong_vector_is_named() -> None:
    vectors: dict[str, Any] = json.loads(VECTORS.read_bytes())
    vectors["thumbprints"][1]["thumbprint"] = "x"
    vectors["signatures"][0]["parameters"]["created"] += 1
    vectors["signatures"][4]["components"][0][1] = "example.org"
    vectors["directory"]["body"] += "\n"
    wrong = [source for source, is_right in check_vectors(vectors) if not is_right]
    changed = (vectors["thumbprints"][1], vectors["signatures"][0], vectors["signatures"][4])
    sources = [each["source"] for each in changed]
    assert wrong == [*sources, f"{vectors['directory']['source']}, body"]


def test_a_new_key_is_its_owners_alone_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    said = scrapy("identity", "--new", path).stdout.decode()
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    assert b"exists: give a new file" in scrapy("identity", "--new", path, code=2).stderr
    assert path.read_bytes() == before
    # What is said again is the same key.
    keyid = said.split("keyid    ")[1].split()[0]
    assert f"keyid    {keyid}" in scrapy("identity", path).stdout.decode()


def test_the_directory_has_each_key_and_a_proof_of_it(tmp_path: Path) -> None:
    paths = [tmp_path / "a.pem", tmp_path / "b.pem"]
    for path in paths:
        scrapy("identity", "--new", path)
    words = ("identity", paths[0], "--also", paths[1], "-s", "KROWL_SIGN_AGENT=https://bot.test/")
    lines = scrapy(*words).stdout.decode().splitlines()
    served = scrapy(*words, "--directory", "-").stdout
    keys = [key["kid"] for key in json.loads(served)["keys"]]
    assert len({*keys}) == 2
    assert f"keyid    {keys[0]}" in lines
    assert served.decode() in lines
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert headers["Content-Type"] == DIRECTORY_TYPE
    assert headers["Content-Digest"] == f"sha-256=:{b64encode(sha256(served).digest()).decode()}:"
    assert [f'keyid="{key}"' in headers["Signature-Input"] for key in keys] == [True, True]
    assert "https://bot.test/.well-known/http-message-signatures-directory" in lines[3]


def test_a_directory_never_replaces_a_private_key(tmp_path: Path) -> None:
    """A mistake of one word would lose the key."""
    a, b, link = (tmp_path / name for name in ("a.pem", "b.pem", "link"))
    for path in (a, b):
        scrapy("identity", "--new", path)
    link.symlink_to(b)
    before = [path.read_bytes() for path in (a, b)]
    for words in ([a, "--directory", a], [a, "--also", b, "--directory", link]):
        assert b"is the file of a private key" in scrapy("identity", *words, code=2).stderr
    new = tmp_path / "new.pem"
    scrapy("identity", "--new", new, "--directory", new, code=2)
    assert [path.read_bytes() for path in (a, b)] == before
    assert not new.exists()
    said = scrapy("identity", a, "--also", b, "--also", a, code=2).stderr.decode()
    assert f"--also {a} has the key of {a}: give each key once" in said


def test_the_proof_of_a_key_that_ends_sooner_says_when(tmp_path: Path) -> None:
    """A JWK with an exp before --days: the date that is said is that of the signature."""
    path = tmp_path / "key.jwk"
    exp = int(time.time()) + 86_400
    seed = urlsafe_b64encode(b"s" * 32).decode().rstrip("=")
    path.write_text(json.dumps({"kty": "OKP", "crv": "Ed25519", "d": seed, "exp": exp}))
    said = scrapy("identity", path, "--days", "90").stdout.decode()
    assert f";expires={exp};" in said
    assert f"expires at {datetime.fromtimestamp(exp, UTC):%Y-%m-%d %H:%M:%SZ}:" in said


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["/none/key.pem"], "/none/key.pem cannot be read: No such file"),
        (["--new", "/none/key.pem"], "/none/key.pem: No such file"),
        ([__file__], "neither a private key as PEM"),
        ([], "give a key file"),
        ([__file__, "--days", "0"], "--days 0: give 1 to 3650"),
        (["a", "b"], "give one key file"),
        ([__file__, "--check"], "--check checks the public vectors alone"),
    ],
)
def test_bad_input_is_named_with_the_way_out(words: list[str], fault: str) -> None:
    done = scrapy("identity", *words, code=2)
    assert fault in done.stderr.decode() + done.stdout.decode()
