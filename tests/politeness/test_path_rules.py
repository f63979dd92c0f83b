"""Patterns against paths: the same result as with regular expressions.

The time that they take is in test_robots_work.py.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.politeness.robots import PathRules, RobotsRules, spelt
from krowlspider.urls.robots_groups import BODY_MAX
from tests.support.tables import table


@table(
    ("text", "compared"),
    [
        ("/a~b_c-d.e", "/a~b_c-d.e"),
        ("/%61%7e%5f%2D%2E%30", "/a~_-.0"),
        ("/\u00e9 \u30c4", "/%C3%A9%20%E3%83%84"),
        ("/%c3%A9%e3%83%84", "/%C3%A9%E3%83%84"),
        ("/%3A%3f%23%5B%40%21%24%26%27%28%29%2b%2c%3b%3d", "/:?#[@!$&'()+,;="),
        ("/%2f%2F%25%252f", "/%2F%2F%25%252f"),
        ("/%00%1f%20%7f%80%ff", "/%00%1F%20%7F%80%FF"),
        ("/\x00\x7f", "/%00%7F"),
        ("/%%4%4g%", "/%%4%4g%"),
        ("*$", "*$"),
    ],
)
def test_paths_are_compared_in_one_spelling(text: str, compared: str) -> None:
    assert spelt(text) == compared


def matches(pattern: str, path: str) -> bool:
    """Return whether a pattern of plain letters matches, by a regular expression."""
    body, anchor = (pattern[:-1], r"\Z") if pattern.endswith("$") else (pattern, "")
    return re.match(".*".join(map(re.escape, body.split("*"))) + anchor, path) is not None


def allowed_by_all(rules: dict[str, bool], path: str) -> bool:
    """Return the verdict of the longest match, an Allow among equals, by trying every rule."""
    found = [(len(pattern), allow) for pattern, allow in rules.items() if matches(pattern, path)]
    return max(found, default=(0, True))[1]


PATTERNS = st.builds(
    "{}{}".format, st.sampled_from(["/", "/", "/", "*"]), st.text("ab/*$", max_size=6)
)


@given(
    st.dictionaries(PATTERNS, st.booleans(), max_size=6),
    st.text("ab/$", max_size=8).map("/".__add__),
)
def test_the_longest_match_decides(rules: dict[str, bool], path: str) -> None:
    assert PathRules(rules).allow(path) is allowed_by_all(rules, path)


# Most have a "*", short texts and long ones between them.
MANY = st.builds("/{}*{}".format, st.text("ab/*", max_size=4), st.text("ab/*$", max_size=8))


@given(
    st.dictionaries(MANY, st.booleans(), min_size=30, max_size=80),
    st.text("ab/$", max_size=16).map("/".__add__),
)
def test_of_many_patterns_the_longest_match_decides(rules: dict[str, bool], path: str) -> None:
    """Those that cannot match are not tried."""
    assert PathRules(rules).allow(path) is allowed_by_all(rules, path)


def file_of(rule: str, count: int) -> bytes:
    """Return a robots.txt of many rules, in which {} is a number, cut at the bytes that are
    read."""
    lines = "".join(rule.format(number) + "\n" for number in range(count))
    return f"User-agent: *\n{lines}".encode()[:BODY_MAX]


def test_undecided_path_is_disallowed() -> None:
    near = f"allow:/*{'a' * 100}b{'a' * 100}*{{}}"
    rules = RobotsRules.parse(file_of(near, 1000) + b"allow:/b", "krowlspider")
    path = f"{'a' * 1000}b{'a' * 1000}"
    assert rules.allowed(f"https://example.com/{path}") is None
    assert rules.allowed(f"https://example.com/b{path}") is None
    assert rules.allowed("https://example.com/aaaaaaaaaa") is True
    assert rules.allowed("https://example.com/robots.txt") is True


SHOP = {
    **{f"/*/{number}?sort=": False for number in range(500)},
    **{f"/*&p{number}=": False for number in range(300)},
    **{f"/shop/*/item-{number}$": False for number in range(300)},
    **{f"/shop/*.{ending}": number % 3 == 0 for number, ending in enumerate(["php", "html", "js"])},
    "/shop/*/item-7*": True,
    "*?": False,
}


@pytest.mark.parametrize(
    "path",
    [
        "/shop/shoes/item-12",
        "/shop/shoes/item-12.html",
        "/shop/shoes/item-71.php",
        "/shop/499?sort=up&p299=1",
        "/about/us",
        "/" + "a/" * 1000,
        "/a/499?sort=" + "up&p299=1&" * 180,
        "/shop/" + "item-7/" * 200 + "item-299",
        "/" + "%C3%A9" * 300 + "/a/1?sort=&p=1",
    ],
)
def test_a_thousand_ordinary_wildcards_are_decided_exactly(path: str) -> None:
    assert PathRules(SHOP).allow(path) is allowed_by_all(SHOP, path)


def test_ordinary_rules_are_far_from_too_long_to_decide() -> None:
    rules = RobotsRules.parse(file_of("Disallow: /*/{}?sort=", 1500), "krowlspider")
    assert rules.allowed("https://example.com/" + "a/" * 1000)
