"""Misspelt names of settings are warned of, and users' own names are not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_redis.connection import SETTINGS_PARAMS_MAP

from krowlspider.config.validation import NAMES, check, misspelt
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl
from tests.support.crawls import page
from tests.support.settings import project_settings
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@table(
    ("name", "known"),
    [
        ("CONCURENT_REQUESTS", "CONCURRENT_REQUESTS"),
        ("CONCURRENT_REQUEST", "CONCURRENT_REQUESTS"),
        ("CONCURRNET_REQUESTS_PER_DOMIAN", "CONCURRENT_REQUESTS_PER_DOMAIN"),
        ("DOWNLAOD_DELAY", "DOWNLOAD_DELAY"),
        ("COOKIE_ENABLED", "COOKIES_ENABLED"),
        ("HTTPCACHE_ENABLE", "HTTPCACHE_ENABLED"),
        ("LOG_LEVLE", "LOG_LEVEL"),
        ("JOB_DIR", "JOBDIR"),
        ("JOBDRI", "JOBDIR"),
        ("download_timeout", "DOWNLOAD_TIMEOUT"),
        ("KRWOL_DELAY_MIN", "KROWL_DELAY_MIN"),
        ("PROMETEUS_PORT", "PROMETHEUS_PORT"),
        ("SCHEDULER_PERSITS", "SCHEDULER_PERSIST"),
        ("ROBOTSTXT_OBAY", "ROBOTSTXT_OBEY"),
        ("ROBOTSTXT_OBEYS", "ROBOTSTXT_OBEY"),
        ("DOWNLOAD_DELAYS", "DOWNLOAD_DELAY"),
        ("CONCURRENT_REQUESTS_PER_DOMAINS", "CONCURRENT_REQUESTS_PER_DOMAIN"),
        ("IMAGE_STORE", "IMAGES_STORE"),
    ],
)
def test_typo_in_a_known_name_is_found(name: str, known: str) -> None:
    assert misspelt([name]) == {name: known}


@table(
    "name",
    [
        *("MY_DOWNLOAD_DELAY", "MY_CONCURRENT_REQUESTS", "DOWNLOAD_DELAY_MAX", "DOWNLOAD_RELAY"),
        *("USER_AGENTS", "USER_AGENT_LIST", "EXTENSION", "FEED", "JOBDIR2", "REDIS_URL_2"),
        *("MAIL_POST", "MAIL_TO", "LOG_DIR", "DB_HOST", "PROXY_LIST", "HTTP_PROXY", "RETRY_DELAY"),
        *("IMAGES_STORE_PATH", "FEED_URI", "DELTAFETCH_ENABLED", "SOMEONE_ELSES", "X"),
    ],
)
def test_names_of_a_users_own_are_silent(name: str) -> None:
    assert misspelt([name]) == {}


def test_no_known_name_is_taken_for_a_typo() -> None:
    assert misspelt(NAMES) == {}
    assert SETTINGS_PARAMS_MAP.keys() <= NAMES


def test_warning_names_the_known_setting(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(project_settings(DOWNLAOD_DELAY=1, CONCURENT_REQUESTS=8, MY_OWN=1))
    concurrency, delay = (record.getMessage() for record in caplog.records)
    assert concurrency == (
        "CONCURENT_REQUESTS is not a known setting: did you mean CONCURRENT_REQUESTS?"
    )
    assert delay == "DOWNLAOD_DELAY is not a known setting: did you mean DOWNLOAD_DELAY?"


def test_misspelt_settings_of_spider_and_command_are_warned_of(tmp_path: Path) -> None:
    """Once each, in a real crawl."""
    with MockWeb(spec=[page("/", "x")]) as web:
        crawl = Crawl(
            tmp_path / "job",
            spider="misspelt",
            arguments={"url": web.url("a.test")},
            settings={"SPIDER_MODULES": "tests.support.spiders", "CONCURENT_REQUESTS": 8},
        ).run()
    names = [
        line.partition(" WARNING: ")[2].partition(" is not a known setting")[0]
        for line in crawl.complaints
        if "did you mean" in line
    ]
    assert names == ["CONCURENT_REQUESTS", "DOWNLAOD_DELAY"]
