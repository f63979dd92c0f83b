"""The files by which sites refuse that their pages train models."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from krowlspider.corpus.sites.index import SiteIndex, findings
from krowlspider.corpus.sites.terms import AI, TDM_FILE
from krowlspider.spiders.sitemaps import PATHS
from tests.corpus.test_sites import Sites
from tests.support.crawls import anchors, crawl_of, page, pages
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

ON = {"KROWL_OPT_OUTS": 1, "KROWL_WARC_ALSO": "metadata"}
ROBOTS = page("/robots.txt", "User-agent: *\nDisallow: /private\n")
HOME = page("/", anchors("/p1", "http://b.test:{port}/p1"))
LEAF = page("^/p", "leaf")
REFUSES = '[{"location": "/p*", "tdm-reservation": 1}]'


def fetched(web: SimulatedWeb) -> Counter[str]:
    return Counter(f"{e.host.partition(':')[0]}{e.path}" for e in pages(web.log()))


def test_each_host_is_asked_once_for_its_files(tmp_path: Path) -> None:
    """`scrapy corpus` finds them in the archive, the second host's as revisits. None is an item."""
    tdm = {"path": TDM_FILE, "headers": {"Content-Type": "application/json"}, "body": REFUSES}
    with SimulatedWeb(spec=[ROBOTS, HOME, LEAF, tdm]) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=ON).run()
        paths = "/", "/p1", AI, TDM_FILE
        expected = {f"{host}.test{path}" for host in "ab" for path in paths} - {"b.test/"}
        assert fetched(web) == Counter(expected)
        assert len(crawl.items) == 3
        (archive,) = (tmp_path / "job" / "warc").glob("*.warc.gz")
        index = SiteIndex(tmp_path / "index")
        index.add("", map(msgspec.json.encode, findings(archive, lambda body, _: body)))
        index.publish(tmp_path / "sites")
        index.close()
        sites = Sites(tmp_path / "sites")
        for item in crawl.items:
            expected = [] if item["url"].endswith("/") else ["tdm-reservation"]
            assert sites.signals_for(item["url"], "html") == expected
        sites.close()


def test_the_corpus_reads_what_the_spider_fetches() -> None:
    assert set(PATHS) == {AI, TDM_FILE}


def test_no_opt_out_file_is_fetched_if_off(tmp_path: Path) -> None:
    with SimulatedWeb(spec=[ROBOTS, page("/", "home"), LEAF]) as web:
        crawl_of(web, tmp_path, [web.url("a.test")]).run()
        assert fetched(web) == Counter({"a.test/": 1})


def test_they_come_before_what_the_host_has_queued(tmp_path: Path) -> None:
    """Without them, the pages of a crawl that is stopped could be used for training."""
    with SimulatedWeb(spec=[ROBOTS, LEAF]) as web:
        seeds = [web.url("a.test", f"/p{n}") for n in range(10)]
        arguments = {"max_pages": 2}
        crawl_of(web, tmp_path, seeds, settings=ON, arguments=arguments).run()
        assert [entry.path for entry in pages(web.log())] == ["/p0", *PATHS, "/p1"]


def test_they_are_fetched_when_a_crawl_goes_on_with_them(tmp_path: Path) -> None:
    """robots.txt of the host is known already then."""
    with SimulatedWeb(spec=[ROBOTS, LEAF]) as web:
        seeds = [web.url("a.test", f"/p{n}") for n in range(3)]
        crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}).run()
        crawl_of(web, tmp_path, seeds, settings=ON).run()
        assert [entry.path for entry in pages(web.log())] == ["/p0", "/p1", *PATHS, "/p2"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"allow": "/p"}, {*PATHS, "/p1"}), ({"deny": "json"}, {AI, "/p1"}), ({"same_host": 1}, None)],
)
def test_rules_about_pages_do_not_apply_to_them(
    tmp_path: Path, arguments: dict[str, object], expected: set[str] | None
) -> None:
    """What the user denies is not fetched."""
    with SimulatedWeb(spec=[ROBOTS, LEAF]) as web:
        crawl_of(web, tmp_path, [web.url("a.test", "/p1")], settings=ON, arguments=arguments).run()
        assert {entry.path for entry in pages(web.log())} == (expected or {*PATHS, "/p1"})


def test_robots_txt_and_a_limit_of_depth_hold(tmp_path: Path) -> None:
    """The depth of the files is that of the page for which they are fetched."""
    refuses = page("/robots.txt", "User-agent: *\nDisallow: /ai.txt\n")
    with SimulatedWeb(spec=[refuses, HOME, LEAF]) as web:
        arguments = {"max_depth": 0}
        crawl_of(web, tmp_path, [web.url("a.test")], settings=ON, arguments=arguments).run()
        assert fetched(web) == Counter({"a.test/": 1, f"a.test{TDM_FILE}": 1})
