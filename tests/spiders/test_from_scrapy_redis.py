"""A project of scrapy-redis moves here, as docs/migration.md says."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import redis

from tests.cluster.servers import redis_server
from tests.spiders.test_public import ON_LOOPBACK, content_of, copied, scrapy
from tests.support.crawling import CONTACT, SETTINGS
from tests.support.publicsite import PublicSite

if TYPE_CHECKING:
    from pathlib import Path

# Pages fetched: three, and two of them again, which are in the list and linked too.
PAGES, QUOTES = 5, 50
START_URLS, ITEMS = "redisqueue:start_urls", "redisqueue:items"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_project_of_scrapy_redis_gives_the_same_items_here(tmp_path: Path) -> None:
    """Start URLs of its list and of start(); items in Redis and in a feed. With the archive alone,
    queue and dupefilter of scrapy-redis stay."""
    found = []
    with PublicSite() as site, redis_server(tmp_path / "redis") as server:
        client = redis.Redis.from_url(server.url)
        for change in (leave, move, archive):
            folder = tmp_path / change.__name__
            environment = copied("redisqueue", site, folder, stock=True)
            change(folder, environment)
            settings = {name: str(SETTINGS[name]) for name in ON_LOOPBACK}
            settings |= {"REDIS_URL": server.url, "DOWNLOAD_DELAY": "0"}
            options = " ".join("-s {}={}".format(*each) for each in settings.items())
            client.flushdb()
            urls = [f"{site.url}/quotes/page/{number}/" for number in (2, 3)]
            client.rpush(START_URLS, *(json.dumps({"url": url}) for url in urls))
            site.asked.clear()
            scrapy(folder, f"crawl redisqueue -O out/items.jsonl {options}", environment)
            items = content_of(folder / "out" / "items.jsonl")
            pushed = map(json.loads, client.lrange(ITEMS, 0, -1))
            assert sorted(json.dumps(item, sort_keys=True) for item in pushed) == items
            assert not client.exists(START_URLS)
            found.append((sorted(path for path in site.asked if path[1] != "/robots.txt"), items))
            if change is not leave:
                # A warcinfo; request and response of each page and of robots.txt.
                checked = scrapy(folder, "warc check jobs/redisqueue", environment)
                assert f"1 file, {1 + 2 * (PAGES + 1)} records: 0 problems" in checked
    assert found[0] == found[1] == found[2]
    asked, items = found[0]
    assert (len(asked), len(items)) == (PAGES, QUOTES)


def leave(folder: Path, environment: dict[str, str]) -> None:
    """The project as it was."""


def move(folder: Path, environment: dict[str, str]) -> None:
    """Put the three lines into the project, and take from it what they refuse."""
    init = f"krowl init --contact {CONTACT}"
    said = scrapy(folder, init, environment, code=1)
    assert "SCHEDULER='scrapy_redis.scheduler.Scheduler'" in said
    assert "- scrapy-redis: remove SCHEDULER and DUPEFILTER_CLASS" in said
    path = folder / "redisqueue" / "settings.py"
    path.write_text(re.sub(r"(?m)^(SCHEDULER|DUPEFILTER_CLASS) = .*\n", "", path.read_text()))
    said = scrapy(folder, init, environment)
    assert "settings.py has all three lines" in said
    assert "scrapy-redis" not in said


def archive(folder: Path, environment: dict[str, str]) -> None:
    """Add the archive alone: nothing of the project is refused."""
    path = folder / "redisqueue" / "settings.py"
    addon = 'ADDONS = {"krowlspider.addon.KrowlArchive": 100}'
    path.write_text(path.read_text().replace("ADDONS = {}", addon))
    scrapy(folder, f"krowl init --contact {CONTACT}", environment)
    assert "scrapy_redis.scheduler" in path.read_text()
