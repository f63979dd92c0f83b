"""``scrapy top``: a running crawl in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.extensions.live_page import FIELDS
from krowlspider.job.monitoring.access import PAGE, note_url, noted_url
from krowlspider.programs.running import CrawlSource, NoCrawlError, lines, page_line, short, title
from krowlspider.programs.top import _REDRAW
from tests.mockweb import MockWeb
from tests.support.crawling import ROOT, Crawl, write_seeds
from tests.support.crawls import anchors, page
from tests.support.in_process import run_here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ESCAPE = "\x1b[31m"
HOST = {"host": "[::1]:80", "queued": 1200, "done": 7, "dropped": 1, "delay": 2.5, "due_in": 3.0}
ANSWERS: dict[str, Any] = {
    "status": {
        "of": None,
        "paused": "",
        "failed": {},
        "spider": "broad",
        "seconds": 95.0,
        "done": 1774,
        "queued": 4080,
        "hosts": 150,
        "due": 3,
        "in_flight": 2,
        "dropped": {"robots": 4},
        "statuses": {"200": 1700, "404": 74},
        "archive_mb": 7.3,
    },
    "hosts": [{**HOST, "errors": 0, "deferred": False}],
    "pages": [{"url": f"http://a.test/{ESCAPE}", "outcome": "done", "status": 200}],
    "history": {
        "fields": FIELDS,
        "samples": [[1000.0 + 10 * at, at % 7, 0, 2, 4000, 7, 1] for at in range(60)],
    },
}


class Api(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name = urlsplit(self.path).path.removeprefix("/api/v1/")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS[name]).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def live_page(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The live page of a crawl in a folder, and the paths that it was asked for."""
    ANSWERS["status"]["folder"] = str(folder)
    kind = type("Kind", (Api,), {"asked": []})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", kind.asked
        finally:
            server.shutdown()
            thread.join()


def test_the_lines_are_those_of_the_crawl(tmp_path: Path) -> None:
    with live_page(tmp_path) as (url, asked):
        found = CrawlSource.of(f"{url}/").snapshot("errors", 5)
    shown = list(lines(found))
    assert shown[0] == f"broad, running for 1 min 35 s, in {tmp_path}"
    assert shown[1] == (
        "1,774 pages | 3.0 pages/s | 4,080 queued on 150 hosts, 3 due | 2 in flight | 4 dropped"
        " | WARC 7.3 MB"
    )
    assert "statuses: 200: 1,700, 404: 74" in shown
    row = "[::1]:80 1,200 7 1 2.5 s 3.0 s 0"
    assert row in [" ".join(line.split()) for line in shown]
    # A URL cannot change the terminal.
    assert shown[-1] == "200 done         http://a.test/?[31m"
    assert "/api/v1/hosts?sort=errors&limit=5" in asked
    # Nor can whoever listens at the port.
    assert title({**ANSWERS["status"], "spider": ESCAPE}).startswith("?[31m, running")
    assert page_line({"status": 0, "outcome": ESCAPE, "url": ""}).startswith("  - ?[31m ")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.test", "a.test"),
        ("x" * 40, "x" * 40),
        (f"{'a' * 63}.{'b' * 63}.example.test", f"{'a' * 13}…{'b' * 13}.example.test"),
    ],
)
def test_a_long_name_leaves_room_for_the_figures(name: str, shown: str) -> None:
    assert short(name) == shown
    assert len(short(name)) <= 40


def test_a_folder_leads_to_its_own_crawl_only(tmp_path: Path) -> None:
    """Not to another one that has the port of a crawl that was killed."""
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(NoCrawlError, match="is not being crawled"):
        CrawlSource.of(str(tmp_path))
    with live_page(tmp_path) as (url, _):
        note_url(tmp_path, PAGE, url)
        assert CrawlSource.of(str(tmp_path)).url == url
        ANSWERS["status"]["folder"] = "/elsewhere"
        with pytest.raises(NoCrawlError, match="is not being crawled"):
            CrawlSource.of(str(tmp_path))
    with pytest.raises(NoCrawlError, match="is not being crawled"):
        CrawlSource.of(str(tmp_path))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere is not a crawl's folder"),
        (["ftp://127.0.0.1/"], "is not the http URL of a live page"),
        (["http://127.0.0.1:1/"], "No crawl answers at http://127.0.0.1:1"),
        (["http://127.0.0.1:1/", "--interval", "0"], "give 0.5 s or more"),
        (["http://127.0.0.1:1/", "--interval", "nan"], "give 0.5 s or more"),
    ],
)
def test_bad_input_has_one_line(words: list[str], says: str) -> None:
    done = run_here(["top", *words])
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"krowlspider: ")
    assert says in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


COMMAND = [sys.executable, "-m", "scrapy", "top"]


@pytest.mark.slow
def test_top_follows_a_crawl_and_says_that_it_has_ended(tmp_path: Path) -> None:
    spec = [page("/robots.txt", ""), page("/", anchors(*range(50))), page("^/[0-9]+$", "x")]
    with MockWeb(spec=spec) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url("a.test")])
        settings = {"PROMETHEUS_ENABLED": 1, "KROWL_DELAY_MIN": 0.3}
        crawl = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings=settings).start()
        crawl.wait_until(lambda: noted_url(crawl.jobdir, PAGE) is not None)
        crawl.wait_until(lambda: len(web.log()) > 2)
        once = run_here(["top", str(crawl.jobdir), "--once"])
        assert once.returncode == 0, once.stderr
        assert f"in {crawl.jobdir}" in once.stdout.decode()
        words = [*COMMAND, crawl.jobdir, "--interval", "0.5"]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as top:
            assert top.stdout is not None
            assert b" page" in top.stdout.readline()
            crawl.interrupt()
            *_, last = top.communicate(timeout=30)[0].splitlines()
        assert last.startswith(b"The crawl has ended.")
        assert top.returncode == 0
        assert noted_url(crawl.jobdir, PAGE) is None
    after = run_here(["top", str(crawl.jobdir)])
    assert after.returncode == 2
    assert b"is not being crawled" in after.stderr
    assert b"At its last end (shutdown): " in after.stderr


@pytest.mark.slow
def test_top_ends_quietly(tmp_path: Path) -> None:
    """By the end of its reader, and by Ctrl-C; and on a terminal it draws anew."""
    with live_page(tmp_path) as (url, _):
        words = " ".join([*COMMAND, url, "--interval", "0.5"])
        piped = subprocess.run(
            f"{words} | head -1", shell=True, cwd=ROOT, capture_output=True, timeout=60, check=True
        )
        assert piped.stderr == b""
        assert len(piped.stdout.splitlines()) == 1
        master, slave = pty.openpty()
        # Without textual, where it is installed.
        code = "import sys; sys.modules['textual'] = None; from scrapy.cmdline import execute"
        with subprocess.Popen(
            [sys.executable, "-c", f"{code}; execute(['scrapy', 'top', {url!r}])"],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "60"},
        ) as plain:
            os.close(slave)
            said = b""
            while b"[::1]:80" not in said:
                said += os.read(master, 65536)
            plain.send_signal(signal.SIGINT)
            assert plain.stderr is not None
            assert plain.stderr.read().startswith(b"For the full screen: ")
        assert plain.returncode == 0
        os.close(master)
    assert said.startswith(_REDRAW.encode())
    assert max(map(len, said.removeprefix(_REDRAW.encode()).splitlines())) <= 60


def test_the_full_screen_shows_figures_and_sorts(tmp_path: Path) -> None:
    from textual.widgets import DataTable, Static  # noqa: PLC0415

    from krowlspider.programs.top_app import TopApp  # noqa: PLC0415

    async def drive(url: str, asked: list[str], key: str) -> None:
        app = TopApp(CrawlSource(url), 30.0)
        async with app.run_test(size=(120, 36)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert "1,774 pages" in str(app.query_one("#figures", Static).render())
            table = app.query_one("#hosts", DataTable)
            assert str(table.get_row_at(0)[0]) == "[::1]:80"
            await pilot.press("e")
            await pilot.pause()
            await app.workers.wait_for_complete()
            assert "/api/v1/hosts?sort=errors&limit=50" in asked
            if folder := os.environ.get("KROWL_TEST_PICTURES"):
                app.save_screenshot("top.svg", folder)
            await pilot.press(key)
            await pilot.pause()
            assert not app.is_running
        assert app.return_value is None

    with live_page(tmp_path) as (url, asked):
        for key in ("q", "ctrl+c"):
            asyncio.run(drive(url, asked, key))
