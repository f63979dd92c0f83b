"""Requisites in whole crawls: what a page needs is fetched with it, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import signals

from krowlspider.engine.requisites import RequisiteReader
from krowlspider.engine.scheduler import Scheduler
from krowlspider.job.flights import Flights
from krowlspider.job.intake import RequisiteBudget
from krowlspider.urls.page.requisites.found import CSS_MAX
from tests.mockweb.audit import violations
from tests.support.archived import Records, assert_archived
from tests.support.crawls import DELAY, crawl_of, page, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from tests.mockweb.log import Entry
    from tests.support.crawling import Crawl

A, STATIC, OTHER = "www.a.test", "static.a.test", "b.test"


def at(host: str, path: str) -> str:
    """A URL on a host of the mock web, whose port its rules fill in."""
    return f"http://{host}:{{port}}{path}"


def rule(host: str, path: str, kind: str, body: str = "x", **more: Any) -> dict[str, Any]:
    return {"host": host, "path": path, "headers": {"Content-Type": kind}, "body": body, **more}


HOME = f"""<html><head><title>Home</title>
    <link rel="stylesheet" href="{at(STATIC, "/main.css")}">
    <link rel="icon" href="/icon.png"><link rel="manifest" href="/app.json"></head>
    <body><img srcset="/small.png 1x, /large.png 2x">
    <img src="{at(OTHER, "/far.png")}"><img src="{at(OTHER, "/private/p.png")}">
    <img src="http://10.0.0.1/p.png">
    <img src="/moved.png"><img src="/missing.png"><script src="{at(OTHER, "/far.js")}"></script>
    <img src="/next"><a href="/next">next</a><a href="/last">last</a>
    <a href="/large.png">the picture</a></body></html>"""
SITE = [
    rule(A, "/", "text/html", HOME),
    rule(A, "/next", "text/html", '<link rel=icon href=/icon.png><img src="/late.png">'),
    rule(A, "/last", "text/html", '<link rel=icon href=/icon.png><img src="/small.png">'),
    rule(STATIC, "/main.css", "text/css", '@import "more.css"; b { background: url(bg.png) }'),
    rule(
        STATIC,
        "/more.css",
        "text/css",
        f"@import '3.css'; @import 'main.css'; @font-face {{ src: url({at(OTHER, '/f.woff')}) }}",
    ),
    *(rule(STATIC, f"/{n}.css", "text/css", f"@import url({n + 1}.css);") for n in range(3, 7)),
    rule(A, "/app.json", "application/json", '{"icons": [{"src": "app.png"}]}'),
    rule(A, "/moved.png", "text/plain", redirect="/new.png"),
    rule(OTHER, "/robots.txt", "text/plain", "User-agent: *\nDisallow: /private/"),
    *(
        rule(host, path, "image/png", path)
        for host, paths in {
            A: ["/icon.png", "/small.png", "/large.png", "/new.png", "/app.png", "/late.png"],
            STATIC: ["/bg.png"],
            OTHER: ["/far.png", "/far.js", "/f.woff", "/private/p.png"],
        }.items()
        for path in paths
    ),
    page("/robots.txt", "", status=404),
]
PAGES = Counter(f"{A}{path}" for path in ("/", "/next", "/last"))
OF_SITE = PAGES + Counter(
    [
        *(f"{A}/{name}.png" for name in ("icon", "small", "large", "moved", "new", "app", "late")),
        # Once as a picture, once as the page that it is.
        *(f"{A}/{name}" for name in ("missing.png", "app.json", "next")),
        # The sixth style sheet is one too many.
        *(f"{STATIC}/{name}" for name in ("main.css", "more.css", "3.css", "4.css", "5.css")),
        f"{STATIC}/bg.png",
    ]
)
OF_ANY = OF_SITE + Counter(f"{OTHER}/{name}" for name in ("far.png", "far.js", "f.woff"))


def crawled(web: SimulatedWeb, folder: Path, which: str, **more: Any) -> Crawl:
    settings = {"KROWL_REQUISITES": which, "RETRY_TIMES": 0, **more.pop("settings", {})}
    return crawl_of(web, folder, [web.url(A)], settings=settings, **more)


def fetched(log: list[Entry]) -> Counter[str]:
    """What was asked for, host (no port) and path, robots.txt left out."""
    return Counter(f"{entry.host.partition(':')[0]}{entry.path}" for entry in pages(log))


@pytest.mark.parametrize(
    ("which", "expected"), [("none", PAGES), ("site", OF_SITE), ("any", OF_ANY)]
)
def test_exactly_the_requisites_asked_for_are_fetched(
    tmp_path: Path, which: str, expected: Counter[str]
) -> None:
    """Under the rules of their hosts and addresses. A page that is embedded as a picture is a page
    all the same. The scope of pages does not hold for them."""
    arguments = {"same_host": 1, "allow": "/$ next last"}
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawled(web, tmp_path, which, arguments=arguments).run()
        assert fetched(web.log()) == expected
        assert crawl.stats.get("krowl/requisites/left_count/level", 0) == (which != "none")
        forbidden = crawl.stats.get("krowl/fetch/failed_count/address_forbidden", 0)
        assert forbidden == (which == "any")
        assert violations(web.log(), min_delay=DELAY) == []
        assert_archived(crawl.jobdir, web.log())
        assert {item["url"].rpartition("/")[2] for item in crawl.items} == {"", "next", "last"}


@pytest.mark.parametrize("restarts", [False, True])
def test_sitemaps_are_read_where_a_requisite_came_first(tmp_path: Path, restarts: bool) -> None:
    """Also if a start lies between it and the first page of its host."""
    picture, link = f'<img src="{at(OTHER, "/p.png")}">', f'<a href="{at(OTHER, "/")}">b</a>'
    site = [
        rule(A, "/", "text/html", f"{picture}<a href=/later>later</a>"),
        rule(A, "/later", "text/html", link, latency=3.0),
        rule(OTHER, "/robots.txt", "text/plain", f"Sitemap: {at(OTHER, '/map.txt')}"),
        rule(OTHER, "/map.txt", "text/plain", f"{at(OTHER, '/mapped')}\n"),
        *(rule(OTHER, path, "text/html") for path in ("/", "/mapped", "/p.png")),
        page("/robots.txt", "", status=404),
    ]
    settings = {"KROWL_SITEMAPS": 1, "KROWL_WARC_REVISIT": 0}
    with SimulatedWeb(spec=site) as web:
        crawl = crawled(web, tmp_path, "any", settings=settings)
        if restarts:
            crawl.run_until_killed(web, lambda: "/later" in [e.path for e in web.log()])
            crawl = crawled(web, tmp_path, "any", settings=settings)
        crawl.run()
        asked = fetched(web.log())
    assert [asked[f"{OTHER}{path}"] for path in ("/p.png", "/", "/map.txt", "/mapped")] == [1] * 4


def test_requisites_come_soon_and_say_how_they_were_found(tmp_path: Path) -> None:
    settings = {"KROWL_WARC_ALSO": "metadata", "KROWL_SITEMAPS": 1}
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawled(web, tmp_path, "any", settings=settings).run()
        log = pages(web.log())
        # The sitemaps of a host that has requisites alone are left alone.
        assert {entry.host for entry in log if "sitemap" in entry.path} == {f"{A}:{web.port}"}
        own = [entry.path for entry in log if entry.host.startswith(A)]
        assert own.index("/missing.png") < own.index("/next")
        assert own.index("/late.png") < own.index("/last")
        records = Records.of(crawl.jobdir / "warc")
        for url, accept in (
            (web.url(STATIC, "/main.css"), b"text/css,"),
            (web.url(A, "/small.png"), b"image/avif,"),
            (web.url(OTHER, "/far.js"), b"*/*\r\n"),
            (web.url(A, "/next"), b"text/html,"),
        ):
            request = records.about(url).of_kind("request")[-1]
            assert b"\r\nAccept: " + accept in request.block
        home, css = web.url(A), web.url(STATIC, "/main.css")
        notes = {each.url: dict(each.block_fields) for each in records.of_kind("metadata")}
        for url, via, path in (
            (web.url(A, "/small.png"), home, "E"),
            (web.url(STATIC, "/bg.png"), css, "EE"),
            (web.url(A, "/new.png"), web.url(A, "/moved.png"), "ER"),
            (web.url(A, "/last"), home, "L"),
            (web.url(A, "/late.png"), web.url(A, "/next"), "LE"),
        ):
            note = notes[url]
            assert (note["via"], note["hop"], note["hopsFromSeed"]) == (via, path[-1], path)
        assert notes[web.url(STATIC, "/bg.png")]["depth"] == "0"


@pytest.mark.slow
def test_requisites_survive_a_kill_with_their_kind(tmp_path: Path) -> None:
    """The style sheet is queued at the kill, and read as one by the next start."""
    with SimulatedWeb(spec=SITE) as web:
        first = crawled(web, tmp_path, "any")
        assert isinstance(first, SimulatedCrawl)
        first.run_until_killed(web, lambda: bool(pages(web.log())) and first_commit(web))
        assert f"{STATIC}/main.css" not in fetched(web.log())
        crawled(web, tmp_path, "any").run()
        assert set(fetched(web.log())) == set(OF_ANY)


def first_commit(web: SimulatedWeb) -> bool:
    return len(pages(web.log())) >= 2


def test_no_requisite_counts_as_a_page(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        crawled(web, tmp_path, "site", arguments={"max_pages": 2}).run()
        assert {f"{A}/small.png", f"{A}/next"} <= set(fetched(web.log()))
        assert f"{A}/last" not in fetched(web.log())


class FewRequisites:
    """An extension that lets each host have two requisites."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        crawler.signals.connect(cls._opened, signals.spider_opened)
        return cls()

    @staticmethod
    def _opened(spider: Spider) -> None:
        Scheduler.of(spider.crawler).intake.requisite_budget = RequisiteBudget(2)


def test_host_has_a_budget_of_requisites(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        settings = {"EXTENSIONS": json.dumps({f"{__name__}.FewRequisites": 0})}
        crawl = crawled(web, tmp_path, "site", settings=settings).run()
        found = fetched(web.log()) - PAGES
        assert sum(count for name, count in found.items() if name.startswith(A)) == 2
        assert crawl.stats["krowl/frontier/dropped_count/requisite_budget"] > 2


SVG = 'xmlns="http://www.w3.org/2000/svg"'
APP = """<link rel=icon href=data:,>
    <object data="/object.svg"></object><img src="/picture.svg"><embed src="/embedded">
    <iframe srcdoc="<img src=/srcdoc.png>"></iframe>
    <script type=importmap>{"imports": {"lib": "/lib.js", "lib/": "/lib/"}}</script>
    <script type=module>import "lib/inline.js"; import "bare"</script>
    <script type=module src="/moved.js"></script>"""
NESTED = [
    rule(A, "/", "text/html", APP),
    rule(A, "/object.svg", "image/svg+xml", f"<?xml-stylesheet href='/pi.css'?><svg {SVG}/>"),
    rule(A, "/pi.css", "text/css", "a { b: url(pi.png) }"),
    # As a picture, it loads nothing.
    rule(A, "/picture.svg", "image/svg+xml", f"<svg {SVG}><image href='/no.png'/></svg>"),
    rule(A, "/embedded", "text/html", "<object data=/embedded2></object><a href=/no>x</a>"),
    *(
        rule(A, f"/embedded{n}", "text/html", f"<embed src=/embedded{n + 1}><img src={n}.png>")
        for n in range(2, 9)
    ),
    rule(
        A, "/lib/inline.js", "text/javascript", 'import "./deep.js"; import "lib"; import "other"'
    ),
    rule(A, "/moved.js", "text/javascript", redirect="/main.js"),
    rule(A, "/main.js", "text/javascript", 'import "lib/main.js"; export * from "./1.js"'),
    *(
        rule(A, f"/{n}.js", "text/javascript", f'import "./{n + 1}.js"; import "lib/{n}.js"')
        for n in range(1, 12)
    ),
    rule(A, "^/lib", "text/javascript", "export default 1"),
    rule(A, "^png$", "image/png"),
    page("/robots.txt", "", status=404),
]


def test_documents_and_modules_are_read_to_their_levels(tmp_path: Path) -> None:
    """Five documents deep, nine modules; each module with the import map of its page."""
    with SimulatedWeb(spec=NESTED) as web:
        crawl = crawled(web, tmp_path, "site").run()
        asked = {name.removeprefix(A) for name in fetched(web.log())}
        assert_archived(crawl.jobdir, web.log())
    assert asked == {
        *("/", "/object.svg", "/pi.css", "/pi.png", "/picture.svg", "/srcdoc.png"),
        *(
            "/embedded",
            *(f"/embedded{n}" for n in range(2, 6)),
            *(f"/{n}.png" for n in range(2, 6)),
        ),
        *("/lib/inline.js", "/lib/deep.js", "/lib.js", "/moved.js", "/main.js", "/lib/main.js"),
        *(f"/{n}.js" for n in range(1, 9)),
        *(f"/lib/{n}.js" for n in range(1, 8)),
    }
    left = "krowl/requisites/left_count"
    # embedded6; 9.js and lib/8.js; "bare" and "other"; the icon.
    found = {name: crawl.stats[f"{left}/{name}"] for name in ("level", "module_name", "scheme")}
    assert found == {"level": 3, "module_name": 2, "scheme": 1}
    kinds = {
        name: crawl.stats[f"krowl/requisites/fetched_count/{name}"] for name in ("embed", "module")
    }
    assert kinds == {"embed": 6, "module": 20}


def test_long_style_sheet_is_read_up_to_a_bound(tmp_path: Path) -> None:
    css = "a { b: url(first.png) }" + " " * CSS_MAX + "a { b: url(last.png) }"
    site = [rule(A, "/", "text/html", "<link rel=stylesheet href=/a.css>")]
    site.append(rule(A, "/a.css", "text/css", css))
    with SimulatedWeb(spec=site) as web:
        crawl = crawled(web, tmp_path, "site").run()
        asked = set(fetched(web.log()))
        assert f"{A}/first.png" in asked
        assert f"{A}/last.png" not in asked
        assert crawl.stats["krowl/requisites/left_count/size"] == 1
        assert_archived(crawl.jobdir, web.log())


def test_a_host_is_charged_for_the_reading_of_its_style_sheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rests if that holds the event loop too long."""
    charged: dict[str, float] = {}
    charge = Flights.charge_page

    async def read(self: RequisiteReader, response: Response) -> None:
        clocks.now += 0.03

    def note(self: Flights, request: Request, took: float) -> None:
        charged[request.url] = took
        charge(self, request, took)

    monkeypatch.setattr(RequisiteReader, "read", read)
    monkeypatch.setattr(Flights, "charge_page", note)
    with SimulatedWeb(spec=SITE) as web:
        crawled(web, tmp_path, "site").run()
    sheets = [took for url, took in charged.items() if url.endswith(".css")]
    assert sheets
    assert min(sheets) >= 0.03
