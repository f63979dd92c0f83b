"""The web of the benchmark is what its figures are taken to be of."""

from __future__ import annotations

import gzip
import http.client
import ssl
import statistics
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench.exact import check, differences
from bench.pages import OWN, Pages, Shape, path
from bench.profile import Stack, weights_of
from bench.stages import START, stage_of
from bench.web import BenchWeb
from krowlspider.urls.page.links import read_page
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

# A hundredth of the templates are enough, and are made in as much less time.
SMALL = Shape(hosts=20, per_host=25, missing=0.1, templates=16)


@pytest.fixture(scope="module")
def web() -> Iterator[BenchWeb]:
    with BenchWeb(SMALL) as web:
        yield web


def get(
    web: BenchWeb, number: int, *, target: str = "", coding: str = "identity"
) -> tuple[int, bytes, str]:
    """Status, body and content coding of a page, or of something else on its host."""
    host, page = divmod(number, web.shape.per_host)
    name, port = web.shape.name(host), web.shape.port
    connection = http.client.HTTPConnection(name, port, timeout=10)
    if web.shape.tls:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(name, port, timeout=10, context=context)
    try:
        connection.request("GET", target or path(page), headers={"Accept-Encoding": coding})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Encoding", "")
    finally:
        connection.close()


@pytest.mark.slow
def test_pages_have_40_kb_and_77_links_on_average() -> None:
    templates = Pages(Shape(port=12345)).templates
    assert 38_000 < statistics.mean(len(template.body) for template in templates) < 42_000
    assert 74 < statistics.mean(template.links for template in templates) < 80


def test_three_of_four_links_lead_to_the_pages_own_host() -> None:
    pages = Pages(Shape(port=12345, templates=50))
    own = across = distinct = 0
    url = pages.shape.url(0)
    for template in pages.templates:
        links = read_page(template.body, url, None).links
        distinct += template.distinct
        own += sum(link.startswith(pages.shape.root(0)) for link in links)
        across += sum(not link.startswith(pages.shape.root(0)) for link in links)
    # A few are in scripts, where no crawler looks.
    assert 0.98 * distinct < own + across <= distinct
    # Distinct ones, so a little less: pages with many links name own ones twice.
    assert OWN - 0.2 < own / (own + across) < OWN + 0.05


def test_each_page_has_bytes_of_its_own(web: BenchWeb) -> None:
    bodies = {get(web, number)[1] for number in range(2 * SMALL.per_host)}
    missing = sum(web.shape.is_missing(number) for number in range(2 * SMALL.per_host))
    assert missing
    # All that are missing have the same.
    assert len(bodies) == 2 * SMALL.per_host - missing + 1


def test_it_counts_what_it_was_asked(web: BenchWeb) -> None:
    web.take()
    there = next(number for number in range(1, 25) if not web.shape.is_missing(number))
    missing = next(number for number in range(1, 25) if web.shape.is_missing(number))
    for number in (there, missing):
        get(web, number)
    get(web, there, target="/robots.txt")
    get(web, there, target="/elsewhere")
    disallowed = get(web, 19)[0]
    taken = web.take()
    kinds = ("robots", "pages", "missing", "disallowed", "strange", "connections", "numbers")
    assert {kind: taken[kind] for kind in kinds} == {
        "robots": 1,
        "pages": 1 + (disallowed == 200),
        "missing": 1 + (disallowed == 404),
        "disallowed": 1,
        "strange": 1,
        "connections": 5,
        "numbers": [there, missing, 19],
    }
    assert web.take()["numbers"] == []


def test_gzip_coded_pages_are_the_same_pages(web: BenchWeb) -> None:
    with BenchWeb(Shape(hosts=20, per_host=25, gzip=True, templates=16)) as packed:
        for number in (0, 7, 490):
            status, body, coding = get(packed, number, coding="gzip")
            assert (status, coding) == (200, "gzip")
            plain = get(packed, number)
            assert plain == (200, gzip.decompress(body), "")
            assert len(body) < len(plain[1]) / 2


@pytest.mark.slow
def test_the_same_pages_come_over_tls() -> None:
    with BenchWeb(Shape(hosts=3, per_host=20, tls=True, templates=4)) as web:
        status, body, _ = get(web, 0)
        assert status == 200
        assert b'="https://127.10.' in body
        assert b'="http://127' not in body


@pytest.mark.slow
@pytest.mark.parametrize("names", [False, True])
def test_a_crawl_fetches_what_is_reachable(names: bool) -> None:
    """The configuration of the benchmark loses nothing and fetches nothing twice."""
    figures = check(Shape(missing=0.05, gzip=True, names=names, templates=40))
    assert figures["pages"] > 1500
    assert figures["missing"]
    assert figures["refused_by_robots"]


def test_differences_name_each_kind() -> None:
    assert differences([1, 2, 3], {1, 2, 3}) == ""
    assert (
        differences([1, 1, 4], {1, 2})
        == "1 not fetched: [2]; 1 not reachable: [4]; 1 fetched again: [1]"
    )


MAIN = "thread (7): MainThread;_run_module_as_main (<frozen runpy>:1);execute (scrapy/cmdline.py:1)"
CRAWLING = f"{MAIN};AsyncioSelectorReactor.run (twisted/internet/asyncioreactor.py:2)"
READ_PAGE = "read_page (krowlspider/urls/page/links.py:1)"
DISCOVER = "Intake.discover (krowlspider/job/intake.py:3)"
DISPATCH = "Dispatcher.next (krowlspider/engine/dispatcher.py:3)"
APPLY = "LevelStore.apply (krowlspider/frontier/store/store.py:2)"


@table(
    ("frames", "stage"),
    [
        ([DISPATCH, "EntryQueues.pop (krowlspider/frontier/entry_queues.py:4)"], "pop"),
        ([DISPATCH, "Dispatcher._verdict (krowlspider/engine/dispatcher.py:4)"], "robots check"),
        ([DISCOVER, "IdentityHasher.keys (krowlspider/urls/canonical.py:4)"], "dedup"),
        ([DISCOVER, "Frontier.queue (krowlspider/frontier/frontier.py:3)", APPLY], "enqueue"),
        (["Commit.write (krowlspider/frontier/frontier.py:3)", APPLY], "ack and commit"),
        (
            [READ_PAGE, "normalise_all (krowlspider/urls/canonical.py:4)", "f (can_ada.so)"],
            "canonicalise",
        ),
        ([READ_PAGE, "gc_collect_main (libpython3.11.so)"], "garbage collection"),
        (["Headers.get (scrapy/http/headers.py:1)"], "no stage"),
    ],
)
def test_a_sample_belongs_to_its_innermost_stage(frames: list[str], stage: str) -> None:
    assert stage_of(Stack(f"{';'.join([CRAWLING, *frames])} 3")) == stage


def test_what_runs_before_the_reactor_is_the_start() -> None:
    line = f"{MAIN};_find_and_load (<frozen importlib._bootstrap>:9);{READ_PAGE} 1"
    assert stage_of(Stack(line)) == START


def test_threads_weigh_by_the_cpu_that_they_used() -> None:
    """A thread that is ready but has no core is sampled as often as one that runs."""
    stacks = [Stack(f"{CRAWLING} 30"), Stack("thread (8): warc-writer;run (a.py:1) 30")]
    weights = weights_of(stacks, Counter({7: 90, 8: 10}))
    assert {thread: round(30 * weight, 6) for thread, weight in weights.items()} == {7: 0.9, 8: 0.1}
