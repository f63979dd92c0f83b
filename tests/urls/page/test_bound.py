"""Hostile pages take a bounded time, and large honest pages lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.urls.page.headers import bounded
from krowlspider.urls.page.links import read_page
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://example.com/"

# Seconds of CPU a page may take: the event loop's limit under attack.
LIMIT = 0.25

# How the pages are made.
HOSTILE: dict[str, Callable[[], bytes]] = {
    "unclosed": lambda: b"<div>" * 300_000,
    "end tags that close nothing": lambda: b"<div>" * 100_000 + b"</span>" * 100_000,
    "the same, within what needs no care": lambda: b"<font>" * 6_000 + b"</form>" * 5_999,
    "the worst that fits in what is not counted": lambda: b"<p>" * 6_900 + b"</b>" * 5_190,
    "the worst whose start is not counted": lambda: b"<b>" * 8_000 + b"</p>" * 4_000 + b" " * 9_999,
    "end tags that look as if they close": lambda: b"<div><!--<span>--></span>" * 70_000,
    "end tags that are kept": lambda: b"<nobr>" * 100_000 + b"</title>" * 100_000,
    "UTF-16": lambda: ("<font>" * 100_000 + "</form>" * 100_000).encode("utf-16"),
    "ISO-2022-JP": lambda: (
        b"<meta charset=iso-2022-jp>" + (b"<font>" * 9 + b"<\x1b(B/form>" * 9) * 9_000
    ),
    "misnested": lambda: b"<b><i><u>" * 30_000 + b"</b></i></u>" * 30_000,
    "angles": lambda: b"<" * 10_000_000,
    "entities": lambda: b"<a href='" + b"&amp;" * 2_000_000 + b"'>",
    "links": lambda: b"".join(b"<p><a href=x%d>" % i for i in range(300_000)),
    "links to a long base": lambda: (
        b"<base href='" + b"x/" * 500_000 + b"'>" + b"<a href=y>" * 10_000
    ),
    "a refresh of spaces": lambda: (
        b"<meta http-equiv=refresh content='0" + b" " * 5_000_000 + b"'>"
    ),
    "a refresh of urls": lambda: (
        b"<meta http-equiv=refresh content='0;" + b"url " * 1_000_000 + b"'>"
    ),
    "robots": lambda: b"<meta name=robots content=nofollow>" * 200_000,
    "a title of spaces": lambda: b"<title>" + b" x" * 5_000_000,
    "frames": lambda: b"<frameset>" * 6_000 + b"<body/>" * 5_999,
    "many frames": lambda: b"<frameset>" * 50_000 + b"<body/>" * 50_000,
    "frames that NUL hides": lambda: b"<fra\0meset>" * 50_000 + b"<bo\0dy/>" * 50_000,
    "frames before NUL": lambda: b"<frameset\0>" * 50_000 + b"<body\0/>" * 50_000,
    "end tags that NUL hides": lambda: b"<div>" * 100_000 + b"<\0/span>" * 100_000,
    "bodies": lambda: b"<body/>" + b"<div>" * 100_000 + b"<body/>" * 100_000,
    "bodies in UTF-16": lambda: ("<body/>" + "<div>" * 100_000 + "<body/>" * 100_000).encode(
        "utf-16"
    ),
    "a tag name without end": lambda: b"<a" * 512 + b"x" * 10_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_is_read_in_a_bounded_time(name: str) -> None:
    body = HOSTILE[name]()
    assert seconds(lambda: read_page(body, URL, None), enough=LIMIT) <= LIMIT


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


def test_tags_at_the_start_of_a_page_count() -> None:
    rest = b"</p>" * 4_001 + b" " * 9_999
    assert bounded(b" " * 24_000 + rest) == b" " * 24_000 + rest
    assert bounded(b"<b>" * 8_000 + rest) != b"<b>" * 8_000 + rest


@pytest.mark.parametrize("size", [45_000, 59_000, 61_000])
def test_tags_of_a_short_page_count_wherever_they_are(size: int) -> None:
    """Start tags, and then as many end tags, would walk the whole stack."""
    tags = b"<a>" * 7000 + b"</b>" * 5500
    for blanks_before in (0, 100, size - len(tags)):
        page = (b" " * blanks_before + tags).ljust(size)
        assert bounded(page) != page


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
