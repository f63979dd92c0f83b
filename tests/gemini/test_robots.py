"""Robots.txt of Gemini: the companion specification, and the ancestor's cases.

Cases marked TLGS are those of its tests (tlgsutils/tests/robots_txt_parser_test.cpp).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.gemini.robots import FOLLOWED, read
from krowlspider.politeness.gemini import PrefixRules
from krowlspider.urls.robots_groups import BODY_MAX

OURS = (*FOLLOWED, "krowlspider")


def prefixes(text: str | bytes, *agents: str) -> list[str]:
    return read(text if isinstance(text, bytes) else text.encode(), agents or OURS)


# TLGS: the body, the agents, and the prefixes that are disallowed.
TLGS = [
    ("User-agent: *\nDisallow: /\n", ["*"], ["/"]),
    ("User-agent: gus\nDisallow: /\n", ["tlgs"], []),
    ("User-agent: gus\nDisallow: /\n\nUser-agent: tlgs\nDisallow: /mydir", ["tlgs"], ["/mydir"]),
    ("User-agent: gus\nUser-agent: tlgs\nDisallow: /\n", ["tlgs"], ["/"]),
    ("User-agent: gus\nUser-agent: tlgs\nDisallow: /\n", ["gus"], ["/"]),
    ("User-agent: *\nDisallow: /\n\nUser-agent: tlgs\nDisallow: \n", ["tlgs", "*"], []),
    ("User-agent: *\nDisallow: /\n\nUser-agent: tlgs\nDisallow: \n", ["*"], ["/"]),
    ("", ["tlgs", "*"], []),
    (
        "User-agent: indexer\nDisallow: /test\nUser-agent: researcher\nDisallow: /\n",
        ["indexer", "*"],
        ["/test"],
    ),
    ("user-agent: indexer\nDisallow: /test\n", ["indexer", "*"], ["/test"]),
    ("User-agent: indexer\ndisallow: /test\n", ["indexer", "*"], ["/test"]),
    ("User-AGEnT: indexer\ndisalloW: /test\n", ["indexer", "*"], ["/test"]),
    ("User-agent: \tindexer\nDisallow:         /test\n", ["indexer", "*"], ["/test"]),
    ("        User-agent: indexer\n        Disallow: /test\n", ["indexer", "*"], ["/test"]),
    ("User-agent: indexer\r\nDisallow: /test\r\n", ["indexer", "*"], ["/test"]),
    # No agent is named, so the line is for all.
    ("Disallow: /foo\n", ["indexer"], ["/foo"]),
]


@pytest.mark.parametrize(("body", "agents", "expected"), TLGS)
def test_reads_files_as_the_ancestor_does(body: str, agents: list[str], expected: list[str]):
    assert prefixes(body, *agents) == expected


# TLGS: a path, a prefix, and whether it is blocked.
BLOCKED = [
    *(("/", "/", True), ("/foo", "/", True), ("/bar", "/foo", False), ("/foo", "/foobar", False)),
    *(("/foo", "/foo/", False), ("/foo/", "/foo", True), ("/foo/bar/", "/foo", True)),
    *(("/foo/", "/foo/bar", False), ("/foo/bar.txt", "/foo", True)),
    *(("/foo/bar.txt", "/foo/*", True), ("/foo/bar.txt", "*.txt", True)),
    *(("/foo/bar.txt", "*.ogg", False), ("/foo/dir1/bar.txt", "*.txt", True)),
    *(("/foo/dir1/bar.txt", "*.txt$", True), ("/foo/some_dir/bar.txt", "*some_dir*", True)),
    *(("/foo/other_dir/bar.txt", "*some_dir*", False),),
    *(("/foo/other_dir/baz/bar.txt", "/foo/*/baz", True),),
    *(("/foo/123/bar/456/baz", "/foo/*/bar/*/baz", True),),
    *(("/foo/123/bar/baz", "/foo/*/bar/*/baz", False), ("/foo/123/bar/baz", "/foo/*/bar/*", True)),
    *(("/foo", "/***", True), ("/foo/(", "/foo/(", True)),
    *(("/*/asd/*/.mp3", "/foo/asd/bar/1mp3", False), ("/foo/\\*", "/foo/*", True)),
    # TLGS does not block this: there a prefix is one of whole segments. The specification speaks of
    # prefixes of the path, so "/foo" covers it.
    ("/foo.txt", "/foo", True),
    # TLGS blocks this: it takes "*/cgi-bin/" for a part that may be missing. No rule of any
    # specification matches, as the path has "gci-bin".
    ("/~testuser/gci-bin/test.txt", "/~*/cgi-bin/", False),
    ("/~testuser/cgi-bin/test.txt", "/~*/cgi-bin/", True),
]


@pytest.mark.parametrize(("path", "prefix", "is_blocked"), BLOCKED)
def test_prefixes_match_with_wildcards(path: str, prefix: str, is_blocked: bool):
    """The form of 1994 has no wildcards. Who writes one means it, so it is followed."""
    rules = PrefixRules(prefixes(f"User-agent: *\nDisallow: {prefix}"))
    assert rules.allowed(f"gemini://example.org{path}") is not is_blocked


def test_groups_of_all_activities_hold_together():
    body = (
        "User-agent: archiver\nDisallow: /a\n\nUser-agent: indexer\nDisallow: /i\n\n"
        "User-agent: researcher\nDisallow: /r\n\nUser-agent: webproxy\nDisallow: /w\n\n"
        "User-agent: krowlspider\nDisallow: /k\n\nUser-agent: *\nDisallow: /all\n"
    )
    assert sorted(prefixes(body)) == ["/a", "/all", "/i", "/k", "/r"]


def test_proxies_alone_are_not_meant():
    assert prefixes("User-agent: webproxy\nDisallow: /") == []


@pytest.mark.parametrize("allow", ["Allow: /", "Allow: /docs", "Crawl-delay: 5", "Sitemap: /x"])
def test_allow_and_other_lines_are_ignored(allow: str):
    assert prefixes(f"User-agent: *\n{allow}\nDisallow: /\n{allow}\n") == ["/"]


def test_comments_are_no_rules():
    assert prefixes("# Disallow: /x\nUser-agent: * # all\nDisallow: /y # why\n") == ["/y"]


def test_empty_disallow_lifts_the_group_for_all():
    everyone = "User-agent: *\nDisallow: /\n\n"
    welcome = "".join(f"User-agent: {name}\n" for name in ("archiver", "indexer", "researcher"))
    assert prefixes(f"{everyone}{welcome}Disallow:\n") == []
    # As an archiver the crawler is still one of all.
    assert prefixes(f"{everyone}User-agent: indexer\nDisallow:\n") == ["/"]
    assert prefixes(f"{everyone}User-agent: krowlspider\nDisallow:\n") == []


def test_prefixes_beside_an_empty_disallow_hold():
    assert prefixes("User-agent: indexer\nDisallow:\nDisallow: /x\n") == ["/x"]


def test_a_group_without_disallow_is_no_group():
    body = "User-agent: krowlspider\nAllow: /\n\nUser-agent: *\nDisallow: /x\n"
    assert prefixes(body) == ["/x"]


def test_an_agent_may_have_several_groups():
    body = "User-agent: indexer\nDisallow: /a\n\nUser-agent: indexer\nDisallow: /b\n"
    assert prefixes(body) == ["/a", "/b"]


def test_a_prefix_without_slash_is_a_path():
    assert prefixes("User-agent: *\nDisallow: cgi-bin/\n") == ["/cgi-bin/"]


def test_only_so_many_bytes_are_read():
    line = b"Disallow: /%06d\n"
    body = b"User-agent: *\n" + b"".join(line % number for number in range(60_000))
    found = prefixes(body)
    assert len(found) == (BODY_MAX - len(b"User-agent: *\n")) // len(line % 0)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_raise(body: bytes):
    found = prefixes(body)
    assert all(each[0] in "/*" for each in found)
    PrefixRules(found).allowed("gemini://example.org/x")
