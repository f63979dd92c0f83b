"""The normal form of URLs, their identity, and its key."""

from __future__ import annotations

import re

import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from krowlspider.urls.canonical import (
    IdentityHasher,
    identity,
    normalise,
    normalise_all,
    normalise_each,
    requisite_identity,
)

BASE = "https://example.com/a/b/c?x=1"

NAMES = ["a", "b", "a[]", "A", "ref", "utm_source", "utm_", "gclid", "hsa_acc", "gclidx", ""]
NAMES += ["PHPSESSID", "cftoken", "sid", "S", "sidx"]
MD5 = "d41d8cd98f00b204e9800998ecf8427e"
PARAMETERS = st.one_of(
    st.sampled_from(NAMES),
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from(["", "1", "2", "%31", "=", MD5, MD5[1:]])
    ).map("=".join),
)
QUERIES = st.lists(PARAMETERS, max_size=6).map("&".join)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://EXAMPLE.com:80", "http://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("https://example.com/a/./b/../c#top", "https://example.com/a/c"),
        ("https://example.com/?#", "https://example.com/?"),
        ("  https://example.com/a b\n", "https://example.com/a%20b"),
        ("https://münchen.de/ä?ü", "https://xn--mnchen-3ya.de/%C3%A4?%C3%BC"),
        ("http:\\\\example.com\\x", "http://example.com/x"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("https://@example.com/", "https://example.com/"),
        ("https://example.com/@me?to=a@b", "https://example.com/@me?to=a@b"),
        ("https://www.example.com//a/", "https://www.example.com//a/"),
    ],
)
def test_url_is_normalised_as_by_browsers(url: str, normal: str) -> None:
    assert normalise(url) == normal


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/relative",
        "example.com",
        "ftp://example.com/",
        "mailto:a@example.com",
        "javascript:void(0)",
        "data:text/html,x",
        "http://",
        "http://a b/",
        "http://example.com:99999/",
        "http://xn--/",
        "http://user:password@example.com/",
        "http://user@example.com/",
        "http://exa\ud800mple.com/",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    assert normalise(url) is None


@pytest.mark.parametrize(
    ("href", "normal"),
    [
        ("d", "https://example.com/a/b/d"),
        ("../d", "https://example.com/a/d"),
        ("/d?y", "https://example.com/d?y"),
        ("?y", "https://example.com/a/b/c?y"),
        ("#top", BASE),
        ("", BASE),
        ("//other.example/", "https://other.example/"),
        ("http://other.example", "http://other.example/"),
        ("mailto:a@example.com", None),
        ("https://u:p@example.com/", None),
    ],
)
def test_an_href_is_joined_to_its_base(href: str, normal: str | None) -> None:
    assert normalise(href, BASE) == normal


@pytest.mark.parametrize("href", ["/a//", "/a/.", "/a/./b", "/a/..", "/a//b?c", "/.a/b/.?c/."])
def test_a_path_with_dot_segments_is_no_plain_one(href: str) -> None:
    """What is joined without the parser is what the parser makes. (Python 3.11.2 had a fault.)"""
    assert list(normalise_each({href: ""}, BASE)) == [normalise(f"https://example.com{href}")]


def test_an_unreadable_base_gives_nothing() -> None:
    assert normalise("/a", "not a base") is None


def test_hrefs_in_bulk_keep_order_and_lose_repeats() -> None:
    hrefs = ["z", "a", "mailto:x", "./z", "http://[bad", "a#1", "a#2", "b\ud800", "/", "a"]
    assert normalise_all(hrefs, "https://example.com/") == [
        "https://example.com/z",
        "https://example.com/a",
        "https://example.com/",
    ]


def test_an_unreadable_base_of_hrefs_raises() -> None:
    with pytest.raises(ValueError, match="parse"):
        normalise_all(["a"], "not a base")


@given(
    st.text()
    | st.text("ht:/?#@[].%\\a1 ").map("http:".__add__)
    | st.text("/?.a:@&'%2E\\\t|^", max_size=12).map("/".__add__)
)
@example("/a/..?b")
@example("/?'")
@example("/%2E/a")
def test_normalising_is_idempotent_and_equal_in_bulk(text: str) -> None:
    normal = normalise(text, BASE)
    assert normalise_all([text], BASE) == ([] if normal is None else [normal])
    if normal is not None:
        assert normalise(normal) == normal
        assert normal.isascii()
        assert "#" not in normal


@pytest.mark.parametrize(
    ("url", "known_as"),
    [
        ("https://h/a", "https://h/a"),
        ("https://h/a?", "https://h/a?"),
        ("https://h/a?b", "https://h/a?b"),
        ("https://h/a?utm_source=x", "https://h/a"),
        ("https://h/a?utm_source=x&id=1", "https://h/a?id=1"),
        ("https://h/a?id=1&gclid=2&fbclid=3&hsa_acc=4", "https://h/a?id=1"),
        ("https://h/a?ref=x", "https://h/a?ref=x"),
        ("https://h/a?gclidx=1&xgclid=1&utm=1", "https://h/a?gclidx=1&utm=1&xgclid=1"),
        ("https://h/a?UTM_SOURCE=x", "https://h/a?UTM_SOURCE=x"),
        ("https://h/a?b=2&a=1", "https://h/a?a=1&b=2"),
        ("https://h/a?a=2&a=1", "https://h/a?a=2&a=1"),
        ("https://h/a?b&a=&&c", "https://h/a?&a=&b&c"),
        ("https://h/a?b=%41&a=+", "https://h/a?a=+&b=%41"),
        ("https://h/a?q=a?utm_source=b", "https://h/a?q=a?utm_source=b"),
        ("https://h/utm_source=x", "https://h/utm_source=x"),
        ("https://h/a;jsessionid=0A1B.node1", "https://h/a"),
        ("https://h/a;JSESSIONID=1!-2/b;v=1?c", "https://h/a/b;v=1?c"),
        ("https://h/a;v=1;jsessionid=2;w", "https://h/a;v=1;w"),
        ("https://h/a;jsessionidx=1?b;jsessionid=2", "https://h/a;jsessionidx=1?b;jsessionid=2"),
        ("https://h/a?PHPSESSID=x&id=1", "https://h/a?id=1"),
        ("https://h/a?id=1&ASPSESSIONIDQQRSTUVW=X&CFID=1&CFTOKEN=2&osCsid=3", "https://h/a?id=1"),
        (f"https://h/a?sid={MD5}", "https://h/a"),
        (f"https://h/a?s={MD5.upper()}&b", "https://h/a?b"),
        ("https://h/a?session_id=0123456789abcdef", "https://h/a"),
        # These may as well choose the page.
        ("https://h/a?sid=12", "https://h/a?sid=12"),
        ("https://h/a?sid=" + "story" * 8, "https://h/a?sid=" + "story" * 8),
        ("https://h/a?sid=507f1f77bcf86cd799439011", "https://h/a?sid=507f1f77bcf86cd799439011"),
        ("https://h/a?session_id=7", "https://h/a?session_id=7"),
        (f"https://h/a?id={MD5}", f"https://h/a?id={MD5}"),
    ],
)
def test_identity_ignores_tracking_sessions_and_order(url: str, known_as: str) -> None:
    assert identity(url) == known_as


@pytest.mark.parametrize(
    ("url", "known_as"),
    [
        ("https://h/%c3%a9", "https://h/%C3%A9"),
        ("https://h/%C3%a9%2f%E3b", "https://h/%C3%A9%2F%E3b"),
        ("https://h/a%2fb?c%3d=%2Fd%2f", "https://h/a%2Fb?c%3D=%2Fd%2F"),
        ("https://h/?b=%c3&a=%e9", "https://h/?a=%E9&b=%C3"),
        ("https://h/?%c3=1&%C3=0", "https://h/?%C3=1&%C3=0"),
        ("https://h/a%3bx;jsessionid=1?utm_source=%c3&id=%3f", "https://h/a%3Bx?id=%3F"),
        # What is no escape stays, and so does an escape of an escape.
        ("https://h/%u00e9%g1%", "https://h/%u00e9%g1%"),
        ("https://h/100%a%5%c3", "https://h/100%a%5%C3"),
        ("https://h/%%c3%25c3", "https://h/%%C3%25c3"),
        ("https://h/%e", "https://h/%e"),
        # RFC 3986, section 6.2.2.2, would decode these. A server can distinguish them.
        ("https://h/%7euser", "https://h/%7Euser"),
        ("https://h/~user", "https://h/~user"),
        ("https://h/%61?%5f=%2d", "https://h/%61?%5F=%2D"),
        # Text beside an escape keeps its case.
        ("https://h/%c3abcdef", "https://h/%C3abcdef"),
        ("https://h/%AFaf%AF", "https://h/%AFaf%AF"),
    ],
)
def test_identity_ignores_the_case_of_escapes(url: str, known_as: str) -> None:
    assert identity(url) == known_as
    hasher = IdentityHasher(3)
    others = ["https://h/a?b=%2f", "https://h/c", "https://h/%2F?d"]
    assert hasher.keys([*others, url]) == [hasher.key(each) for each in (*others, known_as)]
    requisite = [requisite_identity(each) for each in (url, known_as)]
    assert len({*hasher.keys(requisite)}) == 1


@given(st.text("%aAfF3g/;=\u00e9", max_size=12))
@example("%%3%aa")
def test_identity_changes_only_letters_of_escapes(text: str) -> None:
    url = normalise(f"https://h/{text}?{text}")
    assert url is not None
    known_as = identity(url)
    assert identity(known_as) == known_as
    assert known_as.lower() == url.lower()
    changed = [at for at, letter in enumerate(url) if known_as[at] != letter]
    assert all(re.search("%[0-9A-Fa-f]?$", url[at - 2 : at]) for at in changed)
    assert IdentityHasher(3).keys([url]) == [IdentityHasher(3).key(known_as)]


@pytest.mark.parametrize(
    "parameter",
    [
        "session_id=opening-the-2024-keynote",
        "sessionId=keynote2024",
        "sessionid=introductiontobroadcrawls",
        "sessionid=20240612103000123",
        "sessionId=3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "sessId=%7B3F2504E0-4F89-11D3-9A0C-0305E82C3301%7D",
        f"s={'0a' * 20}",
        f"s={'0a' * 32}",
        f"sid={'0a' * 32}",
        f"s=page-{MD5}",
        f"sid={MD5}-2",
        f"pages={MD5}",
    ],
)
def test_similar_parameters_are_no_session_ids(parameter: str) -> None:
    """For example a talk by its title, a document by its GUID, a file by its SHA-1 or SHA-256."""
    name, _, value = parameter.partition("=")
    other = f"{name}={value.translate(str.maketrans('0i', '1e'))}"
    assert other != parameter
    for query in (parameter, other):
        assert identity(f"https://h/a?a&{query}") == f"https://h/a?a&{query}"


def by_name(query: str) -> dict[str, list[str]]:
    """Return the parameters of a query that a server can distinguish."""
    found: dict[str, list[str]] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        session = name in {"PHPSESSID", "cftoken"} or (name in {"sid", "S"} and value == MD5)
        if not session and name != "gclid" and not name.startswith(("utm_", "hsa_")):
            found.setdefault(name, []).append(part)
    return found


@given(QUERIES, QUERIES)
@example("", "utm_source=1")
@example("a=1&a=2", "a=2&a=1")
@example("a&b", "b&a")
def test_identities_are_equal_only_for_equal_queries(a: str, b: str) -> None:
    same = identity(f"https://h/?{a}") == identity(f"https://h/?{b}")
    assert same == (by_name(a) == by_name(b))


PATHS = st.lists(st.sampled_from(["/", ";", "jsessionid=", "JSessionID=1", "a", "="])).map("".join)


@given(PATHS, QUERIES)
def test_identity_is_its_own_identity(path: str, query: str) -> None:
    once = identity(f"https://h/{path}?{query}")
    assert identity(once) == once


@given(PATHS, QUERIES)
def test_session_id_anywhere_changes_no_identity(path: str, query: str) -> None:
    plain = identity(f"https://h/{path};v/x?{query}")
    assert identity(f"https://h/{path};jsessionid=7A;v/x?{query}") == plain
    assert identity(f"https://h/{path};v/x?{query}&sid={MD5}") == identity(
        f"https://h/{path};v/x?{query}"
    )


def test_a_key_is_the_seeded_hash_of_the_identity() -> None:
    url = "https://h/?b=1&a=2&utm_source=x"
    expected = xxhash.xxh3_64_intdigest(b"https://h/?a=2&b=1", seed=7).to_bytes(8, "big")
    assert IdentityHasher(7).key(url) == expected


def test_keys_differ_by_scheme_and_by_seed() -> None:
    hasher = IdentityHasher(1)
    keys = {hasher.key("http://h/"), hasher.key("https://h/"), IdentityHasher(2).key("http://h/")}
    assert len(keys) == 3


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_that_would_not_fit_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        IdentityHasher(seed)


@given(
    st.lists(st.tuples(st.sampled_from(["/a", "/a;jsessionid=1", "/b;x/c"]), QUERIES), max_size=4)
)
def test_keys_in_bulk_are_those_of_each(parts: list[tuple[str, str]]) -> None:
    hasher = IdentityHasher(3)
    urls = [f"https://h{path}{'?' * bool(query)}{query}" for path, query in parts]
    assert hasher.keys(urls) == [hasher.key(url) for url in urls]
