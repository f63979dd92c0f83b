"""Sitemaps in whole crawls: found with robots.txt, read politely, and what they name is fetched
once."""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.spiders.sitemaps import NAMED_MAX
from tests.mockweb.audit import violations
from tests.support.archived import assert_archived
from tests.support.crawling import Crawl, frontier_view
from tests.support.crawls import DELAY, crawl_of, page, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.mockweb import MockWeb


ON = {"KROWL_SITEMAPS": 1}
HOME = page("/", "home")
LEAF = page("^/p", "leaf")
NO_ROBOTS = page("/robots.txt", "", status=404)
MAP = "/sitemap.xml"


def robots(*lines: str, **more: Any) -> dict[str, Any]:
    return page("/robots.txt", "\n".join(lines), **more)


def here(host: str, path: str) -> str:
    """A URL on a host of the mock web, whose port its rules fill in."""
    return f"http://{host}:{{port}}{path}"


def urlset(urls: Iterable[str]) -> str:
    places = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}</urlset>'


def index(urls: Iterable[str]) -> str:
    places = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f"<sitemapindex>{places}</sitemapindex>"


def xml(path: str, body: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "headers": {"Content-Type": "text/xml"}, "body": body, **more}


def crawled(web: MockWeb, folder: Path, seeds: list[str] | None = None, **more: Any) -> Crawl:
    """A crawl with sitemaps from the root of a.site.test."""
    settings = ON | more.pop("settings", {})
    seeds = seeds or [web.url("a.site.test")]
    return crawl_of(web, folder, seeds, settings=settings, **more).run()


def fetched(web: MockWeb) -> Counter[str]:
    """What was asked for, host (no port) and path, robots.txt left out."""
    return Counter(f"{e.host.partition(':')[0]}{e.path}" for e in pages(web.log()))


def once(*names: str) -> Counter[str]:
    return Counter(f"a.site.test{name}" if name[0] == "/" else name for name in names)


def counted(crawl: Crawl) -> dict[str, int]:
    """What was counted of sitemaps, and of what was dropped."""
    parts = ("krowl/sitemaps/", "krowl/frontier/dropped_count/")
    return {
        name.rpartition("/")[2]: count
        for name, count in crawl.stats.items()
        if name.startswith(parts)
    }


def test_urls_of_sitemaps_are_fetched_once_and_archived(
    tmp_path: Path,
) -> None:
    """/sitemap.xml is asked for as well, and that it is not there is nobody's concern."""
    rules = robots("Sitemap: " + here("a.site.test", "/maps/1.xml"), "Sitemap: /maps/2.xml")
    one = urlset(here("a.site.test", path) for path in ("/", "/p1", "/p2"))
    two = urlset(here("a.site.test", path) for path in ("/p2", "/p3"))
    spec = [rules, HOME, LEAF, xml("/maps/1.xml", one), xml("/maps/2.xml", two)]
    with SimulatedWeb(spec=spec) as web:
        crawl = crawled(web, tmp_path)
        asked = ("/", "/maps/1.xml", "/maps/2.xml", "/sitemap.xml", "/p1", "/p2", "/p3")
        assert fetched(web) == once(*asked)
        assert counted(crawl) == {"read_count": 2, "url_count": 5}
        assert crawl.stats["krowl/frontier/done_count"] == 4
        assert crawl.stats["krowl/frontier/fetched_count/sitemap"] == 3
        assert "\n  also fetched robots.txt: 1, sitemaps: 3\n" in crawl.log
        assert [(item["url"][-3:], item["depth"]) for item in crawl.items] == [
            (f"{web.port}/"[-3:], 0),
            ("/p1", 1),
            ("/p2", 1),
            ("/p3", 1),
        ]
        assert violations(web.log(), min_delay=DELAY) == []
        assert_archived(crawl.jobdir, web.log())
        assert crawl.complaints == []


CDN, OTHER, B = "maps.cdn.test", "c.other.test", "b.site.test"
A = "a.site.test"
P1 = urlset([here(A, "/p1")])
RSS = "<rss><channel><item><link>{}</link></item></channel></rss>"
FORMS = [here(A, f"/{name}") for name in ("a.gz", "b.xml", "c.txt", "d.rss", "e.xml", "f", "g.png")]
PACKED = base64.b64encode(gzip.compress(urlset(["http://a.site.test/pa"]).encode())).decode()
NAMED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[str, ...], dict[str, int]]] = {
    "sitemap.xml is read where no robots.txt is": (
        [NO_ROBOTS, xml(MAP, P1)],
        {},
        (MAP, "/p1"),
        {"read_count": 1, "url_count": 1},
    ),
    "an index: gzip as file and coding, text, RSS, too large, broken off, an image": (
        [
            NO_ROBOTS,
            xml(MAP, index(FORMS)),
            {"path": "/a.gz", "body_base64": PACKED},
            xml("/b.xml", urlset([here(A, "/pb")]), gzip=True),
            {"path": "/c.txt", "body": here(A, "/pc") + "\n"},
            xml("/d.rss", RSS.format(here(A, "/pd"))),
            xml("/e.xml", urlset([here(A, "/pe")]) + "<!--" + " " * 60_000 + "-->"),
            xml("/f", f"<urlset><url><loc>{here(A, '/pf')}</loc></url><url><loc>http"),
            {"path": "/g.png", "body": "\x89PNG", "headers": {"Content-Type": "image/png"}},
        ],
        {"settings": {"DOWNLOAD_MAXSIZE": 50_000}},
        (
            *(MAP, "/a.gz", "/b.xml", "/c.txt", "/d.rss", "/e.xml", "/f", "/g.png"),
            *(f"/p{letter}" for letter in "abcdef"),
        ),
        {"read_count": 7, "url_count": 6, "bad_count": 2},
    ),
    # Both hosts have all of these rules: two pages and a child each are of another domain.
    "a sitemap speaks for its own domain only": (
        [
            robots("Sitemap: /i.xml"),
            xml(MAP, urlset([here(B, "/p1"), here(OTHER, "/p1"), here(OTHER, "/p2")])),
            xml("/i.xml", index([here(OTHER, "/map.xml"), here(B, "/map.xml")])),
        ],
        {},
        ("/i.xml", MAP, *(f"{B}{path}" for path in ("/p1", "/map.xml", "/i.xml", MAP))),
        {"read_count": 4, "url_count": 6, "sitemap_domain": 6},
    ),
    "one elsewhere speaks for the domain that names it, by the rules of its host": (
        [
            robots("Sitemap: " + here(CDN, "/i.xml"), host=A),
            robots("User-agent: *", "Disallow: /no", host=CDN),
            xml("/i.xml", index([here(CDN, "/yes.xml"), here(CDN, "/no.xml")]), host=CDN),
            xml("/yes.xml", urlset([here(A, "/p1"), here("x.third.test", "/p1")]), host=CDN),
        ],
        {},
        (MAP, "/p1", *(f"{CDN}{path}" for path in ("/i.xml", "/yes.xml", MAP))),
        {"read_count": 2, "url_count": 2, "sitemap_domain": 1, "robots": 1},
    ),
    **{
        f"a line stays in the scope {scope}": (
            [robots("Sitemap: " + here("b.other.test", "/map.xml"))],
            {"arguments": {f"same_{scope}": 1}},
            (MAP,),
            {scope: 1},
        )
        for scope in ("host", "domain")
    },
    # They are as deep as the links of the page that led to their site.
    "none is read below max_depth": (
        [
            NO_ROBOTS,
            page("/", f"<a href={here('b.two.test', '/')}>x</a>", host=A),
            page("/", f"<a href={here('c.three.test', '/')}>x</a>", host="b.two.test"),
            *(
                xml(MAP, urlset([here(host, "/p1")]), host=host)
                for host in (A, "b.two.test", "c.three.test")
            ),
        ],
        {"arguments": {"max_depth": 1}},
        (MAP, "/p1", "b.two.test/"),
        {"read_count": 1, "url_count": 1, "depth": 2},
    ),
    "an index in an index in an index is the end": (
        [
            NO_ROBOTS,
            xml(MAP, index([here(A, "/2.xml")])),
            xml("/2.xml", index([here(A, "/3.xml")])),
            xml("/3.xml", index([here(A, f"/4{x}.xml") for x in "ab"])),
        ],
        {},
        (MAP, "/2.xml", "/3.xml"),
        {"read_count": 3, "url_count": 0, "sitemap_depth": 2},
    ),
    "an index of itself is read once": (
        [NO_ROBOTS, xml(MAP, index([here(A, MAP)]))],
        {},
        (MAP,),
        {"read_count": 1, "url_count": 0},
    ),
    "robots.txt and errors hold as for pages": (
        [
            robots("User-agent: *", f"Disallow: {MAP}", "Sitemap: /s.xml", "Sitemap: /t.xml"),
            xml("/s.xml", P1, status=500, first=1),
            xml("/s.xml", P1),
            xml("/t.xml", P1, status=500),
        ],
        {"settings": {"RETRY_TIMES": 1}},
        ("/s.xml", "/s.xml", "/t.xml", "/t.xml", "/p1"),
        {"read_count": 1, "url_count": 1, "robots": 1},
    ),
    "no redirect is followed if off": (
        [
            robots("Sitemap: /old.xml"),
            {"path": "/old.xml", "redirect": "/new.xml", "status": 301},
            xml("/new.xml", P1),
            xml(MAP, urlset([])),
        ],
        {"settings": {"REDIRECT_ENABLED": 0}},
        ("/old.xml", MAP),
        {"read_count": 1, "url_count": 0, "redirects": 1},
    ),
    **{
        f"none is asked for without {name}": (
            [robots("Sitemap: /s.xml")],
            {"settings": {name: 0}},
            (),
            {},
        )
        for name in ("KROWL_SITEMAPS", "ROBOTSTXT_OBEY")
    },
}


@pytest.mark.parametrize(("spec", "more", "asked", "counts"), NAMED.values(), ids=NAMED)
def test_exactly_what_sitemaps_name_is_fetched(
    tmp_path: Path,
    spec: list[dict[str, Any]],
    more: dict[str, Any],
    asked: tuple[str, ...],
    counts: dict[str, int],
) -> None:
    with SimulatedWeb(spec=[*spec, HOME, LEAF], port=80) as web:
        crawl = crawled(web, tmp_path, **more)
        assert fetched(web) == once("/", *asked)
        assert counted(crawl) == counts
        assert violations(web.log(), min_delay=DELAY) == [] or "ROBOTSTXT_OBEY" in str(more)
        # The limit on levels is named.
        assert len(crawl.complaints) == ("sitemap_depth" in counts)


def test_broken_sitemaps_are_named_and_read_on(tmp_path: Path) -> None:
    """One line for each domain."""
    spec = [robots("Sitemap: /1.xml", "Sitemap: /2.xml"), page("/sitemap.xml", "", status=404)]
    spec += [HOME, LEAF]
    for number in "12":
        places = [here("a.site.test", f"/p{number}{end}") for end in ("a?x=1&y=2", "b")]
        spec.append(xml(f"/{number}.xml", urlset(places)))
    with SimulatedWeb(spec=spec) as web:
        crawl = crawled(web, tmp_path)
        leaves = [f"/p{number}{end}" for number in "12" for end in ("a?x=1&y=2", "b")]
        assert fetched(web) == once("/", "/sitemap.xml", "/1.xml", "/2.xml", *leaves)
        assert counted(crawl) == {"read_count": 2, "url_count": 4, "bad_count": 2}
        (line,) = [line for line in crawl.log.splitlines() if " is not whole: " in line]
        assert f"Sitemap {web.url('a.site.test', '/1.xml')} is not whole: broken XML: " in line
        assert ". Recognised in it: 2 URLs." in line
        assert crawl.complaints == []


def test_redirected_sitemap_is_read_as_a_sitemap(tmp_path: Path) -> None:
    """A host that sends everything unknown to its home page does not lose it."""
    spec = [
        robots("Sitemap: /old.xml"),
        {"path": "/old.xml", "redirect": "/new.xml", "status": 301},
        xml("/new.xml", urlset([here("a.site.test", "/p1")])),
        {"path": "/sitemap.xml", "redirect": "/home"},
        page("/home", "<title>Home</title><a href=/p2>x</a>"),
        LEAF,
    ]
    with SimulatedWeb(spec=spec) as web:
        crawl = crawled(web, tmp_path, [web.url("a.site.test", "/p")])
        asked = ("/p", "/old.xml", "/new.xml", "/sitemap.xml", "/home", "/p1", "/p2")
        assert fetched(web) == once(*asked)
        assert counted(crawl) == {"read_count": 1, "url_count": 1, "bad_count": 1}
        assert [item["title"] for item in crawl.items if item["title"]] == ["Home"]


@pytest.mark.parametrize("name", ["", "/map", "/sitemap.xml"])
def test_html_at_the_guessed_sitemap_is_no_page(tmp_path: Path, name: str) -> None:
    """Many sites answer so for what they do not have. Its links are followed. A robots.txt can name
    the same URL: then it is a page."""
    path = name or "/sitemap.xml"
    rules = robots(f"Sitemap: {name}") if name else robots()
    spec = [rules, HOME, LEAF, page(path, "<title>Lost</title><a href=/p1>x</a>")]
    spec.append(page("/sitemap.xml", "", status=404))
    with SimulatedWeb(spec=spec) as web:
        crawl = crawled(web, tmp_path)
        assert fetched(web) == once("/", "/p1", *{path, "/sitemap.xml"})
        found = sorted(item["url"] for item in crawl.items)
        pages_done = sorted({"/", "/p1", name or "/"})
        assert found == [web.url("a.site.test", path) for path in pages_done]
        assert crawl.stats["krowl/frontier/done_count"] == len(found)
        missing = crawl.stats.get("krowl/frontier/fetched_count/sitemap", 0)
        assert missing == (name != "/sitemap.xml")


@pytest.mark.parametrize("named", [False, True])
def test_redirected_guess_is_a_guess_at_the_same_path(tmp_path: Path, named: bool) -> None:
    """As from http to https, or to the host with www."""
    rules = robots("Sitemap: /sitemap.xml") if named else robots()
    spec = [
        {**rules, "host": "a.site.test"},
        page("/robots.txt", "User-agent: *\nDisallow: /x", host="b.site.test"),
        {"path": "/sitemap.xml", "host": "a.site.test", "redirect": here("b.site.test", MAP)},
        page(MAP, "<title>Lost</title>", host="b.site.test"),
        LEAF,
    ]
    with SimulatedWeb(spec=spec) as web:
        crawl = crawled(web, tmp_path, [web.url("a.site.test", "/p")])
        assert fetched(web) == once("/p", MAP, f"b.site.test{MAP}")
        expected = [web.url("a.site.test", "/p"), web.url("b.site.test", MAP)]
        assert sorted(item["url"] for item in crawl.items) == expected[: 1 + named]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_max_pages_are_pages(tmp_path: Path, most: int) -> None:
    """Neither sitemaps that are missing, nor others, nor redirects count."""
    spec = [
        robots("Sitemap: /map", "Sitemap: /none"),
        page("/map", "<title>a page</title>"),
        page("/none", "", status=404),
        page("/sitemap.xml", "", status=404),
        {"path": "/r", "redirect": "/p7"},
        page("/", "".join(f"<a href=/p{n}>x</a>" for n in range(5)) + "<a href=/r>x</a>"),
        LEAF,
    ]
    with SimulatedWeb(spec=spec) as web:
        crawl = crawled(web, tmp_path, arguments={"max_pages": most})
        # The home page, the map, and six leaves.
        assert len(crawl.items) == most
        assert crawl.stats["krowl/frontier/done_count"] == most
        assert f"  pages done   {most} (" in crawl.log


def test_an_ordinary_spider_asks_for_no_sitemap(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[robots("Sitemap: /s.xml"), page("^/", "page")]) as web:
        SimulatedCrawl(
            tmp_path / "job",
            spider="ordinary",
            arguments={"root": web.url("a.site.test", "")},
            settings=ON | {"SPIDER_MODULES": "tests.support.spiders"},
        ).run()
        assert fetched(web)["a.site.test/urgent"] == 1
        assert [path for path in fetched(web) if path.endswith(".xml")] == []


def test_what_the_caps_refuse_of_sitemaps_is_counted(tmp_path: Path) -> None:
    lines = [f"Sitemap: /{number}.xml" for number in range(NAMED_MAX + 7)]
    # One that is named again is no other.
    spec = [robots(*lines[:9], *lines), HOME, LEAF]
    spec += [xml("/0.xml", urlset(here("a.site.test", f"/p{n}") for n in range(50)))]
    with SimulatedWeb(spec=spec) as web:
        # The cap on a host's queue is for what pages link to.
        crawl = crawled(web, tmp_path, settings={"KROWL_HOST_QUEUE_MAX": 4})
        paths = [f"/{number}.xml" for number in range(NAMED_MAX)] + [f"/p{n}" for n in range(50)]
        assert fetched(web) == once("/", "/sitemap.xml", *paths)
        assert counted(crawl) == {"read_count": 1, "url_count": 50, "sitemap_count": 7}
        (line,) = crawl.complaints
        assert "WARNING: Limit on sitemaps of a robots.txt (200)" in line
        assert ": 7 sitemaps dropped in this run" in line


def test_expired_robots_txt_brings_no_sitemap_again(tmp_path: Path) -> None:
    urls = [here("a.site.test", f"/p{number}") for number in range(8)]
    spec = [robots("Sitemap: /s.xml"), HOME, LEAF, xml("/s.xml", urlset(urls))]
    with SimulatedWeb(spec=spec) as web:
        crawled(web, tmp_path, settings={"KROWL_ROBOTS_TTL": 0.5, "KROWL_DELAY_MIN": 0.2})
        assert len(web.log()) - len(pages(web.log())) >= 3
        paths = ("/", "/s.xml", "/sitemap.xml", *(f"/p{number}" for number in range(8)))
        assert fetched(web) == once(*paths)


def test_after_kill_9_no_url_of_a_sitemap_is_lost(tmp_path: Path) -> None:
    """Killed as its robots.txt, its index and its sitemaps have just been sent, and among its
    pages."""
    hosts = [f"h{number}.site.test" for number in range(8)]
    urls = [here(host, f"/p{number}") for number in range(40) for host in hosts]
    maps = [here("a.site.test", f"/{number}.xml") for number in range(4)]
    spec = [robots("Sitemap: /i.xml"), HOME, LEAF, xml("/i.xml", index(maps))]
    spec += [xml(f"/{number}.xml", urlset(urls[number::4])) for number in range(4)]
    settings = ON | {
        "KROWL_DELAY_MIN": 0.02,
        "KROWL_DELAY_FACTOR": 0,
        "KROWL_DOMAIN_CONCURRENCY": 9,
    }

    with SimulatedWeb(spec=spec) as web:

        def sent(path: str, times: int) -> bool:
            return sum(entry.path.startswith(path) for entry in web.log()) >= times

        for path, times in (("/robots", 1), ("/i.xml", 1), ("/2.xml", 1), ("/p", 100)):
            crawl = crawl_of(web, tmp_path, [web.url("a.site.test")], settings=settings)
            crawl.run_until_killed(web, lambda path=path, times=times: sent(path, times))
        crawl = crawl_of(web, tmp_path, [web.url("a.site.test")], settings=settings).run()
        expected = {url.replace("{port}", str(web.port)) for url in urls}
        found = Counter(entry.url for entry in web.log() if entry.path.startswith("/p"))
        assert set(found) == expected
        assert frontier_view(crawl.jobdir)["queued"] == 0
        assert violations(web.log(), min_delay=0.02) == []


@pytest.mark.slow
@pytest.mark.parametrize("packed", ["a coding", "a file"])
def test_a_domain_has_so_many_bytes_of_sitemaps_read_and_no_more(
    tmp_path: Path, packed: str
) -> None:
    """Six of 45 MB, which come in 0.2 MB: five are read. What is refused is fetched, archived and
    counted."""
    names = [f"/s{number}.xml{'.gz' if packed == 'a file' else ''}" for number in range(6)]
    robots = "".join(f"Sitemap: http://a.test:{{port}}{name}\n" for name in names)
    spec = [page("/robots.txt", robots), page("/", "x"), page("/sitemap.xml", "", status=404)]
    with SimulatedWeb(spec=[page("/", "x")]) as web:
        port = web.port
    for number, name in enumerate(names):
        url = f"http://a.test:{port}/of{number}"
        body = f"<urlset>{' ' * 45_000_000}<url><loc>{url}</loc></url></urlset>"
        content = base64.b64encode(gzip.compress(body.encode(), 1)).decode()
        coding = {"Content-Encoding": "gzip"} if packed == "a coding" else {}
        spec.append({"path": name, "body_base64": content, "headers": coding})
    with SimulatedWeb(spec=[*spec, page("^/of", "x")], port=port) as web:
        crawl = crawled(web, tmp_path)
        read = {entry.path for entry in web.log() if entry.path.startswith("/of")}
        assert len(read) == 5
        assert {entry.path for entry in web.log()} >= set(names)
        assert crawl.stats["krowl/sitemaps/read_count"] == 5
        assert crawl.stats["krowl/frontier/dropped_count/sitemap_count"] == 1
