"""The examples of docs/hooks.md, and its table."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from krowlspider.hooks.hooks import ASYNC, SYNC, Hooks
from krowlspider.job.meters import STATS
from tests.hooks import documented
from tests.hooks.test_gocrawl_hooks import SITE, hooked
from tests.support.archived import valid_records
from tests.support.crawling import ROOT
from tests.support.crawls import ROBOTS, anchors, page, paths

if TYPE_CHECKING:
    from pathlib import Path


def example(name: str) -> type[Hooks]:
    found = getattr(documented, name)
    assert issubclass(found, Hooks)
    found.__module__ = "tests.hooks.documented"
    return found


def test_the_table_has_each_hook() -> None:
    """With gocrawl's name for the first fourteen, and whether it may be a coroutine."""
    text = (ROOT / "docs/hooks.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)\(.*?\)` \| (?:`(\w+)`)? *\| .*? \| (yes|no) \|", text, re.MULTILINE
    )
    assert {name for name, _, _ in rows} == {*SYNC, *ASYNC}
    assert {name for name, _, waits in rows if waits == "yes"} == {*ASYNC}
    ours = [(name, gocrawls) for name, gocrawls, _ in rows if gocrawls]
    assert [name.replace("_", "").lower() for name, _ in ours] == [each.lower() for _, each in ours]
    assert len(ours) == 14
    assert set(STATS["krowl/hooks/failed_count"].values) == {*SYNC, *ASYNC}


def test_the_filter_of_the_page(tmp_path: Path) -> None:
    spec = [ROBOTS, page("/", anchors("/news/1", "/sport/1", "/")), page("^/", "")]
    _, log = hooked(tmp_path, example("NewsOnly"), spec=spec)
    assert paths(log) == ["/", "/news/1"]


def test_the_state_of_the_page(tmp_path: Path) -> None:
    """It is in the queue on disk, of which a limit leaves some."""
    from tests.support.crawling import scrapy  # noqa: PLC0415

    crawl, log = hooked(tmp_path, example("Trail"), arguments={"max_pages": 2})
    lines = scrapy("frontier", crawl.jobdir, "--export", "-").stdout.splitlines()
    found = {
        line["url"].rpartition("/")[2]: line.get("hook_state") for line in map(json.loads, lines)
    }
    assert len(log) == 3
    root = log[1].url
    assert json.loads(found["b"]) == [root]


def test_the_feed_of_the_page(tmp_path: Path) -> None:
    spec = [*SITE, page("/from-outside", "")]
    crawl, log = hooked(tmp_path, example("Fed"), spec=spec)
    assert sorted(paths(log)) == ["/", "/a", "/b", "/from-outside", "/gone"]
    assert "1 URL from outside" in crawl.log


def test_the_archive_of_the_page(tmp_path: Path) -> None:
    crawl, _ = hooked(tmp_path, example("NoCookies"))
    records = valid_records(crawl.jobdir / "warc").of_kind("request", "response")
    assert {record["Krowl-Redacted"] for record in records} == {"cookie set-cookie"}
