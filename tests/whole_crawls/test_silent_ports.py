"""Hosts of which one port drops all packets, while the other one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.politeness.delay import ERRORS_PARK
from tests.support.crawling import frontier_view, write_seeds
from tests.support.crawls import page, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_loop import clocks, silent
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.simulated_loop import Script

LINKS = 60


@pytest.fixture
def silent_https() -> Iterator[None]:
    silent[443] = 0
    yield
    del silent[443]


def crawled(tmp_path: Path, seeds: list[str], **settings: object) -> SimulatedCrawl:
    """Return a crawl of seeds that waits 10 s for a connection."""
    return SimulatedCrawl(
        tmp_path / "job",
        arguments={"seeds": write_seeds(tmp_path / "seeds.txt", seeds)},
        settings={"KROWL_CONNECT_TIMEOUT": 10, **settings},
    )


def site() -> SimulatedWeb:
    """Return the web server of a host that links to as many pages of its port 443 as of port 80."""
    links = [
        f'<a href="{scheme}://a.test/{number}">x</a>'
        for scheme in ("https", "http")
        for number in range(LINKS)
    ]
    spec = [page("/robots.txt", "", status=404), page("/", "".join(links))]
    return SimulatedWeb(spec=[*spec, page("^/", "<title>Page</title>")], port=80)


@pytest.mark.usefixtures("silent_https")
@pytest.mark.parametrize("obey", [True, False])
def test_links_to_a_silent_port_cost_no_more_than_a_dead_host(tmp_path: Path, obey: bool) -> None:
    """They stay queued, and the pages of the other port are fetched."""
    with site() as web:
        begun = clocks.monotonic()
        crawl = SimulatedCrawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", ["http://a.test/"])},
            settings={"ROBOTSTXT_OBEY": obey, "KROWL_CONNECT_TIMEOUT": 10},
        ).run()
        assert len(pages(web.log())) == 1 + LINKS
        assert 0 < silent[443] <= ERRORS_PARK
        assert clocks.monotonic() - begun < 1000
    view = frontier_view(crawl.jobdir)
    assert (view["queued"], view["dropped"]) == (LINKS, {})


@pytest.mark.usefixtures("silent_https")
def test_seeds_at_a_silent_port_hold_up_no_links(tmp_path: Path) -> None:
    """They come before all links, so those must not wait for them."""
    links = "".join(f'<a href="/{number}">x</a>' for number in range(LINKS))
    spec = [page("/", links), page("^/", "<title>Page</title>")]
    seeds = ["http://a.test/", *(f"https://a.test/s{number}" for number in range(8))]
    with SimulatedWeb(spec=spec, port=80) as web:
        crawled(tmp_path, seeds, ROBOTSTXT_OBEY=False).run()
        assert len(pages(web.log())) == 1 + LINKS


def test_a_crawl_outlives_a_short_silence_of_its_only_host(tmp_path: Path) -> None:
    links = "".join(f'<a href="/{number}">x</a>' for number in range(LINKS))
    spec = [page("/", links), page("^/", "<title>Page</title>", close=True)]

    def silence() -> Script:
        yield lambda: len(pages(web.log())) > 3
        silent[80] = 0
        yield 40.0
        del silent[80]

    with SimulatedWeb(spec=spec, port=80) as web:
        crawl = crawled(tmp_path, ["http://a.test/"], ROBOTSTXT_OBEY=False)
        crawl.script = silence()
        crawl.run()
        assert len(pages(web.log())) == 1 + LINKS
