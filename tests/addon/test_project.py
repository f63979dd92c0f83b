"""The add-on in a project of its users: the wheel, `scrapy startproject`, and three lines."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from tests.addon.installed import build_wheel, copy_source, environment, make_venv
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.support.crawls import anchors, page, pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PAGES = 100
WEB = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret"),
    *(page(f"/{n}", anchors(f"/{n + 1}", f"/{n + 2}", "/secret")) for n in range(PAGES - 1)),
    page(f"/{PAGES - 1}", "the last one"),
    {"path": f"/{PAGES}", "status": 404},
]
LINES = """
ADDONS = {"krowlspider.addon.%s": 100}
KROWL_CONTACT = "crawl-tests@krowlspider.internal"
JOBDIR = "job"
"""
# What a web on loopback, with one host, needs besides.
OF_THE_TEST = """
KROWL_ALLOW_ADDRESSES = ["127.0.0.0/8"]
DOWNLOAD_DELAY = 0
KROWL_DELAY_MIN = KROWL_IP_DELAY_MIN = 0.05
KROWL_DELAY_FACTOR = 1
PROMETHEUS_PORT = 0
TELNETCONSOLE_ENABLED = False
LOG_FILE = "crawl.log"
ITEM_PIPELINES = {"shop.pipelines.ShopPipeline": 300}
"""
SPIDER = """
import scrapy

class Own(scrapy.Spider):
    name = "own"

    async def start(self):
        yield scrapy.Request(self.start_url)

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a venv with the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(copy_source(tmp_path_factory.mktemp("source")), folder / "wheel")
    return make_venv(wheel, folder / "venv")


class Project:
    """A project of ``scrapy startproject`` with the add-on."""

    def __init__(self, python: Path, folder: Path, profile: str = "Krowl"):
        self._python = python
        self.folder = folder / "shop"
        self.run("startproject", "shop", cwd=folder)
        settings = self.folder / "shop" / "settings.py"
        settings.write_text(settings.read_text() + LINES % profile + OF_THE_TEST)
        (self.folder / "shop" / "spiders" / "own.py").write_text(SPIDER)

    def start(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._python, "-m", "scrapy", *words],
            cwd=cwd or self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, code: int = 0, cwd: Path | None = None) -> str:
        process = self.start(*words, cwd=cwd)
        try:
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == code, output + self.log
        return output

    @property
    def log(self) -> str:
        path = self.folder / "crawl.log"
        return path.read_text() if path.exists() else ""

    def crawl(self, web: MockWeb, *words: str) -> tuple[str, ...]:
        return "crawl", "own", "-a", f"start_url={web.url('127.0.0.1', '/0')}", "-o", *words

    @property
    def items(self) -> list[str]:
        lines = (self.folder / "items.jsonl").read_text().splitlines()
        return [json.loads(line)["url"].rpartition("/")[2] for line in lines]


def archived(folder: Path) -> dict[str, list[bytes]]:
    """Return the bytes of the responses of each path, without the head of the record."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, WarcRecordType.response, parse_http=False):
                name = "/" + record.headers["WARC-Target-URI"].split("/", 3)[3]
                found.setdefault(name, []).append(record.reader.read())
    return found


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_three_lines_make_a_durable_archived_crawl(python: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle; the same command goes on. Each page is fetched once."""
    project = Project(python, tmp_path)
    with MockWeb(spec=WEB) as web:
        crawl = project.crawl(web, "items.jsonl")
        process = project.start(*crawl)
        until(lambda: len(web.log()) > PAGES // 3, process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        first = len(pages(web.log()))
        assert PAGES // 4 < first < PAGES
        project.run(*crawl)
        log = web.log()
    assert sorted(project.items, key=int) == [str(n) for n in range(PAGES)]
    assert len(pages(log)) == PAGES + 1
    assert not any(entry.path == "/secret" for entry in log)
    # A warcinfo for each start; request and response of each page and of robots.txt.
    records = 2 + 2 * (len(pages(log)) + 1)
    assert project.run("warc", "check", "job") == (
        f"2 files, {records} records: 0 problems, 0 warnings\n"
    )
    assert "queued   0" in project.run("frontier", "job")
    warnings = [line for line in project.log.splitlines() if "WARNING" in line]
    assert [line for line in warnings if "DOWNLOAD_DELAY" not in line] == []


def test_projects_without_the_add_on_are_left_alone(python: Path, tmp_path: Path) -> None:
    project = Project(python, tmp_path)
    settings = project.folder / "shop" / "settings.py"
    settings.write_text(settings.read_text() + "ADDONS = {}\nSTATS_DUMP = True\nLOG_FILE = None\n")
    with MockWeb(spec=WEB) as web:
        stock = "SCHEDULER=scrapy.core.scheduler.Scheduler"
        output = project.run(
            "crawl", "own", "-s", stock, "-a", f"start_url={web.url('127.0.0.1', '/95')}"
        )
        assert sorted(entry.path for entry in web.log())[:2] == ["/100", "/95"]
    assert "'finish_reason': 'finished'" in output
    assert "krowl" not in output.replace("krowlspider.internal", "").replace(str(tmp_path), "")
    assert not (project.folder / "job" / "warc").exists()
    checked = project.run("warc", "check", "job", code=2)
    assert checked.startswith("krowlspider: job is neither a crawl's folder nor one of WARC files")
    refused = project.run("node", code=2)
    assert refused.startswith("krowlspider: this project has no add-on that crawls: set ADDONS")
    outside = project.run("crawl", "own", code=2, cwd=tmp_path)
    assert outside.startswith("The crawl command is not available from this location")
    listed = project.run(cwd=tmp_path)
    assert "Needs a project" in listed
    assert "Needs the add-on of krowlspider" in listed


def test_commands_of_the_project_are_those_of_the_add_on(python: Path, tmp_path: Path) -> None:
    project = Project(python, tmp_path)
    assert project.run("list") == "own\n"
    wrong = project.run("crawl", "own", "-s", "KROWL_DELAY_MIN=soon", code=2)
    assert wrong.startswith("krowlspider: KROWL_DELAY_MIN='soon'")
    assert project.run("settings", "--get", "KROWL_DELAY_MAX") == "30.0\n"
    for name in ("crawl", "warc", "node", "top"):
        assert "Usage" in project.run(name, "--help")
    with MockWeb(spec=WEB) as web:
        fetched = project.run("fetch", "--nolog", web.url("127.0.0.1", f"/{PAGES - 1}"))
        assert fetched.strip() == "the last one"
    assert not (project.folder / "job").exists()


def test_refused_settings_are_named_in_one_line(python: Path, tmp_path: Path) -> None:
    project = Project(python, tmp_path)
    settings = project.folder / "shop" / "settings.py"
    settings.write_text(settings.read_text() + 'SCHEDULER = "scrapy_redis.scheduler.Scheduler"\n')
    said = project.run("crawl", "own", code=2)
    assert said.count("\n") == 1
    assert said.startswith("krowlspider: SCHEDULER='scrapy_redis.scheduler.Scheduler' is neither")
    assert said.endswith("remove SCHEDULER from your settings\n")


def test_frontier_alone_is_polite_and_archives_nothing(python: Path, tmp_path: Path) -> None:
    """Scrapy's download handlers fetch the pages. After kill -9 the same command goes on."""
    project = Project(python, tmp_path, "KrowlFrontier")
    with MockWeb(spec=WEB) as web:
        crawl = project.crawl(web, "items.jsonl")
        process = project.start(*crawl)
        until(lambda: len(web.log()) > PAGES // 3, process)
        process.kill()
        process.communicate()
        first = len(web.log())
        project.run(*crawl)
        log = web.log()
    assert not any(entry.path == "/secret" for entry in log)
    asked = [entry.path for entry in pages(log)]
    assert {*asked} == {f"/{n}" for n in range(PAGES + 1)}
    # Pages of the last second before the kill are fetched again.
    assert len(asked) - len({*asked}) <= 25 < first
    assert {entry.ua for entry in log} == {"krowlspider/0.2.0 (+crawl-tests@krowlspider.internal)"}
    assert (
        violations(log, min_delay=lambda _: 0.05, allowed=lambda _, path: path != "/secret") == []
    )
    assert [*(project.folder / "job" / "warc").iterdir()] == []
    assert "no archive (KROWL_ARCHIVE=False)" in project.log
    assert "queued   0" in project.run("frontier", "job")


def test_archive_alone_keeps_what_scrapy_fetches(python: Path, tmp_path: Path) -> None:
    """Scrapy's own scheduler and downloader, and its robots.txt middleware."""
    project = Project(python, tmp_path, "KrowlArchive")
    with MockWeb(spec=WEB) as web:
        project.run(*project.crawl(web, "items.jsonl"))
        log = web.log()
    assert sorted(project.items, key=int) == [str(n) for n in range(PAGES)]
    found = archived(project.folder / "job" / "warc")
    assert {*found} == {"/robots.txt", *(f"/{n}" for n in range(PAGES + 1))}
    assert [name for name, each in found.items() if len(each) != 1] == []
    assert len(log) == PAGES + 2
    assert found["/99"][0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert found["/99"][0].endswith(b"the last one")
    # A warcinfo; request and response of each.
    assert project.run("warc", "check", "job/warc") == (
        f"1 file, {1 + 2 * (PAGES + 2)} records: 0 problems, 0 warnings\n"
    )
    assert "Crawl ended" not in project.log


CODED = [
    page("/robots.txt", ""),
    page("/0", anchors("/1", "/2")),
    page("/1", anchors("/3"), gzip=True),
    page("/2", anchors("/4"), chunked=True),
    page("/3", "three"),
    page("/4", "four"),
]


@pytest.mark.parametrize("profile", ["KrowlFrontier", "KrowlArchive"])
def test_coded_bodies_reach_the_spider_decoded(python: Path, tmp_path: Path, profile: str) -> None:
    """The archive has them as they came."""
    project = Project(python, tmp_path, profile)
    with MockWeb(spec=CODED) as web:
        project.run(*project.crawl(web, "items.jsonl"))
    assert sorted(project.items) == ["0", "1", "2", "3", "4"]
    if profile == "KrowlArchive":
        found = archived(project.folder / "job" / "warc")
        assert found["/1"][0].partition(b"\r\n\r\n")[2].startswith(b"\x1f\x8b")
        assert b"\r\nTransfer-Encoding: chunked\r\n" in found["/2"][0]
        assert found["/2"][0].endswith(b"\r\n0\r\n\r\n")


def test_archive_of_a_killed_crawl_is_mended_at_the_next_start(
    python: Path, tmp_path: Path
) -> None:
    """Records that were synced before the kill are there."""
    project = Project(python, tmp_path, "KrowlArchive")
    # Scrapy's own queue does not survive a kill, so each start crawls all.
    place = ("-s", "JOBDIR=", "-s", "KROWL_WARC_DIR=warc", "-s", "KROWL_COMMIT_INTERVAL=0.1")
    with MockWeb(spec=WEB) as web:
        slow = (*project.crawl(web, "items.jsonl"), *place, "-s", "DOWNLOAD_DELAY=0.05")
        process = project.start(*slow)
        until(lambda: len(web.log()) > PAGES // 3, process)
        kept = [entry.path for entry in web.log() if entry.path != "/robots.txt"][: PAGES // 4]
        process.kill()
        process.communicate()
        project.run(*project.crawl(web, "items.jsonl"), *place)
    assert "Mended the archive of a start that did not end" in project.log
    found = archived(project.folder / "warc")
    assert {*found} == {"/robots.txt", *(f"/{n}" for n in range(PAGES + 1))}
    assert [path for path in kept if len(found[path]) != 2] == []
    assert ": 0 problems, 0 warnings" in project.run("warc", "check", "warc")
