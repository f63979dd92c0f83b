"""Reading of the headers Link and X-Robots-Tag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import Headers

from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.headers import (
    MAX_HEADER_LINKS,
    escape_octets,
    price_in,
    read_links,
    read_robots_tag,
    value_of,
    values_of,
)
from tests.support.tables import table
from tests.support.work import seconds

URL = "https://example.com/dir/page?q"


def links(*headers: str, follow_nofollow: bool = False) -> list[str]:
    found, _ = read_links(headers, URL, follow_nofollow=follow_nofollow)
    return [url.removeprefix("https://example.com/") for url in found]


@table(
    ("header", "expected"),
    [
        ('</1>; rel="next"', ["1"]),
        ("<x>;rel=prev", ["dir/x"]),
        ("<?p=2> ; REL = Next", ["dir/page?p=2"]),
        ('</1>; rel="next", </2>; rel="last"', ["1", "2"]),
        ('</1,2;3>; title="a, b; <c> \\" rel=x"; rel=next, </4>; rel=up', ["1,2;3", "4"]),
        ('</1>; rel="start http://example.net/other"', ["1"]),
        ('</1>; rel=next; rel=preload, </2>; rel="preload"; rel=next', ["1"]),
        ('</1>; rel=alternate; hreflang=de; type="text/html"', ["1"]),
        (
            "</1>; rel=next,,</1>; rel=prev, <//other.example/>; rel=related",
            ["1", "https://other.example/"],
        ),
        ('</1>; rel="next', []),
        ('</1>; rel="next, </2>; rel=next', ["2"]),
        ("</1>", []),
        ("</1; rel=next", []),
        ("<mailto:a@b.c>; rel=next", []),
        ("</1>; rel=next; anchor=/2", []),
        ('</wp-json/>; rel="https://api.w.org/"', []),
        ("</p.json>; rel=alternate; type=application/json", []),
        ("</a.css>; rel=preload; as=style, </>; rel=preconnect, </i>; rel=icon", []),
        ("</>; rel=dns-prefetch, </a.css>; rel=stylesheet, </c>; rel=canonical", []),
    ],
)
def test_links_are_those_that_lead_to_another_page(header: str, expected: list[str]) -> None:
    assert links(header) == expected


def test_several_headers_are_read_as_one() -> None:
    assert links("</1>; rel=next", "</2>; rel=prev") == ["1", "2"]


def test_nofollow_is_kept_unless_it_is_to_be_followed() -> None:
    header = '</1>; rel="next nofollow"'
    assert links(header) == []
    assert links(header, follow_nofollow=True) == ["1"]


def test_canonical_is_the_first_and_joined_to_the_page() -> None:
    headers = ["</a>; rel=next, <c#d>; rel=Canonical", "</e>; rel=canonical"]
    assert read_links(headers, URL, follow_nofollow=False)[1] == "https://example.com/dir/c"
    assert read_links([], URL, follow_nofollow=False) == ([], None)


def test_a_page_gives_a_bounded_number_of_links() -> None:
    many = ",".join(f"</{number}>;rel=item" for number in range(MAX_HEADER_LINKS + 10))
    assert len(links(many)) == MAX_HEADER_LINKS


@table("piece", ["a", "<", "<>", '"', '\\"', '<>;"', ";a=", "<>;a=", " ", '<>;a="\\'])
def test_a_hostile_header_is_read_in_linear_time(piece: str) -> None:
    header = piece * (64_000 // len(piece))

    def read() -> None:
        links(header)
        read_robots_tag([header + "<:"], "krowlspider")

    assert seconds(read, enough=0.5) < 0.5


HEADER = st.text('<>;,="\\ ab/', max_size=60) | st.text(max_size=30)


@given(st.lists(HEADER, max_size=3))
def test_any_header_gives_normalised_urls(headers: list[str]) -> None:
    found, canonical = read_links(headers, URL, follow_nofollow=True)
    assert [normalise(link) for link in found] == found
    assert canonical is None or normalise(canonical) == canonical
    read_robots_tag(headers, "krowlspider")


@table(
    ("headers", "rules"),
    [
        ([], set()),
        (["noindex"], {"noindex"}),
        (["NoIndex, NOFOLLOW"], {"noindex", "nofollow"}),
        (["noindex", "nofollow"], {"noindex", "nofollow"}),
        (["KrowlSpider: none"], {"none"}),
        (["otherbot: noindex, nofollow"], set()),
        (["otherbot: noindex, krowlspider: nofollow, noarchive"], {"nofollow", "noarchive"}),
        (["noindex, otherbot: nofollow"], {"noindex"}),
        (["otherbot: noindex", "nofollow"], {"nofollow"}),
        (["*: nofollow"], {"nofollow"}),
        (
            ["unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"],
            {"unavailable_after", "nofollow"},
        ),
        (["max-snippet:-1, max-image-preview:large"], {"max-snippet", "max-image-preview"}),
    ],
)
def test_rules_are_those_for_all_and_for_us(headers: list[str], rules: set[str]) -> None:
    assert read_robots_tag(headers, "krowlspider") == rules


@pytest.mark.parametrize(
    "date",
    [
        "Fri, 25 Jun 2010 15:00:00 GMT",
        "Friday, 25-Jun-10 15:00:00 UTC",
        "Fri Jun 25 15:00:00 2010",
        "2010-06-25T15:00:00Z",
    ],
)
def test_date_in_a_rule_addresses_no_crawler(date: str) -> None:
    gone = f"unavailable_after: {date}, nofollow"
    assert "nofollow" in read_robots_tag([gone], "krowlspider")
    assert "nofollow" in read_robots_tag([f"krowlspider: {gone}"], "krowlspider")
    assert read_robots_tag([f"otherbot: {gone}"], "krowlspider") == set()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"/n\xe9?q=\xff#\x80x", "/n%E9?q=%FF#%80x"),
        ("/é".encode(), "/%C3%A9"),
        (b" /a%e9 b\x7f", " /a%e9 b\x7f"),
    ],
)
def test_octets_of_a_header_are_kept_in_its_url(value: bytes, expected: str) -> None:
    assert escape_octets(value) == expected


def test_name_in_raw_utf8_is_the_host() -> None:
    assert normalise(escape_octets("http://münchen.de/\n".encode())) == "http://xn--mnchen-3ya.de/"


def test_values_are_those_that_scrapy_returns() -> None:
    headers = Headers({"x-robots-tag": ["noindex", "nofollow"], "location": b""})
    for name in (b"X-Robots-Tag", b"Location", b"Link"):
        assert values_of(headers, name) == headers.getlist(name)
        assert value_of(headers, name) == headers.get(name)


@pytest.mark.parametrize(
    ("values", "price"),
    [
        ([b"USD 0.01"], "USD 0.01"),
        ([b"  0.5 "], "0.5"),
        ([], ""),
        ([b""], ""),
        ([b"\x1b[31m\xe2\x82\xac1"], "[31m1"),
        ([b"9" * 1000], "9" * 40),
    ],
)
def test_a_price_is_short_printable_text(values: list[bytes], price: str) -> None:
    assert price_in(Headers({"crawler-price": values})) == price
