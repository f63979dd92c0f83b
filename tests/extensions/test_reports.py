"""The report at the end of a crawl."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.errors import data_size
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import LastAnswer, Lease
from krowlspider.frontier.hosts.host import Health, Host, HostQueue
from krowlspider.frontier.hosts.host_record import HostFigures, encode_host
from krowlspider.frontier.outcomes import Outcomes, read_prices
from krowlspider.frontier.seed_words import SeedFetches
from krowlspider.frontier.store import schema
from krowlspider.job import report as tables
from krowlspider.job.report import KEPT, SLICE, Course, Table, read_tables
from krowlspider.views.report import _rates, _tsv, write_report
from tests.frontier.memory import MemoryStore
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

SPEC = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret\n"),
    page("/", anchors("/a", "/secret", "/gone", "/moved")),
    page("/a", "x", headers={"Content-Type": "Text/HTML; charset=utf-8"}),
    page("/gone", "x", status=404, headers={"Content-Type": "<script>"}),
    page("/moved", "", status=301, headers={"Location": "/\u001b[31m", "Content-Type": "<script>"}),
]


def rows(crawl: Crawl, name: str) -> list[list[str]]:
    """Return the rows of a table, without its header."""
    text = (crawl.jobdir / "reports" / f"{name}.tsv").read_text()
    return [line.split("\t") for line in text.splitlines()[1:]]


def report(crawl: Crawl) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((crawl.jobdir / "reports" / "report.json").read_text())
    return found


def test_the_report_says_what_became_of_pages_and_seeds(tmp_path: Path) -> None:
    """Over all starts of the folder, and after a stop as after an end."""
    with SimulatedWeb(spec=SPEC) as web:
        seeds = [web.url("a.test"), web.url("b.test", "/secret"), web.url("c.test", "/moved")]
        seeds.append("http://no.invalid/")
        # Several commits.
        quick = {"KROWL_DELAY_FACTOR": 0, "RETRY_TIMES": 0, "KROWL_COMMIT_INTERVAL": 0.01}
        few = crawl_of(web, tmp_path, seeds, arguments={"max_pages": 1}, settings=quick).run()
        assert report(few)["done"] == 1
        before = {seed: outcome for _, seed, outcome, *_ in rows(few, "seeds")}
        crawl = crawl_of(web, tmp_path, seeds, settings=quick).run()
    assert "queued" in before.values()
    assert rows(crawl, "statuses") == [["404", "3", "0"], ["200", "2", "0"], ["301", "2", "0"]]
    found = report(crawl)
    assert (found["done"], found["queued"], found["starts"], found["hosts"]) == (5, 1, 2, 4)
    assert rows(crawl, "fetched") == [["pages", "5"], ["redirects", "2"], ["robots.txt", "3"]]
    assert found["reason"] == "finished"
    source = str(tmp_path / "seeds.txt")
    moved_to = web.url("c.test", "/%1B[31m")
    assert rows(crawl, "seeds") == [
        ["1", seeds[0], "done", "200", "", "4", "0", "", source],
        ["2", seeds[1], "robots", "", "", "0", "0", "", source],
        ["3", seeds[2], "failed: status 404", "404", moved_to, "1", "0", "", source],
        ["4", seeds[3], "deferred", "", "", "0", "1", "", source],
    ]
    assert rows(crawl, "drops") == [["robots", "2"]]
    assert [kind for kind, *_ in rows(crawl, "types")] == ["text/html", "text/plain", "invalid"]
    text = (crawl.jobdir / "reports" / "report.html").read_text()
    assert "<h1>Report of broad</h1>" in text
    course = json.loads((crawl.jobdir / "reports" / "course.json").read_text())
    assert [sample[1:] for sample in course["samples"]][-1] == [5, 2, 1]
    assert not re.search(r"<script|<link|src=|@import|url\(", text)


def lease(url: str, media_type: bytes | None, depth: int = 0) -> Lease:
    answer = LastAnswer(200, media_type, None, 10, 0.1)
    return Lease(Host("a.test"), 0, 1, Entry(url, depth), answer)


def test_media_types_are_bounded_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krowlspider.frontier.outcomes.TYPES_MAX", 2)
    store = MemoryStore()
    outcomes = Outcomes(store, 1000.0)
    kinds = [b"a/a", b"b/b ; x", b"c/c", None]
    tallied = outcomes.tally((lease("http://a.test/", kind), None) for kind in kinds)
    batch = store.batch()
    outcomes.put(batch, tallied)
    batch.write()
    again = Outcomes(store, 2000.0).counts
    assert again["began"] == 1000
    assert [again[f"type/{kind}"] for kind in ("a/a", "b/b", "other", "none")] == [1, 1, 1, 1]


def test_prices_are_bounded_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, nothing is written."""
    monkeypatch.setattr("krowlspider.frontier.outcomes.PRICED_MAX", 2)
    store = MemoryStore()
    for asked in ([], [("a", ""), ("b", "USD 1")], [("a", "USD 2"), ("a", ""), ("c", "USD 3")]):
        outcomes, batch = Outcomes(store, 1000.0), store.batch()
        for host, price in asked:
            outcomes.priced(host, price)
        outcomes.put(batch, Counter())
        batch.write()
        assert (store.get(schema.PRICES) is None) is (not asked and not read_prices(store))
    assert read_prices(store) == {"a": ("USD 2", 3), "b": ("USD 1", 1)}


def test_the_greatest_hosts_are_found_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "HOSTS_MAX", 5)
    monkeypatch.setattr(tables, "SLOWEST_MAX", 3)
    chance = Random(1)
    hosts = [
        (f"h{at}.test", HostFigures(chance.randrange(99), 0, 0, Health.ACTIVE, chance.random(), 0))
        for at in range(60)
    ]
    found = tables._Hosts()
    for at in range(0, 60, 7):
        found.add(hosts[at : at + 7])
    assert found.most.hosts() == sorted(hosts, key=lambda each: each[1], reverse=True)[:5]
    slowest = sorted(hosts, key=lambda each: each[1].latency, reverse=True)
    assert found.slowest.hosts() == slowest[:3]


def test_the_report_is_made_in_short_slices(tmp_path: Path) -> None:
    """No more calls than some rows make are between two sleeps of the thread, however many seeds
    and hosts there are."""
    store = MemoryStore()
    batch = store.batch()
    for at in range(SLICE * 15):
        host = Host(f"h{at}.test", queue=HostQueue({}, at, [], 0, 0))
        batch.put(schema.host_key(host.name), encode_host(host))
        url = f"http://{host.name}/"
        batch.put(schema.SEED + url.encode(), b'["done",200,"/\xc3\xbc"]')
        batch.put(schema.seed_line_key(0, at), json.dumps([url, url, ""]).encode())
    batch.put(schema.SEED_SOURCES, json.dumps([["s", SLICE * 15]]).encode())
    batch.write()
    slices, calls = [], 0

    def count(_: object, event: str, called: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}
        if called is time.sleep and event == "c_call":
            slices.append(calls)
            calls = 0

    sys.setprofile(count)
    try:
        found = read_tables(store)
        about = {"spider": "broad", "folder": "/", "reason": "finished", "ended": 0.0, "ran": 1.0}
        write_report(tmp_path / "reports", about, found, Course(tmp_path / "course.json"))
        found.close()
    finally:
        sys.setprofile(None)
    assert found.totals["hosts"] == SLICE * 15
    assert len((tmp_path / "reports" / "seeds.tsv").read_text().splitlines()) == SLICE * 15 + 1
    assert max(*slices, calls) < 80 * SLICE


def test_a_cell_is_neither_a_formula_nor_two_cells() -> None:
    table = Table("seeds", "Seeds", ("to", "n"), [("=HYPERLINK()", 1), ("@x", -2), ("/a", 3)])
    assert list(_tsv(table))[1:] == ["'=HYPERLINK()\t1\n", "'@x\t-2\n", "/a\t3\n"]
    table = Table("seeds", "Seeds", ("to", "n"), [("a\tb", 1), ("\x1b[1m", 2), ("/\u00fc", 3)])
    assert list(_tsv(table))[1:] == ["a?b\t1\n", "?[1m\t2\n", "/\u00fc\t3\n"]


def test_figures_of_a_seed_are_in_the_order_of_their_columns() -> None:
    found = dict(
        zip(tables._FETCHED, tables._figures(SeedFetches(2, 300, 1000.0, 2000.0)), strict=True)
    )
    times = {"first fetch": "1970-01-01T00:16:40Z", "last fetch": "1970-01-01T00:33:20Z"}
    assert found == {"pages": 2, "bytes": 300, **times}


def test_long_headers_are_not_kept_until_the_commit() -> None:
    answer = LastAnswer.of(301, b"a/b;" + b"x" * 60_000, b"/" * 60_000, 10, 0.1)
    assert len(answer.media_type or b"") + len(answer.location or b"") < 3000
    assert LastAnswer.of(200, None, None, 10, 0.1) == (200, None, None, 10, 0.1)


def test_the_course_gets_coarser_as_the_crawl_gets_longer(tmp_path: Path) -> None:
    course = Course(tmp_path / "reports" / "course.json")
    figures = {"done": 1, "dropped": 2, "queued": 3}
    for at in range(4 * KEPT):
        course.add(1000.0 + 10 * at, figures)
    course.write()
    again = Course(tmp_path / "reports" / "course.json").samples
    assert KEPT / 2 <= len(again) < KEPT
    assert again[0] == [1000.0, 1, 2, 3]
    assert again[-1][0] > 1000.0 + 10 * 4 * KEPT - 100
    assert len({later[0] - earlier[0] for earlier, later in pairwise(again)}) == 1


def test_a_dropped_answer_is_no_page(tmp_path: Path) -> None:
    """Neither one whose body is too large, nor one of a host that always throttles."""
    spec = [
        page("/", f"{anchors('/large')}", headers={"Content-Type": "text/html"}),
        page("/large", "x" * 5000, headers={"Content-Type": "image/png"}),
        page("/throttled", "", status=429),
    ]
    settings = {"DOWNLOAD_MAXSIZE": 2000, "RETRY_TIMES": 0}
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test"), web.url("b.test", "/throttled")]
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run()
    assert rows(crawl, "statuses") == [["200", "1", "1"], ["429", "0", "1"]]
    assert [row[:2] for row in rows(crawl, "types")] == [["text/html", "1"]]
    assert rows(crawl, "drops") == [["throttled", "1"], ["too_large", "1"]]
    assert report(crawl)["done"] == 1


def test_time_between_starts_is_not_time_crawled(tmp_path: Path) -> None:
    """Neither of two starts that end by themselves, nor of one that was killed between them."""
    with SimulatedWeb(spec=SPEC) as web:
        quick = {"KROWL_DELAY_MIN": 1, "KROWL_DELAY_FACTOR": 0}
        begun = clocks.now
        for limit in (1, 2, 0):
            arguments = {"max_pages": limit}
            crawl = crawl_of(
                web, tmp_path, [web.url("a.test")], settings=quick, arguments=arguments
            ).run()
            clocks.now += 86_400
    found = report(crawl)
    assert found["starts"] == 3
    assert 3 < found["ran"] < clocks.now - begun - 3 * 86_400
    text = (crawl.jobdir / "reports" / "report.html").read_text()
    shown = dict(re.findall(r"<dt>([^<]+)</dt><dd>(.*?)</dd>", text))
    assert shown["time crawled"] == f"{found['ran']:.1f} <small>s</small>"
    assert re.fullmatch(r"\d+\.\d <small>KB</small>", shown["received"])
    assert "Over the time crawled, without the time between starts" in text
    # Its title names no number of rows.
    assert len(rows(crawl, "slowest")) == 1
    assert "<h2>The slowest hosts</h2>" in text
    axes = {float(axis) for axis in re.findall(r"<span>0</span><span>([\d.]+) s</span>", text)}
    assert len(axes) == 1
    assert max(axes) <= found["ran"] + 1


def course_of(tmp_path: Path, *samples: tuple[float, int]) -> Course:
    """Return a course of times and pages done."""
    course = Course(tmp_path / "course.json")
    for time_, done in samples:
        course.add(time_, {"done": done, "dropped": 0, "queued": 0}, always=True)
    return course


@pytest.mark.parametrize(
    ("samples", "rates"),
    [
        # The last sample of a start comes right after the one before.
        ([(0, 0), (10, 100), (20, 200), (20.4, 200)], [10, 100 / 10.4]),
        # A crawl of some seconds has one rate.
        ([(0, 0), (4, 12)], [3]),
        # A day between two starts.
        ([(0, 0), (10, 50), (86_410, 50), (86_420, 150)], [5, 10]),
        ([(0, 0)], []),
    ],
)
def test_rates_are_of_the_time_crawled(
    tmp_path: Path, samples: list[tuple[float, int]], rates: list[float]
) -> None:
    course = course_of(tmp_path, *samples)
    found = _rates(course.steps(), [sample[1] for sample in course.samples], course.interval)
    assert [round(rate, 1) for _, rate in found] == [round(rate, 1) for rate in rates]


def test_course_of_an_older_release_tells_the_time_crawled(tmp_path: Path) -> None:
    course = course_of(tmp_path, (0, 0), (10, 50), (86_410, 50), (86_420, 150))
    course.ran = 21.5
    course.write()
    assert Course(tmp_path / "course.json").ran == 21.5
    saved = json.loads((tmp_path / "course.json").read_text())
    del saved["ran"]
    (tmp_path / "course.json").write_text(json.dumps(saved))
    assert Course(tmp_path / "course.json").ran == 20.0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        *((13_400, "13.4 KB"), (999_940, "999.9 KB"), (999_960, "1.0 MB"), (0, "0.0 KB")),
        *((7_300_000, "7.3 MB"), (999_960_000, "1.0 GB"), (1_204e9, "1,204.0 GB")),
    ],
)
def test_a_size_has_a_unit_that_fits(size: float, text: str) -> None:
    assert data_size(size) == text
