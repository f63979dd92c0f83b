"""The expressions of excluded URLs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from krowlspider.urls.rules.exclude import PatternList, parse_patterns


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


@given(st.binary())
def test_no_bytes_raise_and_no_line_is_both_good_and_bad(data: bytes) -> None:
    found = parse_patterns(data)
    assert len(found.patterns) + len(found.bad) <= len(data.splitlines())
