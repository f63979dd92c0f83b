"""Whole crawls of capsules, over TLS."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.pages.row import decode_row
from krowlspider.frontier.store.schema import PAGES, host_of_page
from krowlspider.frontier.store.store import LevelStore
from tests.gemini.answers import Answer, page, redirect, refusal
from tests.gemini.capsules import CapsuleProcess, Capsules, Paths
from tests.gemini.tree import Tree
from tests.gemini.visits import counts, hasty, unasked
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl, frontier_view, scrapy
from tests.support.crawls import anchors
from tests.support.crawls import page as web_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SETTINGS = {"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": "0.05"}


def crawled(tmp_path: Path, seed: str, **settings: object) -> Crawl:
    crawl = Crawl(tmp_path / "job", arguments={"seeds": seed}, settings={**SETTINGS, **settings})
    return crawl.run()


def dropped(crawl: Crawl) -> dict[str, int]:
    prefix = "krowl/frontier/dropped_count/"
    return {
        name.removeprefix(prefix): count
        for name, count in crawl.stats.items()
        if name.startswith(prefix) and count
    }


@pytest.mark.slow
def test_a_tree_of_capsules_is_crawled(tmp_path: Path):
    """Each page once, and none that robots.txt forbids; the delay and robots.txt hold."""
    with CapsuleProcess(Tree(hosts=8, pages=20, filler=20), tmp_path) as server:
        tree = server.tree
        crawl = crawled(tmp_path, tree.seed)
        visits = server.stop()
    asked = counts(visits)
    robots = {f"{tree.base(host)}/robots.txt" for host in range(tree.hosts)}
    # The first kind of robots.txt forbids nothing, and its hosts have no such links.
    assert set(asked) == tree.all_pages() | tree.redirects() | tree.others() | robots
    assert set(asked.values()) == {1}
    assert hasty(visits, 0.05) == []
    assert unasked(visits) == []
    assert {item["url"] for item in crawl.items} == tree.all_pages()
    assert {item["status"] for item in crawl.items} == {20}
    first = next(item for item in crawl.items if item["url"] == tree.seed)
    assert first["title"] == "Page 0 of capsule 0"
    assert first["content_type"].startswith("text/gemini")
    assert {"gemini_missing", "gemini_input", "robots"} <= set(dropped(crawl))
    assert crawl.stats["krowl/frontier/done_count"] == 160
    assert not crawl.complaints


WEB: Mapping[str, Answer] = {
    "/": page(
        "# Home\n=> /input\n=> /later\n=> /slow\n=> /no\n=> /gone\n=> /key\n=> /1\n=> /web\n"
        "=> /html\n=> /plain\n=> /loop\n"
    ),
    "/input": refusal(10, "your name?"),
    "/later": refusal(41, "later"),
    "/no": refusal(59, "no"),
    "/gone": refusal(52, "gone"),
    "/key": refusal(60, "a certificate"),
    **{f"/{hop}": redirect(f"/{hop + 1}", status=30) for hop in range(1, 8)},
    "/web": redirect("http://elsewhere.test/"),
    "/loop": redirect("/loop"),
    "/html": page('<title>Page</title><a href="/linked">x</a>', kind="text/html; lang=de"),
    "/linked": page("# Linked\n"),
    "/plain": page("=> /not-a-link\n", kind="text/plain"),
}


@pytest.mark.slow
def test_each_status_means_what_it_says(tmp_path: Path):
    """One page each: dropped with its reason, or followed, or tried again."""
    web = Paths({**WEB, "/slow": lambda times: page("# At last\n") if times else refusal(44, "1")})
    with Capsules(web) as capsules:
        seed = capsules.url()
        crawl = crawled(tmp_path, seed, RETRY_TIMES=1)
        asked = {url.removeprefix(seed): count for url, count in capsules.asked().items()}
        slow = [visit for visit in capsules.visits if visit.url.endswith("/slow")]
    assert asked["later"] == asked["slow"] == 2
    assert slow[1].opened - slow[0].ended >= 1.0
    assert [hop for hop in range(1, 9) if f"{hop}" in asked] == [1, 2, 3, 4, 5, 6]
    once = {"", "robots.txt", "input", "no", "gone", "key", "web", "loop", "html", "plain"}
    assert {name for name, count in asked.items() if count == 1} == once | set("123456") | {
        "linked"
    }
    assert dropped(crawl) == {
        **dict.fromkeys(("gemini_input", "gemini_temporary", "gemini_permanent"), 1),
        **dict.fromkeys(("gemini_missing", "gemini_certificate", "redirect_scheme"), 1),
        **dict.fromkeys(("redirects", "redirect_loop"), 1),
    }
    found = {item["url"].removeprefix(seed): item for item in crawl.items}
    assert set(found) == {"", "slow", "html", "linked", "plain"}
    assert (found["html"]["title"], found["slow"]["title"]) == ("Page", "At last")


@pytest.mark.slow
def test_a_kill_loses_no_capsule_page(tmp_path: Path):
    """A killed crawl goes on: each page is archived, and the delay holds across the kill."""
    with CapsuleProcess(Tree(hosts=8, pages=20, filler=20), tmp_path) as server:
        tree = server.tree
        crawl = Crawl(tmp_path / "job", arguments={"seeds": tree.seed}, settings=SETTINGS).start()
        crawl.wait_until(lambda: len(server.visits()) >= 60)
        crawl.kill()
        again = Crawl(tmp_path / "job", settings=SETTINGS).run()
        visits = server.stop()
    wanted = tree.all_pages() | tree.redirects() | tree.others()
    assert wanted <= set(counts(visits))
    # Handshakes that the kill has cut name no host.
    assert hasty([visit for visit in visits if visit.server_name], 0.05) == []
    assert again.stats["krowl/frontier/done_count"] < 160
    view = frontier_view(tmp_path / "job")
    assert view["queued"] == 0
    lines = scrapy("frontier", tmp_path / "job", "--pages", "--json").stdout.splitlines()
    rows = {row["url"]: row["status"] for row in map(json.loads, lines)}
    assert {url for url, status in rows.items() if status == 20} == tree.all_pages()


@pytest.mark.slow
def test_gemini_is_refused_where_it_is_off(tmp_path: Path):
    """As a seed with a reason, and a folder that has gemini URLs is not crawled without it."""
    with Capsules(Paths(WEB)) as capsules:
        off = Crawl(tmp_path / "off", arguments={"seeds": capsules.url()}).start().wait(code=2)
        assert "KROWL_GEMINI=True" in off.log
        assert not capsules.visits
        crawled(tmp_path, capsules.url("/plain"))
        stopped = Crawl(tmp_path / "job").start().wait(code=2)
    assert "this JOBDIR has crawled gemini URLs" in stopped.log


@pytest.mark.slow
def test_links_lead_from_gemini_to_the_web_and_back(tmp_path: Path):
    """Each has its own robots.txt, though both have one name. A redirect across is followed if a
    setting says so."""
    paths = Paths({"/b": page("# Back\n"), "/old": redirect("gemini://a.test/")})
    with Capsules(paths) as capsules:
        back = capsules.url("/b", "a.test")
        spec = [web_page("/robots.txt", "", status=404), web_page("/", anchors(back))]
        with MockWeb(spec=spec) as web:
            there = web.url("a.test")
            paths.answers["/"] = page(f"=> {there} There\n=> /over\n")
            paths.answers["/over"] = redirect(there)
            first = capsules.url(host="a.test")
            crawl = crawled(tmp_path, first, KROWL_GEMINI_REDIRECTS="any")
            asked = [entry.path for entry in web.log()]
        visits = capsules.visits
    assert {item["url"] for item in crawl.items} == {first, there, back}
    assert {visit.url.rpartition("/")[2] for visit in visits} == {"robots.txt", "", "b", "over"}
    assert sorted(asked) == ["/", "/robots.txt"]
    assert not dropped(crawl)


@pytest.mark.slow
def test_an_ordinary_spider_crawls_capsules(tmp_path: Path):
    """Its redirects are followed, and what is no success ends in its errback."""
    paths = Paths(
        {"/": page("# Home\n"), "/moved": redirect("/there"), "/there": page("# There\n")}
    )
    with Capsules(paths) as capsules:
        root = capsules.url("")
        crawl = Crawl(
            tmp_path / "job",
            spider="capsules",
            arguments={"root": root},
            settings={**SETTINGS, "SPIDER_MODULES": "tests.support.spiders"},
        ).run()
    found = sorted(crawl.items, key=lambda item: str(item["kind"]))
    assert found == [
        {"kind": "error", "status": 51},
        {"kind": "index", "status": 20, "text": "# Home\n"},
        {"kind": "moved", "url": f"{root}/there", "from": [f"{root}/moved"]},
    ]
    assert dropped(crawl) == {"gemini_missing": 1}
    assert not crawl.complaints


@pytest.mark.slow
def test_a_server_rests_for_a_second(tmp_path: Path):
    """At any port, though the web may be asked more often."""
    with Capsules(Paths({"/": page("=> /a\n"), "/a": page("# A\n")})) as capsules:
        crawled(tmp_path, capsules.url(), KROWL_GEMINI_DELAY_MIN=1)
    assert len(capsules.visits) == 3
    assert hasty(capsules.visits, 1.0) == []


@pytest.mark.slow
def test_pages_are_fetched_again(tmp_path: Path):
    """In full, as Gemini has no conditions. One that is gone is so in its row."""
    paths = Paths({"/": page("# Home\n=> /a\n=> /b\n"), "/a": page("# A\n"), "/b": page("# B\n")})
    with Capsules(paths) as capsules:
        root = capsules.url()
        crawled(tmp_path, root)
        paths.answers["/b"] = refusal(52, "gone")
        again = Crawl(tmp_path / "job", settings={**SETTINGS, "KROWL_RECRAWL": "once"}).run()
        asked = capsules.asked()
    assert asked == {root: 2, f"{root}a": 2, f"{root}b": 2, f"{root}robots.txt": 1}
    lines = scrapy("frontier", tmp_path / "job", "--pages", "--json").stdout.splitlines()
    rows = {row["url"].removeprefix(root): row for row in map(json.loads, lines)}
    assert {path: row["status"] for path, row in rows.items()} == {"": 20, "a": 20, "b": 52}
    assert {row["fetches"] for row in rows.values()} == {2}
    # The first answer that a page is missing is no change yet.
    assert not any(row["changes"] for row in rows.values())
    assert dropped(again) == {"gemini_missing": 1}


@pytest.mark.slow
def test_a_gemlog_brings_forward_what_it_names(tmp_path: Path):
    """Its entry of yesterday is later than the last fetch of one of two pages."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    log = f"# Log\n=> /a {yesterday} News\n=> /x 2022-01-02 Old\n=> /y 2022-01-01 Older\n"
    paths = Paths({f"/{name}": page(f"# {name}\n") for name in "abxy"})
    paths.answers["/"] = page("=> /a\n=> /b\n=> /x\n=> /y\n")
    paths.answers["/log"] = page(log)
    settings = {**SETTINGS, "KROWL_RECRAWL": "continuous"}
    with Capsules(paths) as capsules:
        root = capsules.url()
        first = Crawl(tmp_path / "job", arguments={"seeds": root}, settings=settings).start()
        first.wait_until(lambda: len(capsules.asked()) == 6)
        first.interrupt()
        age(tmp_path / "job", 5 * 86_400)
        seeds = {"seeds": f"{root}log"}
        again = Crawl(tmp_path / "job", arguments=seeds, settings=settings).start()
        again.wait_until(lambda: capsules.asked()[f"{root}a"] == 2)
        again.interrupt()
        asked = capsules.asked()
    assert [asked[f"{root}{name}"] for name in "abxy"] == [2, 1, 1, 1]
    assert again.stats["krowl/recrawl/hinted_count"] == 1


def age(job: Path, seconds: int) -> None:
    """Make all pages of a crawl as if they had been fetched so much earlier."""
    with closing(LevelStore(job / "frontier")) as store:
        batch = store.batch()
        for key, value in list(store.items(PAGES)):
            host = host_of_page(key)
            row = decode_row(value, host)
            row.last -= seconds
            row.first -= seconds
            row.changed -= seconds
            row.planned += seconds
            batch.put(key, row.encode(host))
        batch.write()
