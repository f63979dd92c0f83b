"""The search index of a crawl, made while it runs and after it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.search.schema import SEGMENTS
from tests.mockweb.client import MockWeb
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.search.webs import stored
from tests.support.crawling import ROOT, Crawl, scrapy

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = Graph(hosts=20, pages=8, seed=7, features=DEFAULT_FEATURES - {"crawl_delay", "busy"})
SETTINGS = {"KROWL_DELAY_MIN": 1.0, "KROWL_WARC_MAX_SIZE": 20_000}


def documents(index: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of each document; a text without a day of its own may change later."""
    found = stored(index).documents
    return {
        url: {name: value for name, value in fields.items() if name != "changed"}
        for url, fields in found.items()
    }


def has_documents(index: Path) -> bool:
    return (index / SEGMENTS / "meta.json").exists() and bool(stored(index).documents)


@pytest.mark.slow
def test_following_a_crawl_makes_the_index_of_the_end(tmp_path: Path):
    """It commits while the crawl runs, and ends by itself after it. Most pages of this web are
    copies, so which ones are in the index depends on all others."""
    jobdir, followed, whole = tmp_path / "job", tmp_path / "followed", tmp_path / "whole"
    command = [sys.executable, "-m", "scrapy", "index", str(jobdir), "--follow"]
    with MockWeb(graph=GRAPH) as web:
        seeds = ",".join(web.seeds()[:3])
        crawl = Crawl(jobdir, arguments={"seeds": seeds}, settings=SETTINGS, feed=False).start()
        crawl.wait_until(lambda: list(jobdir.glob("warc/*")))
        following = subprocess.Popen([*command, "-o", str(followed)], cwd=ROOT)
        try:
            crawl.wait_until(lambda: has_documents(followed))
            assert following.poll() is None
            crawl.interrupt()
            assert following.wait(120) == 0
        finally:
            following.kill()
            following.wait()
    scrapy("index", jobdir, "-o", whole)
    made = documents(whole)
    assert made
    assert documents(followed) == made
    again = scrapy("index", jobdir, "-o", followed).stdout.decode()
    assert "0 files, 0 captures, 0 documents written" in again
