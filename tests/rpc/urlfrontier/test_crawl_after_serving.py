"""A folder that was served, in a later crawl by Scrapy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.rpc.urlfrontier.crawls import Crawls
from tests.rpc.urlfrontier.served import discovered, known, project_settings
from tests.support.crawls import anchors, crawl_of, page
from tests.support.simulated_crawl import interrupt
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.simulated_loop import Script

SPEC = [
    page("/robots.txt", "", status=404),
    page("/", anchors("/1", "/2")),
    page("^/.*$", "x"),
]


def paths(web: SimulatedWeb, host: str) -> set[str]:
    return {entry.path for entry in web.log() if entry.host == f"{host}:{web.port}"}


def later(seconds: float) -> Callable[[], bool]:
    end = clocks.monotonic() + seconds
    return lambda: clocks.monotonic() >= end


@pytest.mark.slow
def test_a_delay_of_all_hosts_holds_in_a_later_crawl(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        crawls = Crawls(
            crawl.jobdir, project_settings(), wall=clocks.wall, monotonic=clocks.monotonic
        )
        crawls.set_delay("", 50)
        crawls.close()

        asked = []

        def watch() -> Script:
            for seconds in (30, 60, 60):
                yield later(seconds)
                asked.append(len(paths(web, "a.test")))
            interrupt()

        crawl.script = watch()
        crawl.run()
        assert asked == [1, 2, 3]


@pytest.mark.slow
def test_a_block_of_a_client_holds_in_a_later_crawl(tmp_path: Path) -> None:
    """It ends at its time, without the service."""
    with SimulatedWeb(spec=SPEC) as web:
        hosts = [f"{name}.test:{web.port}" for name in "abc"]
        crawl = crawl_of(web, tmp_path, [web.url("c.test")])
        crawls = Crawls(
            crawl.jobdir, project_settings(), wall=clocks.wall, monotonic=clocks.monotonic
        )
        served = crawls.begun("")
        served.put(discovered(*(f"http://{host}/" for host in hosts)))
        served.put(known(f"http://{hosts[2]}/1"))
        served.block(hosts[0], clocks.wall() + 100)
        served.block(hosts[1], 2**63)
        crawls.close()

        asked = []

        def watch() -> Script:
            for _ in range(2):
                yield later(60)
                asked.append([len(paths(web, host)) for host in ("a.test", "b.test")])
            interrupt()

        crawl.script = watch()
        crawl.run()
        assert asked == [[0, 0], [4, 0]]
        # A client has fetched /1.
        assert paths(web, "c.test") == {"/robots.txt", "/", "/2"}
