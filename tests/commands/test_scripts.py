"""Scripts run crawls with Scrapy's own classes, as its documentation shows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.mockweb import MockWeb
from tests.support.crawls import anchors, page
from tests.support.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SITE = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret"),
    page("/", anchors("/a", "/secret")),
    page("/a", "fine"),
]
HEAD = """
import sys
from scrapy import Spider
from scrapy.crawler import *
from scrapy.utils.project import get_project_settings
from scrapy.utils.reactor import install_reactor
from tests.support.crawling import SETTINGS

url, folder = sys.argv[1:]

class Own(Spider):
    name = "own"
    start_urls = [url]
    custom_settings = {"JOBDIR": f"{folder}/own"}

    def parse(self, response):
        yield from response.follow_all(css="a")

settings = get_project_settings()
settings.setdict({**SETTINGS, "STATS_CLASS": "scrapy.statscollectors.MemoryStatsCollector"})
"""
ONE = """
process = CrawlerProcess({**settings, "KROWL_LOG_FORMAT": "json"})
process.crawl(Own)
process.start()
"""
TWO = """
process = AsyncCrawlerProcess({**settings, "JOBDIR": f"{folder}/broad"})
process.crawl("broad", seeds=url)
process.crawl(Own)
process.start()
"""
RUNNER = """
install_reactor(settings["TWISTED_REACTOR"], settings["ASYNCIO_EVENT_LOOP"])
from twisted.internet import reactor

crawl = CrawlerRunner(settings).crawl(Own)
crawl.addBoth(lambda _: reactor.stop())
reactor.run()
"""
ASYNC_RUNNER = """
from twisted.internet.task import react
from scrapy.utils.defer import deferred_f_from_coro_f

install_reactor(settings["TWISTED_REACTOR"], settings["ASYNCIO_EVENT_LOOP"])
settings["JOBDIR"] = f"{folder}/broad"

async def main(_):
    runner = AsyncCrawlerRunner(settings)
    await runner.crawl("broad", seeds=url)
    await runner.crawl(Own)

react(deferred_f_from_coro_f(main))
"""
SAME_FOLDER = """
process = AsyncCrawlerProcess({**settings, "JOBDIR": f"{folder}/own"})
process.crawl(Own)
process.crawl("broad", seeds=url)
process.start()
print(process.bootstrap_failed)
"""


def run_script(folder: Path, script: str) -> tuple[str, list[str]]:
    """Return the output of a script, and the paths that the web was asked for."""
    file = folder / "script.py"
    file.write_text(HEAD + script)
    with MockWeb(spec=SITE) as web:
        done = subprocess.run(
            [sys.executable, file, web.url("127.0.0.1"), folder],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            timeout=60,
            text=True,
            check=True,
        )
        return done.stderr + done.stdout, sorted(entry.path for entry in web.log())


@pytest.mark.parametrize(
    ("script", "crawls"),
    [
        pytest.param(TWO, ["broad", "own"], id="two crawls"),
        pytest.param(RUNNER, ["own"], id="runner", marks=pytest.mark.slow),
        pytest.param(ASYNC_RUNNER, ["broad", "own"], id="async runner", marks=pytest.mark.slow),
    ],
)
def test_a_script_runs_crawls(tmp_path: Path, script: str, crawls: list[str]) -> None:
    output, asked = run_script(tmp_path, script)
    assert "Traceback" not in output
    assert asked == sorted(["/robots.txt", "/", "/a"] * len(crawls))
    for crawl in crawls:
        assert list((tmp_path / crawl / "warc").glob("*.warc.gz"))


@pytest.mark.slow
def test_a_script_runs_a_crawl_with_its_log_as_json(tmp_path: Path) -> None:
    output, asked = run_script(tmp_path, ONE)
    assert asked == ["/", "/a", "/robots.txt"]
    assert list((tmp_path / "own" / "warc").glob("*.warc.gz"))
    # Scrapy's first lines come before it reads the settings of the spider.
    lines = output[output.index('{"time"') :].splitlines()
    assert {json.loads(line)["spider"] for line in lines} == {"own"}


@pytest.mark.slow
def test_two_crawls_of_a_script_do_not_share_a_folder(tmp_path: Path) -> None:
    output, asked = run_script(tmp_path, SAME_FOLDER)
    assert f"JobInUseError: JOBDIR {tmp_path / 'own'} is in use by process" in output
    assert output.rstrip().endswith("True")
    assert asked == ["/", "/a", "/robots.txt"]
