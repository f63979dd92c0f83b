from __future__ import annotations

import hashlib
import re
from base64 import b32encode, b64encode, urlsafe_b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from warcio.utils import Digester

from krowlspider.archive.payload import (
    ALGORITHMS,
    are_equal,
    digest,
    has_digest,
    is_checkable,
    label,
)


def test_default_digest_is_sha1_in_base32() -> None:
    assert digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


@given(content=st.binary(max_size=40), algorithm=st.sampled_from(ALGORITHMS))
def test_digests_are_those_of_warcio_in_tokens(content: bytes, algorithm: str) -> None:
    theirs = Digester(algorithm)
    theirs.update(content)
    ours = digest(content, algorithm)
    # WARC 1.1, section 4: a token has no separators.
    assert re.fullmatch("sha1:[A-Z2-7]{32}|sha256:[0-9a-f]{64}", ours)
    # warcio pads SHA-256, as this crawler did once.
    for spelling in (str(theirs), str(theirs).rstrip("="), ours):
        assert are_equal(ours, spelling)
        assert has_digest(content, spelling)
        assert not are_equal(digest(content + b"x", algorithm), spelling)
        assert not has_digest(content + b"x", spelling)


@given(st.binary(min_size=20, max_size=20))
@example(bytes(20))
@example(b"\xff" * 20)
def test_any_sha1_is_labelled_in_base32(raw: bytes) -> None:
    assert label(raw, "sha1") == "sha1:" + b32encode(raw).decode()


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "SHA-256", "sha512"])
def test_digests_of_other_writers_are_checked(algorithm: str) -> None:
    raw = hashlib.new(algorithm.lower().replace("-", ""), b"a").digest()
    base64 = [encode(raw).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode)]
    for value in (raw.hex(), raw.hex().upper(), b32encode(raw).decode().lower(), *base64):
        assert has_digest(b"a", f"{algorithm}:{value}")
        assert not has_digest(b"b", f"{algorithm}:{value}")
    assert is_checkable(f"{algorithm}:x")


@pytest.mark.parametrize("claimed", ["", "crc32:AAAA", "sha1", "sha1:", "sha256:" + 64 * "x"])
def test_digest_of_another_form_fits_nothing(claimed: str) -> None:
    assert not has_digest(b"a", claimed)
