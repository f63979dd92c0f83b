"""Changes to a running crawl: they take effect at once, and stand after a kill."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from krowlspider.crawl.job import _jobs
from krowlspider.engine.control import Control
from krowlspider.engine.steering import Steering
from krowlspider.views.console import Console
from tests.mockweb.audit import violations
from tests.support.crawling import scrapy
from tests.support.crawls import DELAY, anchors, crawl_of, page
from tests.support.simulated_crawl import SimulatedCrawl, interrupt
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.simulated_loop import Script

SPEC = [
    page("/robots.txt", "", status=404),
    page("/", anchors(*(f"/{at}" for at in range(8)))),
    page("^/.*$", "x"),
]
PAGES = {"/", *(f"/{at}" for at in range(8))}


def console() -> Console:
    # Earlier crawls of this process may not be collected yet.
    (crawler,) = (each for each, job in _jobs.items() if job._opened)
    return Console(Control(crawler), Steering(crawler, who="a test"))


def asked(web: SimulatedWeb, host: str) -> Counter[str]:
    return Counter(entry.path for entry in web.log() if entry.host == f"{host}:{web.port}")


def later(seconds: float) -> Callable[[], bool]:
    end = clocks.monotonic() + seconds
    return lambda: clocks.monotonic() >= end


def test_a_paused_host_is_left_alone_until_it_is_resumed(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            krowl = console()
            # Its request is in flight.
            said.append(repr(krowl.pause(web.url("a.test"))))
            before = asked(web, "a.test")
            yield later(20)
            assert asked(web, "a.test") == before
            said.append(repr(krowl.explain(web.url("a.test", "/7"))))
            said.append(repr(krowl.resume(web.url("a.test"))))
            said.append(repr(krowl.resume(web.url("a.test"))))

        crawl = crawl_of(web, tmp_path, [web.url("a.test"), web.url("b.test")])
        assert isinstance(crawl, SimulatedCrawl)
        crawl.script = steer()
        crawl.run()
        for host in ("a.test", "b.test"):
            assert {path for path in asked(web, host) if path != "/robots.txt"} == PAGES
            assert max(asked(web, host).values()) == 1
        assert violations(web.log(), min_delay=DELAY) == []
    assert "is paused: krowl.resume(" in said[0]
    assert "The host: It is paused: krowl.resume(" in said[1]
    assert said[2].endswith("goes on after its delay")
    assert said[3].endswith("is not paused")
    assert crawl.stats["krowl/control/change_count/pause"] == 1
    assert sum("Pause by a test: a.test:" in line for line in crawl.complaints) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_pause_stands_after_a_kill(tmp_path: Path, whole: bool) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        assert isinstance(crawl, SimulatedCrawl)
        pauses: list[bool] = []

        def paused() -> bool:
            if asked(web, "a.test")["/1"] and not pauses:
                console().pause("" if whole else web.url("a.test"))
                pauses.append(True)
            return bool(pauses)

        crawl.run_until_killed(web, paused)
        before = asked(web, "a.test")
        again = SimulatedCrawl(crawl.jobdir)

        def resume() -> Script:
            yield later(20)
            assert asked(web, "a.test") == before
            console().resume("" if whole else web.url("a.test"))

        again.script = resume()
        again.run()
        pages = asked(web, "a.test")
        assert {path for path in pages if path != "/robots.txt"} == PAGES
    assert any("paused by a person" in line for line in again.complaints) is whole


def test_a_url_is_added_once(tmp_path: Path) -> None:
    said: list[str] = []
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            krowl = console()
            said.extend(repr(krowl.add(web.url("a.test", "/new"), 9)) for _ in range(2))
            said.append(repr(krowl.add("ftp://a.test/")))
            said.append(repr(krowl.pause("nowhere.test")))
            said.append(repr(krowl.pause("a b")))
            yield lambda: asked(web, "a.test")["/new"] > 0
            # With its priority, it is next.
            assert asked(web, "a.test")["/3"] == 0
            interrupt()

        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        assert isinstance(crawl, SimulatedCrawl)
        crawl.script = steer()
        crawl.run()
    assert said[0] == "queued"
    assert said[1].startswith("not queued: It is number 1 of ")
    assert "is not a URL that a crawl fetches" in said[2]
    assert "no host 'nowhere.test'" in said[3]
    assert "'a b' is not the name of a host" in said[4]


def test_a_stopped_crawl_says_that_a_host_is_paused(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:

        def steer() -> Script:
            yield lambda: asked(web, "a.test")["/1"] > 0
            console().pause(web.url("a.test"))
            yield later(5)
            interrupt()

        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        assert isinstance(crawl, SimulatedCrawl)
        crawl.script = steer()
        crawl.run()
        done = scrapy("frontier", crawl.jobdir, "--host", web.url("a.test"))
    assert b": It is paused by a person" in done.stdout
