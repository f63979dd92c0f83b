"""The normal form of URLs, their identity, and its key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import can_ada
import pytest
import xxhash
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from krowlspider.cluster.transport.message import BadMessage, decode
from krowlspider.frontier.entry import EntryLine
from krowlspider.middlewares.redirect import RedirectMiddleware
from krowlspider.urls.canonical import (
    _AUTHORITY,
    AUTHORITY_MAX,
    REFERENCE_MAX,
    WIDE_MAX,
    IdentityHasher,
    fits,
    fitting,
    identity,
    normalise,
    normalise_all,
    normalise_each,
    requisite_identity,
)
from krowlspider.urls.page.headers import read_links
from krowlspider.urls.page.links import MAX_LINKS, read_page
from krowlspider.urls.page.sitemap import Sitemap
from krowlspider.urls.scope import Scope, ScopeRules
from krowlspider.urls.seeds import BadSeed, parse_seed
from tests.support.tables import table
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

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


@table(
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


@table(
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


@table(
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


@table(
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


@table(
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


@table(
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


# --- bounds on the length of references ---


URL = "https://example.com/dir/page?q"
# The event loop's limit under attack, in seconds.
LIMIT = 0.25


def cjk(count: int, first: int = 0) -> str:
    return "".join(chr(0x4E00 + (first + number) * 7919 % 20_000) for number in range(count))


def escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


# Hosts that took seconds.
COSTLY = {
    "marks": "a" + "\u0301" * 1000 + "\u0316" * 1000,
    "more marks": "a" + "\u0301" * 20_000 + "\u0316" * 20_000,
    "ideographs": cjk(20_000),
    "escaped": escaped(cjk(10_000)),
    "punycode": "xn--" + "a" * 200_000 + "-0" + "a" * 200_000,
    "with a port": cjk(20_000) + ":8080",
    "a user": "u@" * 10 + cjk(20_000),
}
# Ways of a host into a reference.
FORMS = [
    *("http://{}/", "//{}/", "\\\\{}/", "/\t/{}", " \n http:{}", "HT\nTP://///{}?"),
    "https:\\/{}#x",
]

READERS: dict[str, Callable[[str], object]] = {
    "normalise": lambda url: normalise(url, URL),
    "a link": lambda url: read_page(f'<a href="{url}">'.encode(), URL, "utf-8").links,
    "a base": lambda url: (
        read_page(f'<base href="{url}"><a href=x>'.encode(), URL, "utf-8").links
        != [normalise("x", URL)]
    ),
    "a frame": lambda url: read_page(f'<iframe src="{url}">'.encode(), URL, "utf-8").links,
    "a refresh": lambda url: (
        read_page(f'<meta http-equiv=refresh content="0;url={url}">'.encode(), URL, "utf-8").links
    ),
    "canonical": lambda url: (
        read_page(f'<link rel=canonical href="{url}">'.encode(), URL, "utf-8").canonical
    ),
    "a Link header": lambda url: read_links([f"<{url}>;rel=next"], URL, follow_nofollow=False)[0],
    "canonical in a header": lambda url: read_links(
        [f"<{url}>;rel=canonical"], URL, follow_nofollow=False
    )[1],
    "a sitemap": lambda url: [
        page
        for pages in Sitemap().read(f"<urlset><url><loc>{url}</loc>".encode())
        for page in pages
    ],
}


@table(
    ("host", "form"),
    [*((host, FORMS[0]) for host in COSTLY), *(("ideographs", form) for form in FORMS[1:])],
)
def test_a_costly_host_is_refused_in_a_millisecond(host: str, form: str) -> None:
    url = form.format(COSTLY[host])
    assert normalise(url, URL) is None
    assert seconds(lambda: normalise(url, URL), enough=0.001) < 0.001


@table("reader", READERS)
@table("host", ["ideographs", "punycode"])
def test_a_costly_host_costs_little_wherever_it_stands(host: str, reader: str) -> None:
    url = f"http://{COSTLY[host]}/"
    assert not READERS[reader](url)
    # Most of it for reading 400 kB of page.
    assert seconds(lambda: READERS[reader](url), enough=0.02) < 0.02


def test_costly_hosts_are_refused_in_seeds_and_messages() -> None:
    url = f"http://{cjk(1500)}/"

    def refused() -> None:
        with pytest.raises(BadSeed):
            parse_seed(url.encode())
        with pytest.raises(BadMessage):
            decode(b'{"url": "%b"}' % url.encode())
        with pytest.raises(ValueError, match="not an http or https URL"):
            EntryLine(url=url).entry(url_max=2048)

    assert seconds(refused, enough=0.005) < 0.005


@table(
    "host",
    [
        lambda number: cjk(AUTHORITY_MAX - 5, number),
        lambda number: f"{number}a" + "\u0301" * 110 + "\u0316" * 110,
        lambda number: escaped(cjk(200, number)),
        lambda number: escaped(cjk(28, number)),
        lambda number: f"xn--{number}" + "a" * 120 + "-0" + "a" * 120,
        lambda number: f"xn--{number}" + "a" * 8000 + "-0" + "a" * 8000,
        lambda number: f"{number}" + "㌖㍿ﷲ" * 20,
        lambda number: cjk(14, number),
    ],
)
def test_the_worst_hosts_of_ten_thousand_links_are_bounded(host: Callable[[int], str]) -> None:
    # No more bytes of a page are read.
    count = min(MAX_LINKS, 4 * 1024 * 1024 // len(host(0).encode()))
    hrefs = [f"//{host(number)}/" for number in range(count)]
    assert seconds(lambda: normalise_all(hrefs, URL), enough=LIMIT) <= LIMIT


def test_references_too_long_are_counted_apart() -> None:
    hrefs = ["/1", "mailto:x", "/" + "x" * REFERENCE_MAX, f"http://{cjk(300)}/", "/2"]
    page = read_page("".join(f'<a href="{href}">' for href in hrefs).encode(), URL, "utf-8")
    assert page.links == ["https://example.com/1", "https://example.com/2"]
    assert (page.refused, page.oversize) == (1, 2)


def test_url_of_a_parsed_reference_fits() -> None:
    """Otherwise a retried page would be refused."""
    for host in (cjk(AUTHORITY_MAX), "x" * 5000, "㌖" * AUTHORITY_MAX):
        url = normalise(f"https://{host}/")
        assert url is not None
        assert normalise(url) == url


def test_no_url_is_queued_that_does_not_fit() -> None:
    scope = Scope(ScopeRules(), max_url_length=0)
    url = normalise("https://example.com/" + "é" * 3000)
    assert url is not None
    assert normalise(url) is None
    assert scope.refusal(url, "example.com", 1, None) == "length"
    assert scope.refusal(url[:REFERENCE_MAX], "example.com", 1, None) is None


def test_a_page_has_room_for_so_many_characters_of_hosts() -> None:
    hrefs = [f"//{cjk(250, number)}/" for number in range(WIDE_MAX // 250 + 5)]
    oversize: list[str] = []
    assert fitting([*hrefs, "/last"], oversize) == [*hrefs[:-5], "/last"]
    assert oversize == hrefs[-5:]


def test_ten_thousand_names_outside_ascii_fit_into_a_page() -> None:
    hrefs = [f"https://{cjk(9, number)}.中国/" for number in range(MAX_LINKS)]
    oversize: list[str] = []
    found = normalise_all(hrefs, URL, [], oversize)
    assert (len(found), oversize) == (len(set(hrefs)), [])


LABELS = st.text(st.sampled_from("aZ0-éüßñ中文字жя한글ü"), min_size=1, max_size=12)
HOSTS = st.lists(LABELS, min_size=1, max_size=14).map(".".join)


@given(HOSTS, st.text(max_size=200), st.booleans(), st.integers(min_value=0, max_value=9000))
@example("中" * 50 + "." + "文" * 50, "", True, 0)
def test_no_url_that_could_be_fetched_is_too_long(
    host: str, rest: str, is_escaped: bool, blanks: int
) -> None:
    name = escaped(host) if is_escaped else host
    reference = " " * blanks + f"https://{name}:8080/" + rest
    try:
        parsed = can_ada.parse(reference)
    except (ValueError, TypeError):
        return
    assume(len(parsed.hostname) <= 253 and len(parsed.href) <= 2048)
    assert fits(reference)


def test_a_long_fragment_is_no_part_of_a_length() -> None:
    reference = "/a#" + "é" * 300_000
    assert normalise_all([reference], URL) == ["https://example.com/a"]
    assert normalise(reference, URL) == "https://example.com/a"


@pytest.mark.parametrize(
    "reference",
    [
        "é" * 700,
        "%E3%81%82" * 80 + "/x",
        "?q=http://" + "中" * 500,
        "/" + "中" * 500,
        "./" + "中" * 300,
        "https://example.com/?" + "中" * 500,
        "../" * 4000 + "x",
    ],
)
def test_a_long_path_or_query_is_no_host(reference: str) -> None:
    assert normalise(reference, URL) is not None
    assert normalise_all([reference], URL) == [normalise(reference, URL)]


@pytest.mark.parametrize("base", ["http://base.example/a/b", "https://base.example/"])
@given(st.text(st.sampled_from("htps:/\\\t\n\r @a.%é?#\0[]1:"), max_size=14))
@example("http:\t/\n/a")
def test_every_host_that_is_parsed_has_been_measured(base: str, reference: str) -> None:
    try:
        parsed = can_ada.parse(base) + reference
    except (ValueError, TypeError):
        return
    if parsed.host not in ("base.example", ""):
        assert _AUTHORITY.match(reference) is not None


@pytest.mark.parametrize(
    ("location", "target"),
    [(f"http://{cjk(300)}/", None), ("http://münchen.example/", "http://xn--mnchen-3ya.example/")],
)
def test_an_ordinary_spider_is_not_sent_to_a_costly_host(location: str, target: str | None) -> None:
    crawler = get_crawler(settings_dict={"REDIRECT_MAX_TIMES": 10})
    middleware = RedirectMiddleware.from_crawler(crawler)
    crawler.spider = crawler._create_spider("ordinary")
    response = Response(URL, status=302, headers={"Location": location.encode()})
    answer = middleware.process_response(Request(URL), response)
    assert answer is response if target is None else answer.url == target
    assert crawler.stats.get_value("krowl/links/left_count/length", 0) == (target is None)
