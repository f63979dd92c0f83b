"""The log as JSON lines: every line of a crawl, and the name of its event."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.utils.log import _get_handler

from krowlspider.config.log import JsonFormatter, follow_settings
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl
from tests.support.crawls import ROBOTS, page
from tests.support.in_process import run_here
from tests.support.settings import project_settings

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cret/of-the_crawl"


def test_every_line_of_a_crawl_is_an_object(tmp_path: Path) -> None:
    """Those of Scrapy's start, of warnings and of Twisted too. A traceback is one string."""
    log = tmp_path / "the.log"
    settings = {
        "KROWL_LOG_FORMAT": "json",
        "KROWL_NODE_ID": "n-1",
        "KROWL_STATUS_INTERVAL": 0.1,
        "LOG_FILE": log,
        "LOG_LEVEL": "DEBUG",
        "SPIDER_MODULES": "tests.support.spiders",
        "TELNETCONSOLE_PASSWORD": SECRET,
    }
    with MockWeb(spec=[ROBOTS, page("^/", "a page", latency=0.2)]) as web:
        url = web.url("a.test")
        crawl = Crawl(
            tmp_path / "job",
            spider="complaining",
            arguments={"url": url},
            settings=settings,
            feed=False,
        ).run()
    text = log.read_text(encoding="ascii")
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert {"time", "level", "logger", "event", "message", "spider", "pid"} <= line.keys()
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert (line["node"], line["job"]) == ("n-1", str(crawl.jobdir))
        assert line["spider"] == "complaining"
        assert re.fullmatch(r"[a-z0-9_]+", line["event"], re.IGNORECASE)
    assert len({line["pid"] for line in lines}) == 1

    def of(event: str) -> dict[str, Any]:
        return next(line for line in lines if line["event"] == event)

    # Scrapy logs them before it makes the crawler.
    assert of("versions")["level"] == "DEBUG"
    said = of("bytes_of")
    assert (said["level"], said["logger"]) == ("WARNING", "complaining")
    assert said["message"] == f"Bytes of {url}: 6"
    assert "UserWarning: an old way" in of("python_warning")["message"]
    lost = [line.get("exception") for line in lines if line["event"] == "twisted"]
    assert lost == [None, "OSError: a lost Deferred"]
    error = of("spider_error_processing")
    assert error["level"] == "ERROR"
    assert error["exception"].startswith("Traceback (most recent call last):\n")
    assert error["exception"].endswith("ValueError: two\nlines: \u2028 \udcff")
    assert " pages/s | " in of("status")["message"]
    assert "Crawl ended (finished)" in of("summary")["message"]
    assert "'TELNETCONSOLE_PASSWORD': '...'" in of("overridden_settings")["message"]
    assert SECRET not in text


def test_bad_input_is_an_object_in_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "the.log"
    given = {"LOG_FILE": log, "KROWL_LOG_FORMAT": "json", "KROWL_DELAY_MIN": "x"}
    words = [word for name, value in given.items() for word in ("-s", f"{name}={value}")]
    assert run_here(["crawl", "broad", *words]).returncode == 2
    line = json.loads(log.read_text())
    assert (line["level"], line["event"]) == ("CRITICAL", "the_crawl_failed_with_exit_code")
    assert "KROWL_DELAY_MIN='x' is not a number" in line["message"]


@pytest.mark.parametrize(
    ("template", "event"),
    [
        ("Lease lost: closing %d connections", "lease_lost"),
        ("Process %s has died with %s: starting it again", "process_has_died_with"),
        ("robots.txt of %(host)-5s fails (%.1f s)", "robots_txt_of_fails"),
        ("%s: lines lost: %d (%s)", "lines_lost"),
        ("%s", "rebuild"),
        (ValueError("no template"), "rebuild"),
        ("One two three four five six seven eight nine", "one_two_three_four_five_six_seven_eight"),
    ],
)
def test_event_is_the_words_before_the_punctuation(template: object, event: str) -> None:
    record = logging.LogRecord("a.b", 20, "b.py", 1, template, (), None, "_rebuild")
    line = json.loads(JsonFormatter(project_settings(JOBDIR="")).format(record))
    assert line["event"] == event
    # No spider, node or JOBDIR: no field.
    assert line.keys() == {"time", "level", "logger", "event", "message", "pid"}


def test_a_log_that_is_copied_and_truncated_goes_on(tmp_path: Path) -> None:
    """As by copytruncate of logrotate."""
    log = tmp_path / "the.log"
    follow_settings()
    handler = _get_handler(project_settings(LOG_FILE=str(log), KROWL_LOG_FORMAT="json"))
    try:
        for _ in range(2):
            os.truncate(log, 0)
            handler.handle(logging.makeLogRecord({"msg": "Line"}))
    finally:
        handler.close()
    assert json.loads(log.read_bytes())["event"] == "line"
