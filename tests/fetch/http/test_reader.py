from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.errors import ConnectionLost, Headers, ProtocolBroken, TooLarge
from krowlspider.fetch.http.head import HEAD_CAP
from krowlspider.fetch.http.reader import ResponseReader
from tests.support.tables import table

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n"
)
UNTIL_CLOSE = b"HTTP/1.0 200 OK\nServer: old\n\nhello"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"


class Watcher:
    def __init__(self) -> None:
        self.seen: list[object] = []
        self.body = b""

    def headers(self, status: int, headers: Headers) -> None:
        self.seen.append((status, headers))

    def data(self, chunk: bytes) -> None:
        assert chunk
        self.body += chunk


def pieces(wire: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    return [wire[a:b] for a, b in pairwise(places)]


@given(
    st.sampled_from([LENGTH, CHUNKED, UNTIL_CLOSE]),
    st.sampled_from([b"", INTERIM]),
    st.lists(st.integers(min_value=0, max_value=300), max_size=8),
)
def test_a_response_cut_anywhere_reads_the_same(
    response: bytes, interim: bytes, cuts: list[int]
) -> None:
    watcher = Watcher()
    reader = ResponseReader("GET", 100, watcher)
    for piece in pieces(interim + response, cuts):
        reader.feed(piece)
    assert reader.done == (response is not UNTIL_CLOSE)
    reader.eof()
    assert reader.response_bytes == response
    assert reader.body_of(response) == watcher.body == b"hello"
    assert reader.head is not None
    assert watcher.seen == [(200, reader.head.headers)]
    assert response[: reader.head_length].endswith((b"\r\n\r\n", b"\n\n"))


ODD_STARTS = [b"\r\n", b"\n", b"\r\n\r\n", b" \t", b"\r\n" * 8]


@table("before", ODD_STARTS)
@table("interim", [b"", INTERIM, b"\r\n" + INTERIM])
def test_blanks_before_a_status_line_are_kept(before: bytes, interim: bytes) -> None:
    lines, steps = (b"HTTP/1.1 200 OK", b"http/1.1 200"), (1, 7, 1000)
    for response, line, step in product((LENGTH, CHUNKED), lines, steps):
        sent = before + response.replace(b"HTTP/1.1 200 OK", line)
        wire, reader = interim + sent, ResponseReader("GET", 100)
        for at in range(0, len(wire), step):
            reader.feed(wire[at : at + step])
        assert reader.done
        assert reader.response_bytes == sent
        assert reader.body_of(sent) == b"hello"
        assert sent[reader.head_length - 4 : reader.head_length] == b"\r\n\r\n"
        assert not reader.reusable


@table("start", [b"\r\n" * 9, b" " * 17, b"\r\nx", b"\0", b"\xef\xbb\xbfHTTP/1.1"])
@table("step", [1, 1000])
def test_other_bytes_before_a_status_line_are_no_response(start: bytes, step: int) -> None:
    wire, reader = start + LENGTH, ResponseReader("GET", 100)

    def feed() -> None:
        for at in range(0, len(wire), step):
            reader.feed(wire[at : at + step])

    with pytest.raises(ProtocolBroken, match="not an HTTP/1 response"):
        feed()


@table("response", [LENGTH, CHUNKED])
@table("extra", [b"x", b"HTTP/1.1 200 OK\r\n\r\n"])
@table("together", [True, False])
def test_bytes_after_the_end_make_the_connection_unusable(
    response: bytes, extra: bytes, together: bool
) -> None:
    reader = ResponseReader("GET", 100)
    for piece in [response + extra] if together else [response, extra]:
        reader.feed(piece)
    assert reader.response_bytes == response
    assert reader.done
    assert not reader.reusable


def test_a_whole_response_leaves_the_connection_reusable() -> None:
    reader = ResponseReader("GET", 100)
    reader.feed(LENGTH)
    assert reader.reusable


@pytest.mark.parametrize(
    ("method", "wire"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_responses_without_a_body_end_with_their_head(method: str, wire: bytes) -> None:
    reader = ResponseReader(method, 100)
    reader.feed(wire)
    assert reader.done
    assert reader.reusable
    assert reader.body_of(reader.response_bytes) == b""


def test_forbidden_body_is_not_read_as_the_next_response() -> None:
    reader = ResponseReader("HEAD", 100)
    reader.feed(LENGTH)
    assert reader.done
    assert not reader.reusable
    assert reader.response_bytes == LENGTH[:-5]


@pytest.mark.parametrize("response", [LENGTH, CHUNKED])
def test_end_before_the_end_of_the_body_is_a_lost_connection(response: bytes) -> None:
    cut = response.index(b"lo")
    for length in range(1, cut + 1):
        reader = ResponseReader("GET", 100)
        reader.feed(response[:length])
        with pytest.raises(ConnectionLost):
            reader.eof()
        assert not reader.done


def test_end_without_trailers_is_a_whole_body() -> None:
    reader = ResponseReader("GET", 100)
    reader.feed(CHUNKED[: CHUNKED.index(b"X: y")])
    reader.eof()
    assert reader.done
    assert not reader.reusable


@pytest.mark.parametrize("response", [LENGTH, CHUNKED, UNTIL_CLOSE])
def test_cap_counts_body_bytes_and_allows_an_exact_fit(response: bytes) -> None:
    fits = ResponseReader("GET", 5)
    fits.feed(response)
    reader = ResponseReader("GET", 4)
    with pytest.raises(TooLarge):
        reader.feed(response)
    assert not reader.reusable
    assert reader.response_bytes == response


def flood(reader: ResponseReader, filler: bytes) -> None:
    """Feed ``filler`` without end; fail if more than the cap is accepted."""
    fed = 0
    while True:
        fed += len(filler)
        reader.feed(filler)
        assert fed <= HEAD_CAP


@pytest.mark.parametrize("filler", [b"X: y\r\n", b"x" * 7, b"\r", b"X: " + b"y" * 5000 + b"\r\n"])
def test_a_head_without_end_is_refused_at_64_kib(filler: bytes) -> None:
    reader = ResponseReader("GET", 10**9)
    reader.feed(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(ProtocolBroken):
        flood(reader, filler)


def test_interim_responses_without_end_are_refused_at_64_kib() -> None:
    reader = ResponseReader("GET", 100)
    with pytest.raises(ProtocolBroken):
        flood(reader, INTERIM)


@pytest.mark.parametrize(
    "garbage", [b"<", b"<html>", b"SSH-2.0-x\r\n", b"\0", b"HTTQ", b"HTTP/1.1 abc\r\n\r\n"]
)
def test_bytes_that_are_no_http_are_refused_at_once(garbage: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        ResponseReader("GET", 100).feed(garbage)
