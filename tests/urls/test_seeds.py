"""The lines of a seed file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.canonical import URL_MAX, normalise
from krowlspider.urls.seeds import BadSeed, Seed, parse_seed, seed_text


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("https://example.com/a?b#c", "https://example.com/a?b"),
        ("HTTP://EXAMPLE.COM:80/A", "http://example.com/A"),
        ("http://localhost:8080/", "http://localhost:8080/"),
        ("http://intranet/", "http://intranet/"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("7,https://example.com/1,2", "https://example.com/1,2"),
    ],
)
def test_a_url_is_taken_as_it_is(line: str, url: str) -> None:
    assert parse_seed(line.encode()) == Seed(url, bare=False)


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("example.com", "https://example.com/"),
        ("example.com/path?q=http://x", "https://example.com/path?q=http://x"),
        ("example.com:8080", "https://example.com:8080/"),
        ("münchen.de", "https://xn--mnchen-3ya.de/"),
        ("localhost", "https://localhost/"),
        ("localhost:8080/a", "https://localhost:8080/a"),
        ("127.0.0.1:8080", "https://127.0.0.1:8080/"),
        ("example.com.", "https://example.com./"),
        ("[::1]:8080", "https://[::1]:8080/"),
        ("1,google.com", "https://google.com/"),
        ("1000000,a.co.uk", "https://a.co.uk/"),
    ],
)
def test_a_bare_domain_is_tried_by_https(line: str, url: str) -> None:
    assert parse_seed(line.encode()) == Seed(url, bare=True)


@pytest.mark.parametrize(
    "line", [b"", b"\n", b" \t\r\n", b"#", b"# example.com", b"  # x\r\n", b"\xef\xbb\xbf# x"]
)
def test_blank_lines_and_comments_are_no_seeds(line: bytes) -> None:
    assert parse_seed(line) is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"example.com\r\n", b"\xef\xbb\xbfexample.com\n", b"\t example.com \n"),
        *(b"example.com # the first\n", b"example.com\t#\xc3\xa4\n", b"example.com/#fragment"),
    ],
)
def test_line_ends_byte_order_mark_and_comments_are_left_out(line: bytes) -> None:
    assert parse_seed(line) == Seed("https://example.com/", bare=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff.example.com", "UTF-8"),
        (b"exam\x00ple.com", "control"),
        (b"exam\x1bple.com", "control"),
        (b"exam\rple.com", "control"),
        (b"example.com example.org", "whitespace"),
        ("example.com\u00a0x".encode(), "whitespace"),
        (b"https://exam ple.com/", "whitespace"),
        (b"example", "neither a URL nor a domain: 'example'"),
        (b"7", "neither a URL nor a domain"),
        (b"7,", "several fields: '7,'"),
        (b"/etc/hosts", "neither a URL nor a domain"),
        (b"mailto:a@example.com", "neither a URL nor a domain"),
        (b"ftp://example.com/", "scheme ftp"),
        (b"https://", "not a URL"),
        (b"999.1.1.1", "not a URL"),
        (b"user:password@example.com", "neither a URL nor a domain"),
        (b"https://user:password@example.com/", "user name"),
        (b"a@example.com", "user name"),
        (b'"example.com"', "not a host name"),
        (b"example.com,7", "several fields: 'example.com,7'"),
        (b"1,1,example.com,com", "several fields"),
        (b"a.test.\t3600\tin\tns\tns.test.", "a record of a zone file"),
        (b"example..com", "not a host name: 'example..com'"),
        (b"http://.example.com/", "not a host name"),
    ],
)
def test_a_bad_line_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(BadSeed, match=reason):
        parse_seed(line)


def test_the_longest_seed_is_taken_and_a_longer_one_is_bad() -> None:
    longest = b"https://example.com/".ljust(URL_MAX, b"x")
    assert parse_seed(longest) == Seed(longest.decode(), bare=False)
    with pytest.raises(BadSeed, match="longer than 2048"):
        parse_seed(longest + b"x")


@given(st.binary() | st.text().map(str.encode) | st.text("1,a.:/#[] \t").map(str.encode))
def test_any_line_is_a_normalised_seed_or_none_or_bad(line: bytes) -> None:
    try:
        seed = parse_seed(line)
    except BadSeed:
        return
    if seed is not None:
        assert normalise(seed.url) == seed.url
        assert parse_seed(seed_text(seed).encode()) == seed
