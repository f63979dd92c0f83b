"""The catalogue of a crawl that runs, in a database that fails."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.catalogue.test_sinks import sink_in
from tests.mockweb.client import MockWeb
from tests.support.crawling import ROOT, Crawl, scrapy
from tests.support.postgresql import PASSWORD, running
from tests.whole_crawls.test_catalogue import GRAPH, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgresql import Server


@pytest.fixture
def postgresql() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.mark.slow
def test_a_crawl_does_not_notice_its_database(
    request: pytest.FixtureRequest, postgresql: Server, tmp_path: Path
) -> None:
    """Client and server are killed again and again. The rows are those of Parquet at the end."""
    kept = sink_in("postgresql", request, tmp_path)
    jobdir, chance, kills = tmp_path / "job", random.Random(5), 0
    command = [sys.executable, "-m", "scrapy", "catalogue", str(jobdir), "--to", kept.url]
    said = (tmp_path / "said").open("w+")
    with said, MockWeb(graph=GRAPH) as web:
        seeds = ",".join(web.seeds()[:3])
        crawl = Crawl(jobdir, arguments={"seeds": seeds}, settings=SETTINGS, feed=False).start()
        while crawl.process.poll() is None:
            if not list(jobdir.glob("warc/*.warc.gz")):
                time.sleep(0.1)
                continue
            following = subprocess.Popen(
                [*command, "--follow"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said
            )
            time.sleep(chance.uniform(1.0, 2.5))
            postgresql.kill()
            time.sleep(chance.uniform(0.0, 0.5))
            postgresql.start()
            try:
                following.wait(1.5)
            except subprocess.TimeoutExpired:
                os.kill(following.pid, signal.SIGKILL)
                following.wait()
            kills += 1
        crawl.wait()
        said.seek(0)
        lines = said.read()
    assert kills
    assert PASSWORD not in lines
    scrapy(*command[3:])
    parquet = sink_in("parquet", request, tmp_path)
    scrapy("catalogue", jobdir, "-o", tmp_path / "catalogue")
    for table in ("fetch", "host_by_file", "page_by_file", "robots"):
        rows = parquet.read(table)
        assert rows
        assert sorted(kept.read(table), key=repr) == sorted(rows, key=repr)
