from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.fetch.errors import ProtocolBroken
from krowlspider.fetch.http.head import Framing, mend, parse_head
from tests.support.tables import table


def head(*lines: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([status, *lines, b"", b""])


def test_a_plain_head_is_read_whole() -> None:
    parsed = parse_head(head(b"X-One:  a b ", b"content-length: 12"), "GET")
    assert (parsed.status, parsed.version) == (200, "1.1")
    assert parsed.headers == [(b"X-One", b"a b"), (b"content-length", b"12")]
    assert (parsed.framing, parsed.length, parsed.keep_alive) == (Framing.LENGTH, 12, True)


def test_repeated_headers_keep_their_order_and_case() -> None:
    parsed = parse_head(head(b"Set-Cookie: a", b"X: y", b"set-cookie: b"), "GET")
    assert parsed.headers == [(b"Set-Cookie", b"a"), (b"X", b"y"), (b"set-cookie", b"b")]


def test_empty_header_value_is_kept() -> None:
    parsed = parse_head(head(b"A:", b"B: ", b"C: d"), "GET")
    assert parsed.headers == [(b"A", b""), (b"B", b""), (b"C", b"d")]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"HTTP/1.1 200\r\nA: b\r\n\r\n", b"b"),
        (b"HTTP/1.1 200 \r\nA: b\r\n\r\n", b"b"),
        (b"HTTP/1.1 200 OK\nA: b\n\n", b"b"),
        (b"HTTP/1.1 200 D\xe9j\xe0 vu\r\nA: \xe9\r\n\r\n", b"\xe9"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\n\r\n", b"b\tc"),
        (b"HTTP/1.1 200 OK\r\nA: \x00b\r\n\r\n", b"\x00b"),
    ],
)
def test_irregular_heads_of_real_servers_are_read(raw: bytes, value: bytes) -> None:
    parsed = parse_head(raw, "GET")
    assert (parsed.status, parsed.headers) == (200, [(b"A", value)])


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        (b"A : b", [(b"A", b"b"), (b"Content-Length", b"3")]),
        (b"Warning in line 3 of index.php", [(b"Content-Length", b"3")]),
        (b": nameless", [(b"Content-Length", b"3")]),
        (b"A B: c", [(b"Content-Length", b"3")]),
        (b"Content-Length: 3", [(b"Content-Length", b"3")]),
        (b"Content-Length: 3, 3", [(b"Content-Length", b"3")]),
    ],
)
def test_mended_head_ends_the_connection(line: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    parsed = parse_head(head(line, b"Content-Length: 3"), "GET")
    assert parsed.headers == headers
    assert (parsed.framing, parsed.length, parsed.keep_alive) == (Framing.LENGTH, 3, False)


@table(
    "raw",
    [
        b"",
        b"\r\n\r\n",
        b"<html>\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/x.y 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        head(b"Content-Length: 3", b"Content-Length: 4"),
        head(b"Content-Length: 3, 4"),
        head(b"Content-Length: -3"),
        head(b"Content-Length: +3"),
        head(b"Content-Length: 0x3"),
        head(b"Content-Length: 99999999999999999999999"),
        head(b"Transfer-Encoding: gzip, chunked"),
        head(b"Content-Length: 3", b"Content-Length: 03"),
        head(b"Content-Length: 3", b"Content-Length: 3, 4"),
        head(b"Content-Length: 3s"),
        head(b"Content-Length: 3 3"),
        head(b"Transfer-Encoding: xchunked"),
        head(b"Transfer-Encoding: chunked;q=1"),
        head(b'Transfer-Encoding: "chunked"'),
        head(b"Transfer-Encoding: chunked, identity"),
        head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip"),
        head(b"Transfer-Encoding: deflate", b"Transfer-Encoding: chunked"),
        head(b"Transfer-Encoding: none", b"Content-Length: 3"),
        *(
            head(b"Content-Length: 3", status=status)
            for status in (
                *(b"HTTP/1.1", b"HTTP/1.1 OK", b"HTTP/1.1 20 OK"),
                *(b"HTTP/1.1 2000 OK", b"HTTP/1.1 +200 OK", b"HTTP/1.1 2xx OK", b"HTTP/1.1200 OK"),
                *(b"HTTP/1.1: 200 OK", b"HTTP /1.1 200 OK", b"HTTP/ 1.1 200 OK", b"HTTP/a 200 OK"),
                *(b"Status: 200 OK", b"SHTTP/1.1 200 OK", b"xxHTTP/1.1 200 OK"),
                # Chromium shows it as text, and what speaks it has no end.
                *(b"ICY 200 OK", b"icy 200 OK"),
            )
        ),
    ],
)
def test_ambiguous_head_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        parse_head(raw, "GET")


@table(
    "status",
    [
        *(b"http/1.1 200 OK", b"Http/1.1 200 OK", b"HTTP/1.1  200 OK", b"HTTP/1.1\t200\tOK"),
        *(b"HTTP/1.1 200OK", b"HTTP/2 200 OK", b"HTTP/1 200", b"HTTP 200 OK"),
        *(b"\r\nHTTP/1.1 200 OK", b"\nHTTP/1.1 200 OK", b" HTTP/1.1 200 OK"),
        *(b"\r\n\r\n HTTP/1.1 200 OK", b"\r\nhttp/1.1 200"),
    ],
)
@table("line_end", [b"\r\n", b"\n"])
def test_odd_status_lines_are_read_as_in_browsers(status: bytes, line_end: bytes) -> None:
    raw = head(b"Content-Length: 3", b"A: b", status=status).replace(b"\r\n", line_end)
    parsed = parse_head(raw, "GET")
    assert (parsed.status, parsed.framing, parsed.length) == (200, Framing.LENGTH, 3)
    assert parsed.headers[-2:] == [(b"A", b"b"), (b"Content-Length", b"3")]
    assert not parsed.keep_alive


@pytest.mark.parametrize(
    "lines",
    [
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"A: b", b"transfer-encoding: Chunked "],
        [b"Transfer-Encoding: chunked, chunked"],
        [b"Transfer-Encoding: identity, chunked"],
        [b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding:"],
        [b"Transfer-Encoding : chunked"],
    ],
)
def test_equal_codings_are_one_and_end_the_connection(lines: list[bytes]) -> None:
    parsed = parse_head(head(*lines), "GET")
    assert (parsed.framing, parsed.keep_alive) == (Framing.CHUNKED, False)


@table(
    "lines",
    [
        *([b"Content-Length: 3", b"Content-Length: 3"], [b"Content-Length: 3, 3"]),
        *([b"Content-Length: 3,3", b"content-length: 3"], [b"Content-Length : 3"]),
        *([b"Content-Length:   3   "], [b"Content-Length: 03"], [b"Content-Length: 3,"]),
        *([b"Transfer-Encoding:", b"Content-Length: 3"],),
        [b"Transfer-Encoding: identity, identity", b"Content-Length: 3"],
    ],
)
def test_equal_lengths_are_one(lines: list[bytes]) -> None:
    """web-platform-tests, fetch/content-length/resources/content-lengths.json."""
    parsed = parse_head(head(*lines), "GET")
    assert (parsed.framing, parsed.length) == (Framing.LENGTH, 3)


@table(
    ("raw", "method", "framing", "keep_alive"),
    [
        (head(b"Content-Length: 5"), "HEAD", Framing.NONE, True),
        (head(b"Content-Length: 0"), "GET", Framing.NONE, True),
        (head(b"Transfer-Encoding: chunked"), "HEAD", Framing.NONE, True),
        (head(b"Content-Length: 5", status=b"HTTP/1.1 304 N"), "GET", Framing.NONE, True),
        (head(status=b"HTTP/1.1 204 N"), "GET", Framing.NONE, True),
        (head(status=b"HTTP/1.1 100 C"), "GET", Framing.NONE, True),
        (head(), "GET", Framing.CLOSE, False),
        (head(b"Transfer-Encoding: Chunked"), "GET", Framing.CHUNKED, True),
        (head(b"Transfer-Encoding: identity"), "GET", Framing.CLOSE, False),
        (head(b"Content-Length: 4", b"Connection: x, Close"), "GET", Framing.LENGTH, False),
        (head(b"Content-Length: 4", status=b"HTTP/1.0 200 O"), "GET", Framing.LENGTH, False),
        (
            head(b"Content-Length: 4", b"Connection: keep-alive", status=b"HTTP/1.0 200 O"),
            "GET",
            Framing.LENGTH,
            False,
        ),
        (
            head(b"Upgrade: h2", b"Connection: Upgrade", b"Content-Length: 1"),
            "GET",
            Framing.LENGTH,
            True,
        ),
    ],
)
def test_the_end_of_the_body_follows_rfc_9112(
    raw: bytes, method: str, framing: Framing, keep_alive: bool
) -> None:
    parsed = parse_head(raw, method)
    assert (parsed.framing, parsed.keep_alive) == (framing, keep_alive)


@pytest.mark.parametrize("order", [1, -1])
def test_chunked_wins_over_length_and_ends_the_connection(order: int) -> None:
    lines = [b"Content-Length: 5", b"Transfer-Encoding: chunked"][::order]
    parsed = parse_head(head(*lines), "GET")
    assert (parsed.framing, parsed.keep_alive) == (Framing.CHUNKED, False)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_head_or_refused(noise: bytes) -> None:
    try:
        parsed = parse_head(b"HTTP/1.1 200 OK\r\n" + noise + b"\r\n\r\n", "GET")
    except ProtocolBroken:
        return
    assert parsed.length >= 0


def test_mending_keeps_contradicting_lengths() -> None:
    assert mend(b"HTTP/1.1  200  OK\r\nContent-Length: 3,4\r\n\r\n") == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"
    )
