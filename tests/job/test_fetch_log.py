"""``crawl.log``: a line for each fetch, in Heritrix's columns."""

from __future__ import annotations

import asyncio
import re
import resource
import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from krowlspider.archive.payload import digest
from krowlspider.fetch.errors import ConnectTimeout, Exchange, Peer, Times
from krowlspider.fetch.memory import StoredResponse, _File
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Lease
from krowlspider.frontier.hosts.host import Host
from krowlspider.job.in_flight import InFlight
from krowlspider.job.monitoring.crawl_log import CrawlLog, _Line
from tests.support.crawls import AT_ONCE, anchors, crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC = [
    page("/robots.txt", "", status=404),
    page("/", anchors("/moved")),
    page("/moved", "", status=301, headers={"Location": "/end"}),
    page("/end", "y", headers={"Content-Type": "text/plain; charset=utf-8"}),
]


@pytest.mark.slow
def test_each_fetch_of_a_crawl_has_a_line(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        settings = {**AT_ONCE, "RETRY_TIMES": 0, "KROWL_CRAWL_LOG": "1MB"}
        own = web.url("a.test")
        crawl = crawl_of(web, tmp_path, [own, "http://10.0.0.1/"], settings=settings).run()
    lines = (crawl.jobdir / "crawl.log").read_text().splitlines()
    rows = [line.split() for line in lines]
    assert {len(row) for row in rows} == {12}
    found = {row[3].replace(own, "/"): row for row in rows if row[3].startswith(own)}
    assert {url: (row[1], row[4], row[6], row[11]) for url, row in found.items()} == {
        "/robots.txt": ("404", "P", "text/html", "-"),
        "/": ("200", "-", "text/html", "-"),
        "/moved": ("301", "L", "text/html", "depth:1"),
        "/end": ("200", "R", "text/plain", "depth:1"),
    }
    time, _, size, _, _, via, _, thread, took, sha, source, _ = found["/end"]
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", time)
    assert re.fullmatch(r"[0-9]{17}\+[0-9]+", took)
    assert int(size) > 1
    assert (via, thread, sha, source) == (f"{own}moved", "-", digest(b"y"), "-")
    refused = [row for row in rows if "//10.0.0.1/" in row[3]]
    assert {(row[1], row[2], row[8], row[9], row[11]) for row in refused} == {
        ("-2", "-", "-", "-", "address_forbidden")
    }


# --- parts ---


def flight(url: str, depth: int = 0) -> InFlight:
    return InFlight(Host("a.test"), url, Lease(Host("a.test"), 0, 1, Entry(url, depth)))


def exchange(body: bytes) -> Exchange:
    times = Times(1000.0, 0.1, 0.25, None)
    headers = [(b"content-TYPE", b"text/html\t evil")]
    return Exchange("", b"", b"HTTP" + body, 4, 200, "1.1", headers, body, "", Peer(""), times)


def written(path: Path, most: int, log: Callable[[CrawlLog], None]) -> list[str]:
    """Return the lines of a log after a call."""

    async def run() -> None:
        made = CrawlLog(path, most, algorithm="sha1", node="n1", wall=lambda: 1000.5)
        log(made)
        await made.close()

    asyncio.run(run())
    return path.read_text().splitlines()


def test_a_url_cannot_make_columns_or_lines(tmp_path: Path) -> None:
    (line,) = written(
        tmp_path / "log",
        10_000,
        lambda log: log.fetched(flight("http://a.test/ b\n\u00e9\x1b"), exchange(b"x")),
    )
    assert line == (
        "1970-01-01T00:16:40.500Z   200          5 http://a.test/%20b%0A%C3%A9%1B - -"
        f" text/html%09%20evil n1 19700101001640000+250 {digest(b'x')} - -"
    )


def test_the_log_is_rotated_and_bounded(tmp_path: Path) -> None:
    """And a line that a kill has cut short is ended."""
    path = tmp_path / "log"
    path.write_text("cut")
    kept = written(path, 10_000, lambda log: log.failed(flight("http://a.test/"), ConnectTimeout()))
    assert kept[0] == "cut"
    assert kept[1].split()[1] == "-2"
    for _ in range(200):
        written(path, 10_000, lambda log: log.fetched(flight("http://a.test/"), exchange(b"x")))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 10
    assert 5000 < sum(file.stat().st_size for file in files) <= 10_000
    assert all(file.read_text().endswith("\n") for file in files)


def test_lines_and_bodies_that_wait_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("krowlspider.job.monitoring.crawl_log._LINES_MAX", 3)
    monkeypatch.setattr("krowlspider.job.monitoring.crawl_log._BODIES_MAX", 10)

    def log(made: CrawlLog) -> None:
        for _ in range(5):
            made.fetched(flight("http://a.test/"), exchange(b"123456"))

    lines = written(tmp_path / "log", 10_000, log)
    assert [line.split()[9] for line in lines] == [digest(b"123456"), "-", "-"]
    assert "lines lost: 2 (its disk is too slow)" in caplog.text


def test_a_response_in_a_file_has_size_and_digest(tmp_path: Path) -> None:
    """In an exchange its bytes and its body are empty."""
    file = _File(tmp_path)
    file.append(b"HEAD" + b"b" * 6000)
    whole = StoredResponse(file, 6004, 4, 6000, None)
    large = replace(exchange(b""), response_bytes=b"", stored=whole)
    (line,) = written(
        tmp_path / "log", 10_000, lambda log: log.fetched(flight("http://a.test/"), large)
    )
    assert (line.split()[2], line.split()[9]) == ("6004", digest(b"b" * 6000))


def test_half_a_line_of_a_full_disk_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def run() -> None:
        log = CrawlLog(path, 100_000, algorithm="sha1", node="")
        log.fetched(flight("http://a.test/"), exchange(b"x"))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
        try:
            log._write(log._lines)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await log.close()

    asyncio.run(run())
    cut, line = path.read_text().splitlines()
    assert len(cut) == 50
    assert len(line.split()) == 12


def test_a_disk_that_fails_costs_lines_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "none" / "log"
    with pytest.raises(FileNotFoundError):
        written(path, 100, lambda log: log.fetched(flight("http://a.test/"), exchange(b"x")))
    assert "lines lost: 1 (No such file or directory)" in caplog.text


def test_the_log_is_written_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krowlspider.job.monitoring.crawl_log._INTERVAL", 0.01)
    threads = []
    write = CrawlLog._write

    async def run() -> None:
        loop, wrote = asyncio.get_running_loop(), asyncio.Event()

        def watched(self: CrawlLog, lines: list[_Line]) -> None:
            threads.append(threading.current_thread())
            write(self, lines)
            loop.call_soon_threadsafe(wrote.set)

        monkeypatch.setattr(CrawlLog, "_write", watched)
        log = CrawlLog(tmp_path / "log", 10_000, algorithm="sha1", node="")
        for _ in range(2):
            wrote.clear()
            log.fetched(flight("http://a.test/"), exchange(b"x"))
            await wrote.wait()
        await log.close()

    asyncio.run(run())
    assert len(threads) == 2
    assert threading.main_thread() not in threads
    assert len((tmp_path / "log").read_text().splitlines()) == 2
