"""Spiders as public Scrapy projects have them: with this project's settings they do the same as
with Scrapy's own. docs/spiders.md has the table."""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support import warm
from tests.support.crawling import ROOT, SETTINGS
from tests.support.proxy import TestProxy
from tests.support.publicsite import PublicSite

if TYPE_CHECKING:
    from pathlib import Path

# The number of items of each spider.
ITEMS = {
    "quotes": 34,
    "books": 12,
    "login": 4,
    "api": 15,
    "sitemap": 12,
    "stations": 8,
    "authors": 4,
    "proxied": 30,
    "files": 4,
    "shop": 12,
    "products": 12,
    "scroll": 34,
    "statuses": 7,
    "catalogue": 6,
    "ranked": 7,
}
QUICK = "login"
PROJECT = "tests/spiders/public"
STOCK = {
    "SCRAPY_SETTINGS_MODULE": "tests.spiders.public.settings",
    # Scrapy fetches the Public Suffix List when a cookie comes. Port 9 does not answer.
    "https_proxy": "http://127.0.0.1:9",
}


def scrapy(site: PublicSite, *words: object, stock: bool) -> str:
    """Run a command with Scrapy's own settings or with this project's; return its log."""
    done = warm.run(
        [sys.executable, "-m", "scrapy", *map(str, words)],
        environment={**os.environ, "SITE": site.url, **(STOCK if stock else {})},
        # A warm process has imported this project.
        cold=stock,
    )
    log = done.stderr.decode()
    assert done.returncode == 0, log
    return log


@dataclass
class Result:
    """What a spider asked for, and what it left."""

    requests: list[tuple[str, str]]
    items: list[str]
    files: dict[str, bytes]
    rows: list[tuple[object, ...]]


def crawl(spider: str, site: PublicSite, folder: Path, *, stock: bool) -> Result:
    folder.mkdir()
    feed = folder / ("items.csv" if spider == "stations" else "items.jsonl")
    settings = {
        "FILES_STORE": folder / "media",
        "IMAGES_STORE": folder / "media",
        "SQLITE_PATH": folder / "items.db",
    }
    if not stock:
        settings |= {
            **SETTINGS,
            "SPIDER_MODULES": "tests.spiders.public.spiders",
            "JOBDIR": folder / "job",
            "STATS_CLASS": "krowlspider.engine.stats.StatsCollector",
        }
    command = ["crawl", spider]
    if spider == "quotes":
        command = ["runspider", f"{PROJECT}/spiders/quotes.py"]
    site.asked.clear()
    with TestProxy() as proxy:
        settings["PROXIES"] = proxy.url()
        options = [word for each in settings.items() for word in ("-s", "{}={}".format(*each))]
        # The feeds of the command line take the place of those of a spider.
        own_feeds = spider == "ranked"
        output = ["-a", f"folder={folder}"] if own_feeds else ["-O", feed]
        log = scrapy(site, *command, *output, *options, stock=stock)
        assert len(proxy.passed) == (4 if spider == "proxied" else 0)
    assert stock or " ERROR: " not in log
    return Result(
        requests=sorted(site.asked),
        items=sorted(items_of(feed)),
        files={
            str(path.relative_to(folder)): content_of(path)
            for path in (folder / "media").rglob("*.*")
        },
        rows=rows_of(folder / "items.db"),
    )


def items_of(feed: Path) -> list[str]:
    with feed.open(newline="") as file:
        items = csv.DictReader(file) if feed.suffix == ".csv" else map(json.loads, file)
        return [json.dumps(item, sort_keys=True) for item in items]


def content_of(path: Path) -> bytes:
    """Return the bytes of a file; the rows of a feed sorted, because they come in any order."""
    content = path.read_bytes()
    return b"".join(sorted(content.splitlines(keepends=True))) if path.suffix == ".csv" else content


def rows_of(database: Path) -> list[tuple[object, ...]]:
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as connection:
        return sorted(connection.execute("SELECT * FROM author"))


@pytest.mark.parametrize(
    "spider",
    [pytest.param(each, marks=[] if each == QUICK else pytest.mark.slow) for each in ITEMS],
)
def test_a_public_spider_gives_the_same_here(spider: str, tmp_path: Path) -> None:
    """The same requests, items, media files and rows of a database."""
    with PublicSite() as site:
        stock = crawl(spider, site, tmp_path / "stock", stock=True)
        ours = crawl(spider, site, tmp_path / "ours", stock=False)
    assert ours == stock
    assert len(ours.items) == ITEMS[spider]
    files = {"books": 2 * ITEMS["books"], "files": ITEMS["files"], "ranked": 1}
    assert len(ours.files) == files.get(spider, 0)
    assert len(ours.rows) == (ITEMS["authors"] if spider == "authors" else 0)


@pytest.mark.slow
def test_contracts_of_a_public_spider_hold_here() -> None:
    with PublicSite() as site:
        for stock in (True, False):
            modules = [] if stock else ["-s", "SPIDER_MODULES=tests.spiders.public.spiders"]
            log = scrapy(site, "check", "shop", *modules, stock=stock)
            assert re.search(r"Ran 3 contracts in [\d.]+s\s+OK\s", log), log


def test_the_table_has_every_public_spider() -> None:
    page = (ROOT / "docs" / "spiders.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \| (\d+) \|", page, re.MULTILINE)
    assert rows == [(name, str(count), str(count)) for name, count in ITEMS.items()]
    spiders = {path.stem for path in (ROOT / PROJECT / "spiders").glob("[!_]*.py")}
    assert spiders == set(ITEMS)
