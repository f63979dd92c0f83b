"""The line of a robots.txt that is shown as the one that decides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from krowlspider.politeness.robots import RULES_MAX, RobotsRules, deciding_line
from tests.politeness.test_robots_google import FILES, PATHS

AGENT = "krowlspider"
FILE = b"""\
User-agent: badbot
Disallow: /a

User-agent: *\r
Disallow: /a  # all
Allow: /a/b
disalow /*.pdf$
Disallow: /same
Allow: /same
"""


@pytest.mark.parametrize(
    ("path", "number", "text"),
    [
        ("/a/c", 5, "Disallow: /a  # all"),
        ("/a/b/c", 6, "Allow: /a/b"),
        ("/x.pdf", 7, "disalow /*.pdf$"),
        ("/same", 9, "Allow: /same"),
    ],
)
def test_the_longest_rule_of_the_own_group_is_named(path: str, number: int, text: str) -> None:
    found = deciding_line(FILE, AGENT, f"https://example.com{path}")
    assert found == (number, text)


def test_no_line_is_named_where_none_decides() -> None:
    assert deciding_line(FILE, AGENT, "https://example.com/b") is None
    many = FILE + b"".join(b"Disallow: /%d\n" % at for at in range(RULES_MAX))
    assert deciding_line(many, AGENT, "https://example.com/a/c") is None


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_no_error(encoding: str) -> None:
    body = "User-agent: *\nDisallow: /\u00e9\n".encode(encoding)
    url = "https://example.com/%C3%A9"
    assert RobotsRules.parse(body, AGENT).allowed(url) is False
    found = deciding_line(body, AGENT, url)
    assert (found is None) is (encoding == "utf-16")


@settings(max_examples=200, deadline=None)
@given(FILES, PATHS)
def test_the_line_agrees_with_the_decision(body: bytes, path: str) -> None:
    url = f"https://example.com/{path}"
    found = deciding_line(body, AGENT, url)
    if found is None:
        assert RobotsRules.parse(body, AGENT).allowed(url)
    elif path != "robots.txt":
        decided = RobotsRules.parse(b"User-agent: *\n" + found.text.encode(), AGENT)
        # A rule that allows decides nothing by itself.
        assert decided.allowed(url) is RobotsRules.parse(body, AGENT).allowed(url)
