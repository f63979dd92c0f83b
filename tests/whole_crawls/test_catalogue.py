"""The catalogue of a crawl, made while it runs and after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import duckdb
import pytest

from krowlspider.archive.cdxj import parse
from krowlspider.archive.indexes import indexes_in
from tests.mockweb.client import MockWeb
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.support.crawling import ROOT, Crawl, scrapy

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = Graph(hosts=20, pages=8, seed=7, features=DEFAULT_FEATURES - {"crawl_delay", "busy"})
SETTINGS = {
    "KROWL_DELAY_MIN": 0.05,
    "KROWL_WARC_ALSO": "metadata",
    "KROWL_WARC_MAX_SIZE": 60_000,
}


def tables(catalogue: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the sorted rows of each table, all but those of changes and sitemaps."""
    return {
        name: duckdb.sql(
            f"select * from read_parquet('{catalogue}/{name}/**/*.parquet') order by all"
        ).fetchall()
        for name in ("fetch", "host_by_file", "page_by_file", "robots")
    }


@pytest.mark.slow
def test_it_has_each_capture_of_the_index_once(tmp_path: Path):
    """It follows the crawl, and is killed again and again. Then it equals one that is made at the
    end."""
    jobdir, followed, whole = tmp_path / "job", tmp_path / "followed", tmp_path / "whole"
    command = [sys.executable, "-m", "scrapy", "catalogue", str(jobdir), "--follow"]
    command += ["-o", str(followed)]
    kills = 0
    with MockWeb(graph=GRAPH) as web:
        seeds = ",".join(web.seeds()[:3])
        crawl = Crawl(jobdir, arguments={"seeds": seeds}, settings=SETTINGS, feed=False).start()
        while crawl.process.poll() is None:
            if not list(jobdir.glob("warc/*.warc.gz")):
                time.sleep(0.1)
                continue
            following = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
            try:
                following.wait(1.5)
            except subprocess.TimeoutExpired:
                os.kill(following.pid, signal.SIGKILL)
                following.wait()
                kills += 1
        crawl.wait()
    assert kills
    scrapy("catalogue", jobdir, "-o", followed)
    scrapy("catalogue", jobdir, "-o", whole)
    made = tables(whole)
    assert tables(followed) == made
    captures = {
        (line.filename, line.offset): line
        for index in indexes_in(jobdir / "warc").there
        for line in map(parse, index.read_bytes().splitlines())
        if line.status
    }
    columns = "warc_filename, warc_record_offset, url_surtkey, url, fetch_status"
    rows = duckdb.sql(f"select {columns} from '{whole}/fetch/**/*.parquet'").fetchall()
    assert len(rows) == len(captures) == len(made["fetch"])
    for filename, offset, key, url, status in rows:
        line = captures[filename, offset]
        assert (line.key, line.url, line.status) == (key, url, str(status))
    [(fetches, robots)] = duckdb.sql(
        f"select sum(fetches), (select count(*) from '{whole}/robots/**/*.parquet')"
        f" from '{whole}/host_by_file/**/*.parquet'"
    ).fetchall()
    assert (fetches, robots) == (len(captures), GRAPH.hosts)
    told = duckdb.sql(
        "select count(*) from (select krowl_hops, krowl_fetch_milliseconds from"
        f" '{whole}/fetch/**/*.parquet' where krowl_hops is not null"
        " and krowl_fetch_milliseconds > 0)"
    ).fetchall()
    # Metadata records that fell into the next file are not joined.
    assert told[0][0] > 0.9 * len(captures)
