"""pywb replays a crawl that is running, by its CDX server: a browser shows the pages."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.mockweb import MockWeb
from tests.replay.test_replay import BLUE, CREAM, RED, SITE, configure, looked_at, wayback
from tests.support.crawling import ROOT, Crawl, write_seeds
from tests.support.crawls import anchors, page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# A host that keeps the crawl busy.
MANY = [
    {"host": "many.test", **page("/", anchors(*(f"/{at}" for at in range(600))))},
    {"host": "many.test", **page("^/[0-9]+$", "x")},
]


@dataclass(frozen=True)
class Running:
    run: Crawl
    front: str
    address: str

    @property
    def warcs(self) -> Path:
        return self.run.jobdir / "warc"


@contextmanager
def crawling(folder: Path) -> Iterator[Running]:
    """A crawl that is running, whose one WARC file is still open."""
    with MockWeb(spec=[*SITE, *MANY]) as web:
        seeds = write_seeds(folder / "seeds.txt", [web.url("front.test"), web.url("many.test")])
        settings = {
            "KROWL_REQUISITES": "site",
            "KROWL_DELAY_MIN": 0.5,
            "PROMETHEUS_ENABLED": 1,
            "PROMETHEUS_PORT": 0,
        }
        run = Crawl(folder / "job", arguments={"seeds": seeds}, settings=settings)
        run.start()
        expected = {web.url(rule["host"], rule["path"]) for rule in SITE}
        run.wait_until(lambda: expected <= {each.url for each in web.log()})
        found = re.search(r"page (http://127.0.0.1:\d+)/", run.log)
        assert found is not None
        front = web.url("front.test")
        # Until what came last is in the file.
        run.wait_until(lambda: b"/pieces" in asked(f"{found[1]}/cdx?url=*.test"))
        yield Running(run, front, found[1])
        run.interrupt()


def asked(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
        return content


@contextmanager
def served(jobdir: Path) -> Iterator[str]:
    """``scrapy warc serve`` of a crawl, and its address."""
    command = [sys.executable, "-m", "scrapy", "warc", "serve", jobdir, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"at (http://\S+)/cdx", process.stdout.readline())
        assert found is not None
        try:
            yield found[1]
        finally:
            process.terminate()
            assert process.wait(60) == 0


def check_the_replay(folder: Path, running: Running, index: str, archive: str) -> None:
    configure(folder, {"collections": {"crawl": {"index_paths": index, "archive_paths": archive}}})
    with wayback(folder) as address:
        seen = looked_at(f"{address}/crawl/{running.front}", folder, "To the packed page")
    assert [each["title"] for each in seen] == ["Vorderseite", "Packed"]
    for each in seen:
        spots = each["spots"]
        assert (spots["head"], spots["picture"], spots["foot"]) == (RED, BLUE, CREAM)
        assert each["elsewhere"] == []
    assert [path.name for path in running.warcs.glob("*.warc.gz")] == []
    assert running.run.process is not None
    assert running.run.process.poll() is None


def test_pywb_replays_a_running_crawl(tmp_path: Path):
    """Asked at the live address in each dialect, with the files in their folder; then by ``scrapy
    warc serve`` alone, which has the bytes of the file that is being written too."""
    with crawling(tmp_path) as running, served(running.run.jobdir) as address:
        for number, (index, archive) in enumerate(
            (
                (f"cdx+{running.address}/cdx", f"{running.warcs}/"),
                (f"cdx+{running.address}/outbackcdx", f"{running.warcs}/"),
                (f"xmlquery+{running.address}/outbackcdx", f"{running.warcs}/"),
                (f"cdx+{address}/cdx", f"{address}/warc/"),
            )
        ):
            folder = tmp_path / str(number)
            folder.mkdir()
            check_the_replay(folder, running, index, archive)
