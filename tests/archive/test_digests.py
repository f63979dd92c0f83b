from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.utils import Digester

from krowlspider.archive.payloads.digests import ALGORITHMS, digest, has_digest


def test_a_digest_is_sha1_in_base32_unless_said_otherwise() -> None:
    assert digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


@given(content=st.binary(max_size=40), algorithm=st.sampled_from(ALGORITHMS))
def test_digests_are_as_warcio_makes_them(content: bytes, algorithm: str) -> None:
    theirs = Digester(algorithm)
    theirs.update(content)
    assert digest(content, algorithm) == str(theirs)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_digest_is_told_from_that_of_other_bytes(algorithm: str) -> None:
    assert has_digest(b"a", digest(b"a", algorithm))
    assert not has_digest(b"b", digest(b"a", algorithm))


@pytest.mark.parametrize("claimed", ["", "md5:AAAA", "sha1", "sha1:"])
def test_what_is_no_digest_of_ours_fits_nothing(claimed: str) -> None:
    assert not has_digest(b"a", claimed)
