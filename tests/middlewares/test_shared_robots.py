"""A robots.txt that hosts share by redirects: the hosts it binds, and the requests it causes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.mockweb.audit import violations
from tests.support.crawls import DELAY, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

RULES = "User-agent: *\nDisallow: /no\n"
LINKS = "<a href=/no>x</a><a href=/yes>x</a>"


def moved(host: str, target: str) -> dict[str, object]:
    """Return the rule of a robots.txt that redirects to ``target``."""
    return {"host": host, "path": "/robots.txt", "status": 301, "redirect": target}


def test_shared_robots_txt_binds_all_hosts_that_lead_to_it(
    tmp_path: Path,
) -> None:
    """Each is asked for its own /sitemap.xml. The redirect target is asked for the file only."""
    legal, home = "http://legal.test:{port}/legal/robots.txt", "http://home.test:{port}/"
    bound, free = ["a.test", "b.test", "c.test"], "d.test"
    spec = [
        *(moved(host, legal) for host in bound),
        moved(free, home),
        {"host": "legal.test", **page("/legal/robots.txt", RULES)},
        page("/", LINKS),
        page("^/(no|yes)$", "x"),
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(host) for host in [*bound, free]]
        crawl = crawl_of(web, tmp_path, seeds, settings={"KROWL_SITEMAPS": 1}).run()
        asked = Counter(f"{e.host.partition(':')[0]}{e.path}" for e in web.log())
        everywhere = ("/robots.txt", "/", "/yes", "/sitemap.xml")
        assert asked == Counter(
            ["legal.test/legal/robots.txt", f"{free}/no"]
            + [f"{host}{path}" for host in [*bound, free] for path in everywhere]
        )
        assert crawl.stats["krowl/frontier/dropped_count/robots"] == len(bound)
        # RFC 9309, section 2.3.1.2: redirects are followed, whatever the target's robots.txt says.
        rest = [entry for entry in web.log() if entry.path != "/legal/robots.txt"]
        assert violations(rest, min_delay=DELAY) == []
        assert crawl.complaints == []


def test_sitemap_of_a_moved_site_is_asked_at_its_www_host(
    tmp_path: Path,
) -> None:
    """The www host's robots.txt is known by then, so no robots fetch of its own finds sitemaps."""
    www = "www.site.test"
    sitemap = "<urlset><url><loc>http://www.site.test:{port}/named</loc></url></urlset>"
    spec = [
        moved("site.test", f"http://{www}:{{port}}/robots.txt"),
        {**moved("site.test", f"http://{www}:{{port}}/"), "path": "/"},
        {"host": www, **page("/robots.txt", RULES)},
        {"host": www, **page("/", LINKS)},
        {"host": www, "path": "/sitemap.xml", "body": sitemap},
        {"host": www, **page("^/(no|yes|named)$", "x")},
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("site.test")]
        crawl = crawl_of(web, tmp_path, seeds, settings={"KROWL_SITEMAPS": 1}).run()
        asked = Counter(f"{e.host.partition(':')[0]}{e.path}" for e in web.log())
        at_www = ("/robots.txt", "/", "/yes", "/sitemap.xml", "/named")
        assert asked == Counter(
            [f"site.test{path}" for path in ("/robots.txt", "/", "/sitemap.xml")]
            + [f"{www}{path}" for path in at_www]
        )
        assert violations(web.log(), min_delay=DELAY) == []
        assert crawl.complaints == []


def test_same_host_crawl_asks_no_other_for_its_sitemap(tmp_path: Path) -> None:
    """Although its own robots.txt redirects to another host."""
    www = "www.site.test"
    spec = [
        moved("site.test", f"http://{www}:{{port}}/robots.txt"),
        {"host": "site.test", **page("/", "x")},
        {"host": www, **page("/robots.txt", RULES)},
        {"host": www, **page("/sitemap.xml", "x")},
    ]
    with SimulatedWeb(spec=spec) as web:
        settings = {"KROWL_SITEMAPS": 1}
        seeds = [web.url("site.test")]
        crawl_of(web, tmp_path, seeds, settings=settings, arguments={"same_host": 1}).run()
        assert {entry.path for entry in web.log() if entry.host.startswith(www)} == {"/robots.txt"}
