"""Pages of odd encodings and types are read as browsers read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.archived import Records
from tests.support.crawling import write_seeds
from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

KOI8 = "<a href='/п?{}=п'>".encode("koi8-r")
# Pages by the name of their link, with what is asked for then.
ENCODED = {
    "undeclared": (b"", b"<a href='/\xe9?undeclared=\xe9'>", "/%C3%A9?undeclared=%E9"),
    "utf8": (b"", "<a href='/é?utf8=é'>".encode(), "/%C3%A9?utf8=%C3%A9"),
    "comment": (
        b"",
        b"<!-- <meta charset=koi8-r> --><a href='?comment=\xe9'>",
        "/comment?comment=%E9",
    ),
    "header": (b"; charset=koi8-r", KOI8.replace(b"{}", b"header"), "/%D0%BF?header=%D0"),
    "meta": (
        b"",
        b"<meta charset=koi8-r>" + KOI8.replace(b"{}", b"meta"),
        "/%D0%BF?meta=%D0",
    ),
    "late": (
        b"",
        b"<meta name=x>" * 100 + b"<meta charset=koi8-r>" + KOI8.replace(b"{}", b"late"),
        "/%D0%BF?late=%D0",
    ),
    "sjis": (b"; charset=Shift_JIS", "<a href='?sjis=日'>".encode("cp932"), "/sjis?sjis=%93%FA"),
    "euckr": (
        b"",
        "<meta charset=euc-kr><a href='?euckr=한'>".encode("cp949"),
        "/euckr?euckr=%C7%D1",
    ),
    "utf16": (b"; charset=koi8-r", "<a href='?utf16=é'>".encode("utf-16"), "/utf16?utf16=%C3%A9"),
    "own": (b"; charset=x-user-defined", b"<a href='?own=\xe9'>", "/own?own=%E9"),
    "unknown": (b"; charset=utf_8", b"<a href='?unknown=\xe9'>", "/unknown?unknown=%E9"),
    "false": (b"; charset=utf-8", b"<a href='?false=\xe9'>", "/false?false=%EF%BF%BD"),
}


QUICK = {
    "RETRY_TIMES": 0,
    "KROWL_DELAY_MIN": 0,
    "KROWL_DELAY_FACTOR": 0,
    "KROWL_WARC_ALSO": "metadata",
}


def crawled(folder: Path, web: SimulatedRawWeb, paths: list[str], **more: Any) -> Crawl:
    seeds = [web.url(f"{path.strip('/')}.test", path) for path in paths]
    return SimulatedCrawl(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", seeds), **more.pop("arguments", {})},
        settings={**QUICK, **more},
    ).run()


def test_links_are_asked_for_in_the_encoding_of_their_page(tmp_path: Path) -> None:
    pages = {
        f"/{name}": Raw(answer(HTML + charset, body=body))
        for name, (charset, body, _) in ENCODED.items()
    }
    with SimulatedRawWeb(pages) as web:
        crawl = crawled(tmp_path, web, list(pages))
    assert {path for path in web.asked if "?" in path} == {path for *_, path in ENCODED.values()}
    assert crawl.complaints == []
    notes = Records.of(crawl.jobdir / "warc").of_kind("metadata")
    charsets = {
        note.url.rpartition("/")[2]: line.partition(": ")[2]
        for note in notes
        for line in note.block.decode().splitlines()
        if line.startswith("charset")
    }
    assert charsets["undeclared"] == "windows-1252"
    assert charsets["meta"] == charsets["late"] == "KOI8-R"


UNUSABLE = {
    "missing": (),
    "empty": (b"Content-Type:",),
    "any": (b"Content-Type: */*",),
    "none": (b"Content-Type: none",),
    "parameter": (b"Content-Type: charset=utf-8",),
    "unknown": (b"Content-Type: unknown/unknown",),
    "application": (b"Content-Type: application/unknown",),
    "blank": (b"Content-Type: text/html charset=utf-8",),
    "twice": (b"Content-Type: text/html, text/html; charset=utf-8",),
    "lines": (b"Content-Type: text/html", b"Content-Type: none"),
    "xhtml": (b"Content-Type: application/xhtml+xml",),
}
NO_HTML = {
    "plain": (b"Content-Type: text/plain",),
    "last": (b"Content-Type: text/html", b"Content-Type: text/plain"),
    "nosniff": (b"Content-Type: none", b"X-Content-Type-Options: nosniff"),
    "octets": (b"Content-Type: application/octet-stream",),
}


def page(name: str) -> bytes:
    # A picture by its name, and text that Scrapy takes for binary.
    return f"<!DOCTYPE html>\n<p>\x01<a href='/from-{name}.png'><a href='/to-{name}'>".encode()


def test_pages_with_an_unusable_type_are_read(tmp_path: Path) -> None:
    pages = {
        f"/{name}": Raw(answer(*lines, body=page(name)))
        for name, lines in {**UNUSABLE, **NO_HTML}.items()
    }
    pages["/image"] = Raw(answer(body=b"\x89PNG\r\n\x1a\n" + page("image")))
    pages["/text"] = Raw(answer(body=b"see " + page("text")))
    with SimulatedRawWeb(pages) as web:
        crawl = crawled(tmp_path, web, list(pages))
    assert {path for path in web.asked if path.startswith("/to-")} == {
        f"/to-{name}" for name in UNUSABLE
    }
    assert crawl.complaints == []


def test_page_in_place_of_a_sitemap_is_read(tmp_path: Path) -> None:
    pages = {
        "/robots.txt": Raw(answer(body=b"Sitemap: /map")),
        "/map": Raw(answer(b"Content-Type: */*", body=page("sitemap"))),
        "/home": Raw(answer(HTML, body=b"x")),
    }
    with SimulatedRawWeb(pages) as web:
        crawled(tmp_path, web, ["/home"], KROWL_SITEMAPS=True)
    assert "/to-sitemap" in web.asked


REFRESHES = {
    "html": (HTML, b"<a href=/linked>", b"0;url=/to-html"),
    "text": (b"Content-Type: text/plain", b"x", b"5; URL='/to-text'"),
    "untyped": (b"A: b", b"", b"0, /to-untyped"),
    "base": (HTML, b"<base href=/base/>", b"0;url=to-base"),
    "both": (HTML, b"<meta http-equiv=refresh content='0;url=to-meta'>", b"0;url=to-both"),
    "octets": (HTML, b"\xe9", b"0;url=/to-\xe9?\xe9"),
    "itself": (HTML, b"x", b"5"),
    "broken": (HTML, b"x", b"x;url=/to-broken"),
    "script": (HTML, b"x", b"0;url=javascript:x"),
    "refused": (HTML + b"\r\nX-Robots-Tag: nofollow", b"x", b"0;url=/to-refused"),
    "away": (HTML, b"x", b"0;url=http://elsewhere.test:1/to-away"),
}


def test_refresh_header_is_followed_as_the_element_is(tmp_path: Path) -> None:
    """As a link of the page: under its scope, one hop further, and with its counts."""
    pages = {
        f"/{name}": Raw(answer(kind, b"Refresh: " + refresh, body=body))
        for name, (kind, body, refresh) in REFRESHES.items()
    }
    pages["/to-html"] = Raw(answer(HTML, b"Refresh: 0; url=/too-deep", body=b"x"))
    with SimulatedRawWeb(pages) as web:
        near = {"max_depth": "1", "same_domain": "1"}
        crawl = crawled(tmp_path, web, list(pages)[:-1], arguments=near)
    assert {path for path in web.asked if "to" in path and path != "/robots.txt"} == {
        *("/to-html", "/to-text", "/to-untyped", "/to-base", "/to-meta", "/to-both"),
        "/to-%C3%A9?%E9",
    }
    assert "/linked" in web.asked
    assert crawl.stats["krowl/links/left_count/scheme"] == 1
    assert crawl.stats["krowl/links/left_count/nofollow"] == 1
    depths = {item["url"].rpartition("/")[2]: item["depth"] for item in crawl.items}
    assert (depths["html"], depths["to-html"]) == (0, 1)
    notes = {note.url: note for note in Records.of(crawl.jobdir / "warc").of_kind("metadata")}
    assert b"hopsFromSeed: L" in notes[web.url("html.test", "/to-html")].block


def test_link_elements_are_followed_as_the_header_is(tmp_path: Path) -> None:
    element = b"<link rel=next href=/two><link rel=alternate type=application/rss+xml href=/feed>"
    pages = {
        "/one": Raw(answer(HTML, body=element)),
        "/two": Raw(answer(HTML, b"Link: </three>; rel=next, </style>; rel=stylesheet", body=b"x")),
        "/three": Raw(answer(HTML, body=b"x")),
    }
    with SimulatedRawWeb(pages) as web:
        crawled(tmp_path, web, ["/one"])
    assert web.asked == ["/robots.txt", "/one", "/two", "/three"]
