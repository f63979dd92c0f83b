from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.payload import payload_of

from .captures import ALL_ODD, REQUEST

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("kind", ALL_ODD)
def test_the_payload_is_the_entity(kind: str) -> None:
    assert payload_of(ALL_ODD[kind].response) == ALL_ODD[kind].payload


def test_a_request_without_a_body_has_an_empty_payload() -> None:
    assert payload_of(REQUEST) == b""


def test_a_message_cut_off_in_its_head_has_an_empty_payload() -> None:
    assert payload_of(b"HTTP/1.1 200 OK\r\nServer: x\r\n") == b""


def test_bare_line_feeds_end_a_head_and_a_chunk() -> None:
    assert payload_of(b"HTTP/1.1 200 OK\nA: b\n\nabc") == b"abc"
    head = b"HTTP/1.1 200 OK\ntransfer-encoding:chunked\n\n"
    assert payload_of(head + b"3\nabc\n0\n\n") == b"abc"


@pytest.mark.parametrize(
    "field",
    [
        b"TRANSFER-ENCODING: Chunked",
        b"transfer-encoding:gzip, chunked \t",
        b"Transfer-Encoding :chunked",
    ],
)
def test_chunked_is_known_however_it_is_spelt(field: bytes) -> None:
    assert payload_of(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\n1\r\na\r\n0\r\n\r\n") == b"a"


@pytest.mark.parametrize(
    "field",
    [b"X-Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, gzip", b"X: y chunked"],
)
def test_what_only_looks_like_chunked_is_left_alone(field: bytes) -> None:
    assert payload_of(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\n1\r\na\r\n0\r\n\r\n") == (
        b"1\r\na\r\n0\r\n\r\n"
    )


def test_chunked_in_the_body_does_not_count() -> None:
    body = b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na"
    assert payload_of(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n" + body) == body


@pytest.mark.parametrize(
    "chunks", [b"nonsense", b"3\r\nabcXX2\r\nde\r\n", b"3\r\nabc\r\nFFFFFFFFFFFFFFFFF\r\n"]
)
def test_a_broken_chunk_ends_the_payload(chunks: bytes) -> None:
    assert payload_of(CHUNKED_HEAD + chunks) in {b"", b"abc"}


@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=8), cut=st.integers(0, 400))
def test_a_cut_chunked_message_has_the_payload_up_to_the_cut(chunks: list[bytes], cut: int) -> None:
    body = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    whole = b"".join(chunks)
    assert payload_of(CHUNKED_HEAD + body) == whole
    assert whole.startswith(payload_of(CHUNKED_HEAD + body[:cut]))
