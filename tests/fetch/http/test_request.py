from __future__ import annotations

import pytest

from krowlspider.fetch.http.head import Origin, build_request, split_target
from tests.support.tables import table


@table(
    ("url", "origin", "authority", "path"),
    [
        ("http://a.example/", Origin("http", "a.example", 80), b"a.example", b"/"),
        ("https://a.example/x?y=/z", Origin("https", "a.example", 443), b"a.example", b"/x?y=/z"),
        ("http://a.example:81/", Origin("http", "a.example", 81), b"a.example:81", b"/"),
        ("http://[::1]/", Origin("http", "::1", 80), b"[::1]", b"/"),
        ("http://[::1]:8080/", Origin("http", "::1", 8080), b"[::1]:8080", b"/"),
        ("http://u:p@a.example/@:", Origin("http", "a.example", 80), b"a.example", b"/@:"),
        ("http://a.example./x.", Origin("http", "a.example", 80), b"a.example", b"/x."),
        ("https://a.example.:81/", Origin("https", "a.example", 81), b"a.example:81", b"/"),
        ("http://./", Origin("http", ".", 80), b".", b"/"),
        ("http://a.example/p#frag", Origin("http", "a.example", 80), b"a.example", b"/p"),
    ],
)
def test_a_url_is_taken_apart(url: str, origin: Origin, authority: bytes, path: bytes) -> None:
    assert split_target(url) == (origin, authority, path)


@table(
    "url",
    [
        "ftp://a.example/",
        "http:/a.example/",
        "a.example",
        "http:///x",
        "http://u@/x",
        "http://a.example?x",
        "http://a.example/a b",
        "http://a.example/a\r\nX: y",
        "http://a.example/\xe9",
        "http://a.example:http/",
    ],
)
def test_a_url_that_is_not_normalised_http_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|invalid literal"):
        split_target(url)


def test_get_has_request_line_host_and_given_headers() -> None:
    target = split_target("http://a.example:81/x?y")
    assert build_request(target, "GET", [(b"User-Agent", b"k"), (b"X", b"\xe9\t")], b"") == (
        b"GET /x?y HTTP/1.1\r\nHost: a.example:81\r\nUser-Agent: k\r\nX: \xe9\t\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("POST", b"a=b", b"3"), ("POST", b"", b"0"), ("PUT", b"", b"0"), ("GET", b"x", b"1")],
)
def test_a_body_is_sent_with_its_length(method: str, body: bytes, length: bytes) -> None:
    request = build_request(split_target("http://a.example/"), method, [], body)
    assert request.endswith(b"\r\nContent-Length: " + length + b"\r\n\r\n" + body)


def test_headers_that_move_the_end_are_derived() -> None:
    given = [(b"HOST", b"evil"), (b"Content-length", b"99"), (b"Transfer-Encoding", b"chunked")]
    request = build_request(split_target("http://a.example/"), "POST", given, b"abc")
    assert request == b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc"


@pytest.mark.parametrize("bad", [b"a\r\nX: y", b"a\n", b"a\rb", b"\0", b"\x7f", b"\x1b"])
def test_a_header_value_with_control_characters_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="control"):
        build_request(split_target("http://a.example/"), "GET", [(b"X", bad)], b"")


@pytest.mark.parametrize("bad", [b"", b"X Y", b"X:", b"X\r\n", b"\xe9"])
def test_a_header_name_that_is_not_a_token_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="header name"):
        build_request(split_target("http://a.example/"), "GET", [(bad, b"")], b"")


@pytest.mark.parametrize("bad", ["", "G ET", "GET\r\n", "GET / HTTP/1.1\r\nX: y", "G\xc9T"])
def test_a_method_that_is_not_a_token_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=r"method|ascii"):
        build_request(split_target("http://a.example/"), bad, [], b"")
