from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.errors import ProtocolBroken
from krowlspider.fetch.http.reader import FRAMING_CAP, ChunkedDecoder
from tests.support.tables import table


def coded(chunks: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    lines = [b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    return b"".join([*lines, b"0\r\n", trailers, b"\r\n"])


@given(
    st.lists(st.binary(min_size=1, max_size=20), max_size=6),
    st.sampled_from([b"", b" ", b";a=b", b'; x="y;z"']),
    st.sampled_from([b"", b"X: y\r\n", b"X: y\r\nZ:\r\n"]),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=5),
)
def test_any_chunks_cut_anywhere_are_read_whole(
    chunks: list[bytes], extension: bytes, trailers: bytes, cuts: list[int]
) -> None:
    wire = coded(chunks, extension, trailers)
    decoder = ChunkedDecoder()
    at, turn = 0, 0
    end = -1
    while end < 0:
        step = cuts[turn % len(cuts)]
        piece = wire[at : at + step]
        assert piece, "the end was not noticed"
        end = decoder.feed(piece)
        if end < 0:
            at += len(piece)
        turn += 1
    assert at + end == len(wire)
    assert decoder.body_in(wire) == b"".join(chunks)


def test_length_of_a_line_is_bounded() -> None:
    """Each read copies the start of a line: 80 MB of extension after 10 MB of body took minutes."""
    decoder = ChunkedDecoder()
    decoder.feed(b"%x\r\n%b\r\n1;" % (1024 * 1024, bytes(1024 * 1024)))
    decoder.feed(b"x" * (FRAMING_CAP - 2))
    with pytest.raises(ProtocolBroken, match="without end"):
        decoder.feed(b"x")


def test_offset_of_the_end_is_returned() -> None:
    wire = coded([b"abc"])
    assert ChunkedDecoder().feed(wire + b"HTTP/1.1 200 OK") == len(wire)


def test_bare_line_feeds_are_read_as_line_ends() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"3\nabc\n0\n\n") == 9
    assert decoder.body_in(b"3\nabc\n0\n\n") == b"abc"


@table(
    "wire",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b"1 1\r\n",
        b"ffffffffffffffffffff\r\n",
        b"3\r\nabcd\r\n",
        b"<html>\n",
    ],
)
def test_broken_chunk_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        ChunkedDecoder().feed(wire)


@pytest.mark.parametrize("wire", [b"<html>", b"<html>\n", b"-1\r\nabc"])
def test_bytes_without_a_size_are_the_body_itself(wire: bytes) -> None:
    """The header was wrong, whether or not the first line came whole."""
    decoder = ChunkedDecoder()
    with suppress(ProtocolBroken):
        decoder.feed(wire)
    assert decoder.body_in(wire) == wire


def test_the_last_chunk_is_known_before_the_trailers_end() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"1\r\na\r\n") == -1
    assert not decoder.data_ended
    assert decoder.feed(b"0\r\nX: ") == -1
    assert decoder.data_ended


def flood(decoder: ChunkedDecoder, filler: bytes) -> None:
    """Feed ``filler`` without end; fail if far more than the cap is accepted."""
    fed = 0
    while True:
        decoder.feed(filler)
        fed += len(filler)
        assert fed < 2 * FRAMING_CAP


@pytest.mark.parametrize(
    ("start", "filler"),
    [
        (b"1", b" " * 1000),
        (b"1;", b"x" * 1000),
        (b"", b"1;" + b"x" * 1000 + b"\r\na\r\n"),
        (b"0\r\n", b"X: y\r\n" * 200),
        (b"0\r\nX: ", b"y" * 1000),
    ],
)
def test_endless_framing_is_refused(start: bytes, filler: bytes) -> None:
    decoder = ChunkedDecoder()
    decoder.feed(start)
    with pytest.raises(ProtocolBroken):
        flood(decoder, filler)


def test_long_body_in_small_chunks_is_read() -> None:
    decoder = ChunkedDecoder()
    chunks = [b"ab"] * 20_000
    assert decoder.feed(coded(chunks, b";ab=cd")) > 0
    assert decoder.size == 40_000
