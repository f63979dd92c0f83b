"""References are refused by their length before they are parsed; those of honest pages are not
refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import can_ada
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from krowlspider.cluster.transport.message import decode
from krowlspider.cluster.transport.meta import BadMessage
from krowlspider.frontier.entry import EntryLine
from krowlspider.urls.canonical import (
    _AUTHORITY,
    AUTHORITY_MAX,
    REFERENCE_MAX,
    WIDE_MAX,
    fits,
    fitting,
    normalise,
    normalise_all,
)
from krowlspider.urls.page.headers import read_links
from krowlspider.urls.page.links import MAX_LINKS, Page, read_page
from krowlspider.urls.page.sitemap import Sitemap
from krowlspider.urls.scope import Scope, ScopeRules
from krowlspider.urls.seeds import BadSeed, parse_seed
from middlewares.redirect import RedirectMiddleware
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://example.com/dir/page?q"
# The event loop's limit under attack, in seconds.
LIMIT = 0.25


def cjk(count: int, first: int = 0) -> str:
    return "".join(chr(0x4E00 + (first + number) * 7919 % 20_000) for number in range(count))


def escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


# Hosts that took seconds.
COSTLY = {
    "combining marks": "a" + "\u0301" * 20_000 + "\u0316" * 20_000,
    "ideographs": cjk(20_000),
    "escaped": escaped(cjk(10_000)),
    "punycode": "xn--" + "a" * 200_000 + "-0" + "a" * 200_000,
    "with a port": cjk(20_000) + ":8080",
    "a user": "u@" * 10 + cjk(20_000),
}
# Ways of a host into a reference.
FORMS = [
    "http://{}/",
    "//{}/",
    "\\\\{}/",
    "/\t/{}",
    " \n http:{}",
    "HT\nTP://///{}?",
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("host", COSTLY)
def test_a_costly_host_is_refused_in_a_millisecond(host: str, form: str) -> None:
    url = form.format(COSTLY[host])
    assert normalise(url, URL) is None
    assert seconds(lambda: normalise(url, URL), enough=0.001) < 0.001


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("host", COSTLY)
def test_a_costly_host_costs_little_wherever_it_stands(host: str, reader: str) -> None:
    url = f"http://{COSTLY[host]}/"
    assert not READERS[reader](url)
    # Most of it for reading 400 kB of page.
    assert seconds(lambda: READERS[reader](url), enough=0.02) < 0.02


def test_two_thousand_marks_are_refused_in_a_millisecond() -> None:
    url = "http://a" + "\u0301" * 1000 + "\u0316" * 1000 + "/"
    assert normalise(url) is None
    assert seconds(lambda: normalise(url)) < 0.001


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


@pytest.mark.parametrize(
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
    ids=[
        "ideographs",
        "marks",
        "escaped",
        "escaped, short",
        "punycode",
        "long punycode",
        "expanding",
        "honest",
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


def redirected(location: bytes) -> tuple[Any, dict[str, Any]]:
    crawler = get_crawler(settings_dict={"REDIRECT_MAX_TIMES": 10})
    middleware = RedirectMiddleware.from_crawler(crawler)
    crawler.spider = crawler._create_spider("ordinary")
    response = Response(URL, status=302, headers={"Location": location})
    return middleware.process_response(Request(URL), response), crawler.stats.get_stats()


def test_an_ordinary_spider_is_not_sent_to_a_costly_host() -> None:
    answer, stats = redirected(b"http://" + cjk(300).encode() + b"/")
    assert answer.status == 302
    assert stats["krowl/links/left_count/length"] == 1


def test_an_ordinary_spider_is_redirected_as_ever() -> None:
    answer, stats = redirected("http://münchen.example/".encode())
    assert answer.url == "http://xn--mnchen-3ya.example/"
    assert "krowl/links/left_count/length" not in stats


def test_a_page_without_links_has_no_length() -> None:
    assert Page().oversize == 0
