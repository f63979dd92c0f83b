"""Hostile pages take a bounded time, and large honest pages lose nothing."""

from __future__ import annotations

import pytest

from krowlspider.urls.page.bound import bounded
from krowlspider.urls.page.links import read_page
from tests.fuzz.work import seconds

URL = "https://example.com/"

# Seconds of CPU a page may take: the event loop's limit under attack.
LIMIT = 0.25

HOSTILE = {
    "unclosed": b"<div>" * 300_000,
    "end tags that close nothing": b"<div>" * 100_000 + b"</span>" * 100_000,
    "the same, within what needs no care": b"<font>" * 6_000 + b"</form>" * 5_999,
    "the worst that fits in what is not counted": b"<p>" * 6_900 + b"</b>" * 5_190,
    "end tags that look as if they close": b"<div><!--<span>--></span>" * 70_000,
    "end tags that are kept": b"<nobr>" * 100_000 + b"</title>" * 100_000,
    "UTF-16": ("<font>" * 100_000 + "</form>" * 100_000).encode("utf-16"),
    "ISO-2022-JP": b"<meta charset=iso-2022-jp>" + (b"<font>" * 9 + b"<\x1b(B/form>" * 9) * 9_000,
    "misnested": b"<b><i><u>" * 30_000 + b"</b></i></u>" * 30_000,
    "angles": b"<" * 10_000_000,
    "entities": b"<a href='" + b"&amp;" * 2_000_000 + b"'>",
    "links": b"".join(b"<p><a href=x%d>" % i for i in range(300_000)),
    "links to a long base": b"<base href='" + b"x/" * 500_000 + b"'>" + b"<a href=y>" * 10_000,
    "a refresh of spaces": b"<meta http-equiv=refresh content='0" + b" " * 5_000_000 + b"'>",
    "a refresh of urls": b"<meta http-equiv=refresh content='0;" + b"url " * 1_000_000 + b"'>",
    "robots": b"<meta name=robots content=nofollow>" * 200_000,
    "a title of spaces": b"<title>" + b" x" * 5_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_is_read_in_a_bounded_time(name: str) -> None:
    assert seconds(lambda: read_page(HOSTILE[name], URL, None), enough=LIMIT) <= LIMIT


def page(sections: int) -> bytes:
    """Return a well-formed page with 22 tags a section, one of them a link."""
    section = (
        '<div class="s"><h2><b>Title</b></h2><ul><li><i>1</i></li><li><span>2</span></li></ul>'
        '<p><a href="/l{}">link</a><br><img src=x></p></div>'
    )
    body = "".join(section.format(i) for i in range(sections))
    return (
        "<html><head><title>T</title><script>'<a href=/no></a>'</script></head><body>"
        f"{body}<script>'<a href=/no></a>'</script><textarea><a href=/no></a></textarea>"
        "<!-- <a href=/no></a> --><a href=/last>last</a></body></html>"
    ).encode()


def test_an_ordinary_page_is_left_as_it_is() -> None:
    body = page(350)
    assert bounded(body) is body


def test_large_ordinary_page_keeps_its_links() -> None:
    body = page(4_500)
    assert body.count(b"<") > 80_000
    read = read_page(body, URL, None)
    assert read.title == "T"
    assert read.links == [*(f"{URL}l{i}" for i in range(4_500)), f"{URL}last"]


def test_costly_page_gives_the_links_of_its_first_part() -> None:
    sections = "".join(f"<nobr><a href=/{i}>{i}</a></title>" for i in range(20_000))
    links = read_page(sections.encode(), URL, None).links
    assert links == [f"{URL}{i}" for i in range(3_000)]
