"""A page whose processing kills the process three times is set aside. A kill from outside blames
no page in flight."""

from __future__ import annotations

import random
import zlib
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore, all_entries
from krowlspider.frontier.work_mark import MARK, NOTHING, THREAD_MARK, mark_of
from krowlspider.job.folder import JobFolder
from tests.mockweb import MockWeb
from tests.mockweb.oracle import reachable
from tests.support.crawling import Crawl, frontier_view
from tests.support.crawls import crawl_of, page, pages
from tests.whole_crawls.test_restart import GRAPH, fetched

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = [f"h{number}.test" for number in range(5)]
ORDINARY = {(host, f"/{number}") for host in HOSTS for number in range(4)}
SITE = [
    page("/robots.txt", ""),
    page("/deadly", "do not read this"),
    # Slow enough that pages of every other host are in flight when the process dies.
    page("^/[0-9]$", "harmless", latency=0.1),
]
SIGKILL, SIGSEGV = -9, -11


def deadly_crawl(web: MockWeb, folder: Path, way: str, **settings: object) -> Crawl:
    roots = " ".join(web.url(host, "") for host in HOSTS)
    return Crawl(
        folder / "job",
        spider="deadly",
        arguments={"roots": roots, "way": way},
        settings={"SPIDER_MODULES": "tests.support.spiders", **settings},
    )


def entries(jobdir: Path, kind: bytes) -> list[Entry]:
    """Return the entries of a crawl that has ended: queued ones, or those set aside."""
    store = LevelStore(jobdir / "frontier")
    try:
        found = store.items(kind)
        return [entry_of(key, saved) for key, saved in found if not schema.is_record(key)]
    finally:
        store.close()


def strikes(jobdir: Path) -> int:
    return sum(entry.strikes for entry in entries(jobdir, schema.QUEUE))


def is_blank(jobdir: Path, name: str = MARK) -> bool:
    """Return whether no page is marked in the file. This works while a process runs, too."""
    return (jobdir / name).read_bytes()[64:].startswith(NOTHING)


def marked(jobdir: Path, name: str = MARK) -> str | None:
    """Return the URL that a crawl left marked at its end."""
    mark = (jobdir / name).read_bytes()[64:]
    if mark.startswith(NOTHING):
        return None
    store = LevelStore(jobdir / "frontier")
    try:
        (url,) = (
            entry_of(key, saved).url
            for key, saved in all_entries(store)
            if mark.startswith(mark_of(key, entry_of(key, saved).url))
        )
    finally:
        store.close()
    return url


def in_flight(jobdir: Path) -> int:
    status = JobFolder(jobdir).read_status()
    return 0 if status is None else int(str(status["in_flight"]))


WAYS = {
    "function": SIGKILL,
    "segfault": SIGSEGV,
    "exit": 7,
    "generator": SIGKILL,
    "coroutine": SIGKILL,
    "asynchronous": SIGKILL,
    "pipeline": SIGKILL,
    "background": SIGKILL,
}


# A slow test below has the other ways.
@pytest.mark.parametrize("way", ["segfault", "exit", "pipeline", "background"])
def test_the_page_that_kills_is_marked(tmp_path: Path, way: str) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = deadly_crawl(web, tmp_path, way).run(code=WAYS[way])
        assert marked(crawl.jobdir) == web.url(HOSTS[0], "/deadly")


def test_the_page_whose_errback_kills_is_marked(tmp_path: Path) -> None:
    gone: list[dict[str, Any]] = [{"path": "/deadly", "status": 404}, *SITE]
    with MockWeb(spec=gone) as web:
        crawl = deadly_crawl(web, tmp_path, "function").run(code=SIGKILL)
        assert marked(crawl.jobdir) == web.url(HOSTS[0], "/deadly")


def test_a_page_that_kills_three_times_is_set_aside(tmp_path: Path) -> None:
    """A failed answer in between keeps the strikes. The page is never queued again."""
    failing = [
        page("/deadly", "do not read this", first=1),
        page("/deadly", "not now", first=1, status=500),
    ]
    with MockWeb(spec=[*failing, *SITE]) as web:
        for count in range(3):
            crawl = deadly_crawl(web, tmp_path, "function").run(code=SIGKILL)
            assert strikes(crawl.jobdir) == count, crawl.log
        last = deadly_crawl(web, tmp_path, "function").run()
        assert_poison(last, web, fetches=4)
        asked = len(web.log())
        again = deadly_crawl(web, tmp_path, "function").run()
        assert len(web.log()) == asked
        assert "krowl/frontier/dropped_count/poison" not in again.stats
        assert not [line for line in again.complaints if "set aside" in line]
        assert frontier_view(again.jobdir)["dropped"] == {"poison": 1}


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in WAYS if way != "function"])
def test_a_page_is_set_aside_whatever_way_it_kills(tmp_path: Path, way: str) -> None:
    with MockWeb(spec=SITE) as web:
        for _ in range(3):
            deadly_crawl(web, tmp_path, way).run(code=WAYS[way])
        assert_poison(deadly_crawl(web, tmp_path, way).run(), web, fetches=3)


def assert_poison(last: Crawl, web: MockWeb, fetches: int) -> None:
    """Assert that one page is set aside after ``fetches`` fetches, and all others are done."""
    url = web.url(HOSTS[0], "/deadly")
    found = [(entry.url, entry.strikes) for entry in entries(last.jobdir, schema.POISON)]
    assert found == [(url, 3)]
    view = frontier_view(last.jobdir)
    assert (view["queued"], view["dropped"]) == (0, {"poison": 1})
    assert last.stats["krowl/frontier/dropped_count/poison"] == 1
    asked = [(entry.host.partition(":")[0], entry.path) for entry in pages(web.log())]
    assert asked.count((HOSTS[0], "/deadly")) == fetches
    assert {*asked} == ORDINARY | {(HOSTS[0], "/deadly")}
    assert view["done"] == len(ORDINARY)
    warnings = [line for line in last.complaints if "is set aside" in line]
    assert len(warnings) == 1
    assert url in warnings[0]
    assert f"scrapy frontier {last.jobdir} --export" in warnings[0]
    assert marked(last.jobdir) is None


def all_in_flight(jobdir: Path) -> bool:
    return in_flight(jobdir) == len(HOSTS)


def test_pages_merely_in_flight_get_no_strike(tmp_path: Path) -> None:
    """At each kill, all pages wait for their answers."""
    slow = [page("/robots.txt", ""), page("^/", "late", latency=60)]
    with MockWeb(spec=slow) as web:
        for _ in range(4):
            crawl = deadly_crawl(web, tmp_path, "parse", KROWL_STATUS_INTERVAL=0.1).start()
            crawl.wait_until(partial(all_in_flight, crawl.jobdir))
            crawl.kill()
            assert marked(crawl.jobdir) is None
        assert strikes(crawl.jobdir) == 0
        assert entries(crawl.jobdir, schema.POISON) == []
        assert len(entries(crawl.jobdir, schema.QUEUE)) == len(ORDINARY) + 1


@pytest.mark.slow
def test_a_kill_gives_at_most_one_strike_and_loses_no_page(tmp_path: Path) -> None:
    chance = random.Random(1)
    with MockWeb(graph=GRAPH) as web:
        for kills in range(6):
            crawl = crawl_of(web, tmp_path).start()
            goal = len(web.log()) + chance.randrange(10, 60)
            crawl.wait_until(lambda goal=goal: fetched(web, goal))  # type: ignore[misc]
            crawl.kill()
            assert strikes(crawl.jobdir) <= kills
        last = crawl_of(web, tmp_path).run()
        assert reachable(web.graph, web.seeds()).differences(web.log(), at_least=True) == []
        assert entries(last.jobdir, schema.POISON) == []
        assert marked(last.jobdir) is None


def test_a_page_is_marked_while_its_body_is_decoded(tmp_path: Path) -> None:
    """Kill the process while a thread decodes the body: the next start gives the page a strike.

    The decoded body is a byte too large, so no callback can have the page.
    """
    packer = zlib.compressobj(1, wbits=31)
    body = b"".join(packer.compress(bytes(1_000_000)) for _ in range(200)) + packer.flush()
    bomb = {
        "path": "/bomb",
        "headers": {"Content-Encoding": "gzip"},
        "body_base64": b64encode(body).decode(),
    }
    with MockWeb(spec=[page("/robots.txt", ""), bomb]) as web:
        url = web.url("h.test", "/bomb")
        crawl = crawl_of(web, tmp_path, [url], settings={"DOWNLOAD_MAXSIZE": 199_999_999}).start()
        mark = crawl.jobdir / THREAD_MARK
        crawl.wait_until(lambda: mark.exists() and not is_blank(crawl.jobdir, THREAD_MARK))
        crawl.kill()
        assert marked(crawl.jobdir, THREAD_MARK) == url
        assert is_blank(crawl.jobdir)
        again = crawl_of(web, tmp_path, [url], settings={"DOWNLOAD_MAXSIZE": 199_999_999}).run()
        assert [line for line in again.complaints if f"worked on {url}: strike 1" in line]
        assert is_blank(crawl.jobdir, THREAD_MARK)
