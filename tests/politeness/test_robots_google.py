"""The same results as Google's own parser, except for the differences listed here.

Site owners test their robots.txt with its rules. The URLs are spelt as it requires, with escapes in
upper case."""

from __future__ import annotations

import re
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jwm.robotstxt.googlebot import RobotsMatcher

from krowlspider.politeness.robots import RobotsRules
from tests.politeness.test_robots_rules import RULES
from tests.support.tables import table

AGENT = "krowlspider"
EVERYONE = "User-agent: *\n"


def ours(body: bytes, path: str) -> bool:
    return RobotsRules.parse(body, AGENT).allowed(f"https://example.com{path}")


def googles(body: bytes, path: str) -> bool:
    return RobotsMatcher().OneAgentAllowedByRobots(body, AGENT, f"https://example.com{path}")


class Difference(NamedTuple):
    """A robots.txt and a path, whether we may fetch it although Google's result differs, and
    why."""

    body: str | bytes
    path: str
    allowed: bool
    why: str


DIFFERENCES = {
    "robots.txt itself": Difference(
        EVERYONE + "Disallow: /",
        "/robots.txt",
        True,
        "RFC 9309, section 2.2.2: it is implicitly allowed.",
    ),
    "escaped letters of a rule": Difference(
        EVERYONE + "Disallow: /%62%61%7A",
        "/baz",
        False,
        "RFC 9309, section 2.2.2: they are unescaped before the comparison."
        " Google compares them as they stand.",
    ),
    "escaped letters of a URL": Difference(
        EVERYONE + "Disallow: /baz", "/%62az", False, "The same."
    ),
    "octets of escaped letters": Difference(
        EVERYONE + "Allow: /%62\nDisallow: /**",
        "/%62",
        False,
        "The same: what is compared is what is counted.",
    ),
    "escapes of a URL in lower case": Difference(
        EVERYONE + "Disallow: /*a",
        "/%aa",
        True,
        'RFC 3986, section 6.2.2.1: %aa is %AA, one octet without an "a".'
        " Google takes the URL's escapes as they stand.",
    ),
    "an escaped *": Difference(
        EVERYONE + "Disallow: /a%2A", "/a*", False, "RFC 9309, section 2.2.3, by its example."
    ),
    "an escaped $": Difference(EVERYONE + "Disallow: /a%24", "/a$b", False, "The same."),
    "an escaped ?": Difference(
        EVERYONE + "Disallow: /a%3Fb",
        "/a?b",
        False,
        "RFC 9309, section 2.2.2: reserved characters are escaped before the comparison.",
    ),
    "a space in a rule": Difference(
        EVERYONE + "Disallow: /a b",
        "/a%20b",
        False,
        "RFC 9309, section 2.2.2: characters that no URL has are escaped."
        " Google escapes only those beyond ASCII.",
    ),
    "text in Latin-1": Difference(
        (EVERYONE + "Disallow: /\u00e9").encode("latin-1"),
        "/%C3%A9",
        False,
        "RFC 9309, section 2.3, asks for UTF-8. What is not is read as what its author saw.",
    ),
    "UTF-16": Difference(
        (EVERYONE + "Disallow: /a").encode("utf-16"),
        "/a",
        False,
        "The same: some editors save it so.",
    ),
    "a space that does not break": Difference(
        EVERYONE + "Disallow:\u00a0/a", "/a", False, "It came from a web page with the rule."
    ),
    "index.html": Difference(
        EVERYONE + "Allow: /index.html\nDisallow: /",
        "/",
        False,
        "Google takes the directory for allowed with its index.html. RFC 9309 does not.",
    ),
    "a user agent of two words and no colon": Difference(
        "User agent *\nDisallow: /",
        "/a",
        False,
        "Google reads a line without a colon only if it is of two words.",
    ),
    "a colon in a path alone": Difference(
        EVERYONE + "Disallow /wiki/Special:Search",
        "/wiki/Special:Search",
        False,
        "Google takes it for the colon behind the name.",
    ),
    "a long line": Difference(
        EVERYONE + "Disallow: /" + "a" * 20_000,
        "/" + "a" * 17_000,
        True,
        "Google cuts lines at 16,664 octets. Half a rule is another rule.",
    ),
    "a long file": Difference(
        EVERYONE + "#\n" * 256_000 + "Disallow: /a",
        "/a",
        True,
        "RFC 9309, section 2.5: at least 500 KiB are read."
        " Google's parser leaves the cut to its caller.",
    ),
}


@table("name", DIFFERENCES)
def test_a_difference_is_as_explained(name: str) -> None:
    text, path, allowed, why = DIFFERENCES[name]
    body = text if isinstance(text, bytes) else text.encode()
    assert (ours(body, path), googles(body, path)) == (allowed, not allowed), why


# Cases of the table that show one of the differences.
SHOWN = {
    "a : of a query is an escaped one": "an escaped ?",
    "an escaped * is a * in the URL": "an escaped *",
    "an escaped : of a query is a :": "an escaped ?",
    "unreserved letters escaped": "escaped letters of a rule",
    "unreserved letters escaped in the URL": "escaped letters of a URL",
}


@table("name", RULES)
def test_the_table_of_rules_differs_where_it_is_explained(name: str) -> None:
    text, path, allowed = RULES[name]
    body = text if isinstance(text, bytes) else text.encode()
    assert (googles(body, path) is not allowed) is (name in SHOWN)


def test_every_difference_in_the_table_is_explained() -> None:
    assert set(SHOWN) <= set(RULES)
    assert set(SHOWN.values()) <= set(DIFFERENCES)


# Nothing of the differences is drawn here: every answer must be the same.
PARTS = [
    "/",
    "a",
    "b",
    ".php",
    "*",
    "**",
    "$",
    "?",
    "=",
    "&",
    ";",
    "~",
    "+",
    ":",
    "%",
    "%2F",
    "%25",
]
PATHS = st.lists(st.sampled_from([*PARTS, "%20", "%C3%A9"]), max_size=6).map("".join)
PATTERNS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["/", "/", "/", "*", ""]),
    st.lists(st.sampled_from([*PARTS, "%20", "%c3%A9", "\u00e9", "%7f"]), max_size=5).map("".join),
    st.sampled_from(["", "", "", "$"]),
)
ENDS = st.sampled_from(["", "", "", " ", "\t", "#", " # Allow: /", "\0/"])
COLONS = st.sampled_from([":", ": ", " : ", ":\t", "\t:"])
AGENTS = st.sampled_from(
    [
        *("*", "* all", "*bot", "krowlspider", "KROWLspider/1.0", "krowlspider images"),
        *("krowl", "krowlspider-news", "other", "1x", ""),
    ]
)
RULE_NAMES = st.sampled_from(
    ["Allow", "allow", "Allowed", "Disallow", "DISALLOW", "Disallowed", "Disallow all", "Disalow"]
)
UNKNOWN = st.sampled_from(
    [
        *("", " ", "#", "# Disallow: /", "<p>Disallow: /", "Noindex: /a", "Host: example.com"),
        *("Sitemap: https://example.com/s", "Content-Signal: ai-train=no", "Disallow", "Allow / a"),
        *("User-agent", "x", ":", "Disallow / for all", "Disallow /a", "Allow\t/a", "Allow *"),
        *("Crawl-delay: 5", "crawl delay:1", "Crawl-delay", "Request-rate: 1/5", "Visit-time: 1-2"),
        "Clean-param: s /a",
    ]
)
AGENT_NAMES = st.sampled_from(["User-agent", "user agent", "Useragents"])
LINES = st.one_of(
    st.builds("{}{}{}{}".format, AGENT_NAMES, COLONS, AGENTS, ENDS),
    st.builds("{}{}{}{}".format, RULE_NAMES, COLONS, PATTERNS, ENDS),
    st.builds("{}{}{}{}".format, RULE_NAMES, COLONS, PATTERNS, ENDS),
    st.builds("{}{}".format, st.sampled_from(["", "", " ", "\t"]), UNKNOWN),
)
FILES = st.builds(
    lambda mark, agent, lines, end: (mark + end.join([f"User-agent: {agent}", *lines])).encode(),
    st.sampled_from(["", "", "\ufeff"]),
    AGENTS,
    st.lists(LINES, min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
)


def has_lower_case_escape(path: str) -> bool:
    return re.search(r"%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f])", path) is not None


@settings(max_examples=400, deadline=None)
@given(FILES, st.lists(PATHS.map("/".__add__), min_size=1, max_size=5))
def test_generated_files_get_the_same_answers(body: bytes, paths: list[str]) -> None:
    for path in paths:
        assume(not has_lower_case_escape(path))
        assert ours(body, path) is googles(body, path)


@settings(max_examples=200, deadline=None)
@given(FILES, PATTERNS.map(str.encode), st.data())
def test_rule_matches_its_own_text_in_both(
    body: bytes, pattern: bytes, data: st.DataObject
) -> None:
    """Random paths match few of the longer patterns, so this path is made from a pattern."""
    text = pattern.decode().removesuffix("$")
    assume(text.startswith("/"))
    path = text.replace("*", data.draw(st.sampled_from(["", "a", "/b", "%C3%A9"])))
    path = path.replace("\u00e9", "%C3%A9").replace("%c3", "%C3").replace("%7f", "%7F")
    assume(not has_lower_case_escape(path))
    body = body + b"\nUser-agent: *\nUser-agent: krowlspider\nDisallow: " + pattern
    assert ours(body, path) is googles(body, path)
