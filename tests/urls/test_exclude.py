"""The expressions of excluded URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.blocks import PatternList, parse_patterns


def test_each_line_is_an_expression() -> None:
    found = parse_patterns(b"\xef\xbb\xbf# who asked\r\n^https?://a\\.test/\n\n  /private#/  \n")
    assert [pattern.pattern for pattern in found.patterns] == [r"^https?://a\.test/", "/private#/"]
    assert found.bad == ()


def test_bad_line_is_reported_and_the_rest_holds() -> None:
    found = parse_patterns(b"good\nbro(ken\n\xff\n# no\nfine\n")
    assert [pattern.pattern for pattern in found.patterns] == ["good", "fine"]
    assert [number for number, _ in found.bad] == [2, 3]
    assert found.bad[0][1].startswith("not a regular expression: ")
    assert found.bad[1][1] == "not UTF-8"


def test_an_expression_holds_wherever_it_is_found() -> None:
    assert not PatternList().match("https://a.test/x")
    exclusions = parse_patterns(b"//b\\.test/\n/x$")
    assert exclusions.match("https://a.test/x")
    assert exclusions.match("https://b.test/y")
    assert not exclusions.match("https://a.test/xy")


HOST = "http://127.0.0.80:8080/"


@pytest.mark.parametrize(
    ("line", "excluded", "free"),
    [
        ("127.0.0.80", ["http://127.0.0.80/", HOST, "https://127.0.0.80:8443/a"], []),
        ("127.0.0.80:8080", [HOST], ["http://127.0.0.80/"]),
        ("http://127.0.0.80/", [HOST, "https://127.0.0.80/"], ["http://127.0.0.8/"]),
        ("[2001:DB8::1]", ["http://[2001:db8::1]:81/"], ["http://a.test/1"]),
        ("2001:db8::1", ["http://[2001:db8::1]:81/"], ["http://a.test/1"]),
        ("[::1]:81", ["http://[::1]:81/"], ["http://[::1]/", "http://a.test:81/"]),
        ("WWW.Example.ORG.", ["https://www.example.org:81/"], ["https://example.org/"]),
        ("Example.org", ["https://a.b.example.org:81/"], ["https://example.com/"]),
        ("https://example.org", ["http://example.org:81/"], ["https://www.example.org/"]),
        ("b\u00fccher.example", ["https://www.xn--bcher-kva.example/"], ["https://bcher.example/"]),
        ("^https?://a[0-9]", ["https://a1.test/"], ["https://b.test/"]),
        # As before, a name is an expression too.
        ("sign.in", ["https://b.test/sign.in?x", "https://sign.in/"], ["https://b.test/"]),
    ],
)
def test_a_name_excludes_its_host_at_all_ports(
    line: str, excluded: list[str], free: list[str]
) -> None:
    found = parse_patterns(line.encode())
    assert not found.bad
    assert [url for url in excluded + free if found.match(url)] == excluded


@given(st.binary())
def test_no_bytes_raise_and_no_line_is_both_good_and_bad(data: bytes) -> None:
    found = parse_patterns(data)
    assert len(found.patterns) + len(found.bad) <= len(data.splitlines())
