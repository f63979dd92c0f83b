from __future__ import annotations

from base64 import b32encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from warcio.utils import Digester

from krowlspider.archive.payloads.digests import ALGORITHMS, digest, has_digest, label


def test_default_digest_is_sha1_in_base32() -> None:
    assert digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


@given(content=st.binary(max_size=40), algorithm=st.sampled_from(ALGORITHMS))
def test_digests_equal_those_of_warcio(content: bytes, algorithm: str) -> None:
    theirs = Digester(algorithm)
    theirs.update(content)
    assert digest(content, algorithm) == str(theirs)


@given(st.binary(min_size=20, max_size=20) | st.binary(min_size=32, max_size=32))
@example(bytes(20))
@example(b"\xff" * 20)
def test_any_digest_is_labelled_in_base32(raw: bytes) -> None:
    assert label(raw, "x") == "x:" + b32encode(raw).decode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_digest_of_other_bytes_does_not_fit(algorithm: str) -> None:
    assert has_digest(b"a", digest(b"a", algorithm))
    assert not has_digest(b"b", digest(b"a", algorithm))


@pytest.mark.parametrize("claimed", ["", "md5:AAAA", "sha1", "sha1:"])
def test_digest_of_another_form_fits_nothing(claimed: str) -> None:
    assert not has_digest(b"a", claimed)
