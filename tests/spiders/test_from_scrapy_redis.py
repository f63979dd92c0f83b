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

START_URLS, ITEMS = "redisqueue:start_urls", "redisqueue:items"


@pytest.mark.slow
def test_a_project_of_scrapy_redis_gives_the_same_items_here(tmp_path: Path) -> None:
    """Start URLs of its list, of start() and of both; items in Redis and in a feed."""
    found = {}
    with PublicSite() as site, redis_server(tmp_path / "redis") as server:
        client = redis.Redis.from_url(server.url)
        for stock in (True, False):
            folder = tmp_path / ("stock" if stock else "ours")
            environment = copied("redisqueue", site, folder, stock=True)
            settings = {"REDIS_URL": server.url, "DOWNLOAD_DELAY": "0"}
            if not stock:
                move(folder, environment)
                settings |= {name: str(SETTINGS[name]) for name in ON_LOOPBACK}
            options = " ".join("-s {}={}".format(*each) for each in settings.items())
            client.flushdb()
            client.rpush(
                START_URLS, *(json.dumps({"url": f"{site.url}/quotes/page/{n}/"}) for n in (2, 3))
            )
            site.asked.clear()
            log = scrapy(folder, f"crawl redisqueue -O out/items.jsonl {options}", environment)
            assert stock or " ERROR: " not in log
            items = content_of(folder / "out" / "items.jsonl")
            pushed = map(json.loads, client.lrange(ITEMS, 0, -1))
            assert sorted(json.dumps(item, sort_keys=True) for item in pushed) == items
            assert not client.exists(START_URLS)
            found[stock] = sorted(path for path in site.asked if "quotes" in path[1]), items
    assert found[True] == found[False]
    assert len(found[True][1]) == 50


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
