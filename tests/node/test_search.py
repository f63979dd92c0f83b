"""``scrapy node`` serves the search of an index of what it crawls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.gemini.capsules import CapsuleProcess
from tests.gemini.tree import Tree
from tests.mockweb import MockWeb
from tests.node.test_node import ask, node_crawl, page_of
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_captures_of_all_processes_are_found(tmp_path: Path) -> None:
    """Here of Gemini, while both processes crawl. Each result has its text, and its captures in the
    one CDX of the node."""
    index = tmp_path / "index"
    with CapsuleProcess(Tree(6, 40, filler=60), tmp_path) as server, MockWeb(spec=[]) as web:
        seeds = [server.tree.seed]
        crawl = node_crawl(
            web, tmp_path, 2, seeds, KROWL_GEMINI=1, KROWL_SEARCH=index, KROWL_WARC_MAX_SIZE=40_000
        )
        crawl.start().wait_until(lambda: all(_files(crawl.jobdir, name) > 1 for name in "12"))
        scrapy("index", crawl.jobdir, "-o", index)
        page = page_of(crawl.jobdir)
        assert 'href="/search"' in ask(page)[1]
        found = json.loads(ask(f"{page}/search.json?q=capsule&limit=50")[1])["results"]
        one = found[0]["url"]
        text = ask(f"{page}/search/text?url={quote(one, safe='')}")
        captures = ask(f"{page}/cdx?url={quote(one, safe='')}&output=json&fl=url,status,mime")
        crawl.interrupt()
    assert {each["capture"]["file"].split("/")[0] for each in found} == {"p1", "p2"}
    assert text[0] == captures[0] == 200
    assert text[1].startswith("Page ")
    assert json.loads(captures[1].splitlines()[0]) == {
        "url": one,
        "status": "20",
        "mime": "text/gemini",
    }
    assert not crawl.complaints


def _files(jobdir: Path, process: str) -> int:
    """Return how many WARC files a process has finished."""
    return len([*jobdir.glob(f"p{process}/warc/*.warc.gz")])
