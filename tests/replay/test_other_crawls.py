"""Crawls that refer to earlier ones are small, and pywb replays all of them together."""

from __future__ import annotations

import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.archive.cdxj import REVISIT, IndexLine
from krowlspider.archive.indexes import indexes_in, parsed_lines
from tests.mockweb import MockWeb
from tests.replay.test_replay import manage, wayback
from tests.replay.venv import tool
from tests.support.crawling import ROOT, Crawl, scrapy, write_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PAGES = 20
# Bytes of a page: the mean of those of the web's pages.
SIZE = 37_000
WORDS = re.findall(r"\w+", (ROOT / "docs" / "archive.md").read_text())
PLACES = [("a.test", {"chunked": True}), ("b.test", {"gzip": True}), ("c.test", {})]


def text(number: int, version: int) -> str:
    """Return a page of its own words, with links to all others."""
    chosen = random.Random(1000 * version + number)
    links = "".join(f'<a href="/{each or ""}">{each}</a> ' for each in range(PAGES))
    words = " ".join(chosen.choice(WORDS) + str(chosen.randrange(99)) for _ in range(SIZE // 9))
    return f"<!DOCTYPE html><title>{number}</title>{links}<p>{words}"


def site(changed: int = 0) -> list[dict[str, Any]]:
    """Return the pages of three hosts, of which the first ``changed`` on each are new."""
    return [
        {
            "host": host,
            "path": f"/{number or ''}",
            **coding,
            "body": text(number + 100 * place, int(number < changed)),
            "headers": {"Content-Type": "text/html"},
        }
        for place, (host, coding) in enumerate(PLACES)
        for number in range(PAGES)
    ]


def captures(job: Path) -> list[IndexLine]:
    """Return the captures of pages."""
    found = []
    for index in indexes_in(job / "warc").there:
        with index.open("rb") as file:
            found += [line for line in parsed_lines(index, file) if line.url.startswith("http")]
    return [line for line in found if not line.url.endswith("robots.txt")]


def size(job: Path) -> int:
    return sum(warc.stat().st_size for warc in (job / "warc").glob("*.warc.gz"))


@contextmanager
def replay(*jobs: Path, path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run ``scrapy warc replay``; yield the URL that it prints, and the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scrapy", "warc", "replay", *jobs],
        cwd=ROOT,
        env={"PATH": f"{path}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        found = re.search(r"captures? at (\S+) ", line)
        assert found is not None, process.communicate()[1].decode()
        yield found[1], process
    finally:
        process.kill()
        process.communicate()


def assert_replayed(address: str, job: Path, expected: dict[str, str]) -> None:
    """Assert that pywb's collection at ``address`` has the body of each page of a crawl."""
    parts = urlsplit(address)
    found = captures(job)
    assert {line.url for line in found} == expected.keys()
    with closing(HTTPConnection(parts.netloc)) as connection:
        for line in found:
            connection.request("GET", f"{parts.path}{line.timestamp}id_/{line.url}")
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, (line, content)
            assert content.decode() == expected[line.url]


def valid_wacz(folder: Path, job: Path, *earlier: Path) -> Path:
    """Return the WACZ of a crawl with the bodies of earlier ones; assert that wacz accepts it."""
    out = folder / "crawl.wacz"
    scrapy("warc", "wacz", job, *earlier, "-o", out)
    done = subprocess.run(
        [tool("wacz"), "validate", "-f", out], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "the passed WACZ is valid" in done.stdout) == (0, True), done
    return out


def test_later_crawls_are_small_and_replay(tmp_path: Path) -> None:
    """The second crawl knows the first by its JOBDIR, the third both by a dedup index.

    pywb serves their folders together, and then nothing but the WACZ of the third, which has the
    bodies of the first.
    """
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    bodies = {}
    with MockWeb(spec=site()) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(host) for host, _ in PLACES])
        Crawl(first, arguments={"seeds": seeds}).run()
        Crawl(second, arguments={"seeds": seeds}, settings={"KROWL_WARC_DEDUP": first}).run()
        port = web.port
        for job in first, second:
            bodies[job] = {web.url(each["host"], each["path"]): each["body"] for each in site()}
    scrapy("warc", "dedup-index", first, second, "-o", tmp_path / "index")
    with MockWeb(spec=site(PAGES // 10), port=port) as web:
        settings = {"KROWL_WARC_DEDUP": tmp_path / "index"}
        Crawl(third, arguments={"seeds": seeds}, settings=settings).run()
        bodies[third] = {
            web.url(each["host"], each["path"]): each["body"] for each in site(PAGES // 10)
        }
    scrapy("warc", "check", third)
    assert size(second) <= size(first) / 10
    assert size(third) <= size(first) / 5
    for job, revisits in (second, 3 * PAGES), (third, 3 * PAGES * 9 // 10):
        assert [line.mime for line in captures(job)].count(REVISIT) == revisits
    with replay(first, second, third, path=tool("wayback").parent) as (url, process):
        for job, expected in bodies.items():
            assert_replayed(url, job, expected)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        parts = urlsplit(url)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((parts.hostname, parts.port), timeout=5)
    alone = tmp_path / "alone"
    alone.mkdir()
    manage(alone, "--unpack-wacz", valid_wacz(tmp_path, third, first, second))
    for job in bodies:
        job.rename(tmp_path / f"{job.name}-away")
    with wayback(alone) as address:
        assert_replayed(f"{address}/crawl/", tmp_path / "third-away", bodies[third])
