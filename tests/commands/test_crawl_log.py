"""The log of ``scrapy crawl`` at INFO: five lines at the start, and commands at the end."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.config.log import lower_start_lines
from krowlspider.job.status import same_again
from tests.mockweb import MockWeb
from tests.support.crawling import Crawl, scrapy
from tests.support.crawls import ROBOTS, anchors, crawl_of, page, paths
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    import pytest

SITE = [ROBOTS, page("/", anchors(*(f"/{number}" for number in range(9)))), page("^/", "a page")]
OPEN = {"KROWL_STATUS_INTERVAL": 0.1}


def start(log: str) -> list[str]:
    """Return the messages before the end, without the status lines among them."""
    messages = [line.partition("] INFO: ")[2] for line in log.partition("Closing")[0].splitlines()]
    return [message for message in messages if message and "pages/s | " not in message]


def test_start_is_five_lines_and_the_end_has_commands(tmp_path: Path) -> None:
    log = tmp_path / "the.log"
    more = {"LOG_FILE": log, "TELNETCONSOLE_ENABLED": 1, "TELNETCONSOLE_PORT": "0,0"}
    stats = {"STATS_DUMP": 1, "STATS_CLASS": "krowlspider.engine.stats.StatsCollector"}
    with MockWeb(spec=SITE) as web:
        crawl = crawl_of(
            web,
            tmp_path,
            [web.url("a.test")],
            arguments={"max_pages": 6},
            settings={**OPEN, **more, **stats},
        ).run()
        text = log.read_text()
        job, polite, results, watch, crawled = start(text)
        assert job == f"Job folder: {crawl.jobdir}, new"
        assert "(0.05 to 30 s); robots.txt obeyed; User-Agent: krowlspider/" in polite
        assert results == (
            f"Results: WARC files and indexes in {crawl.jobdir}/warc; items in {crawl.items_path}"
        )
        assert f"{sys.executable} -m scrapy frontier {crawl.jobdir}; page http://127" in watch
        assert f"(user scrapy, password in {crawl.jobdir}/telnet-password); Ctrl-C" in watch
        source = f"1 seed read from {tmp_path}/seeds.txt, 1 new, 0 bad lines"
        assert crawled == f"Crawl: spider broad, {source}; scope: no limits"
        assert " of 6 pages" in text
        # Nothing comes after the summary, the dump of the stats included.
        assert "Dumping Scrapy stats" in text
        summary = text.partition("Crawl ended (max_pages)")[2]
        assert "] INFO: " not in summary
        assert re.search(rf"1 finished, \d+\.\d KB, in {crawl.jobdir}/warc", summary)
        rows = {line[2:14].strip(): line[15:] for line in summary.splitlines()}
        commands = {name: shlex.split(rows[name]) for name in ("look", "print a page", "pack")}
        for command in commands.values():
            assert command[:3] == [sys.executable, "-m", "scrapy"]
        assert b"queued   4\n" in scrapy(*commands["look"][3:]).stdout
        assert b"HTTP/1.1 200 OK" in scrapy(*commands["print a page"][3:]).stdout
        scrapy(*commands["pack"][3:])
        assert rows["replay"] == f"open {crawl.jobdir}/crawl.wacz at https://replayweb.page"
        assert (crawl.jobdir / "crawl.wacz").is_file()
        scrapy(*shlex.split(rows["go on"])[3:])
        assert len(set(paths(web.log()))) == 10
        assert f"{crawl.jobdir}, continued: 4 URLs queued on 1 host, 10 known" in log.read_text()


def test_start_of_an_ordinary_spider_is_five_lines(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        crawl = Crawl(
            tmp_path / "job",
            spider="starting",
            arguments={"urls": web.url("a.test", "/1")},
            settings={
                "SPIDER_MODULES": "tests.support.spiders",
                # The spider has its own.
                "KROWL_CONTACT": None,
                "DOWNLOAD_DELAY": 0.3,
            },
        ).run()
    lines = start(crawl.log)
    assert len(lines) == 5
    assert "(0.3 to 30 s)" in lines[1]
    assert lines[-1] == "Crawl: spider starting, from its own start requests"


def test_secret_on_the_command_line_is_not_logged_again(tmp_path: Path) -> None:
    with MockWeb(spec=SITE) as web:
        one = {"max_pages": 1}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], arguments=one).run()
    assert "  go on        the same command and JOBDIR" in crawl.log
    assert "known-to-the-tests" not in crawl.log


def test_feeds_that_a_later_start_would_spoil_are_named(tmp_path: Path) -> None:
    feeds = {
        "a.jsonl": {"format": "jsonlines"},
        "b-%(time)s.json": {"format": "json"},
        "c.csv": {"format": "csv", "overwrite": True},
        "d.json": {"format": "json"},
    }
    given = json.dumps({str(tmp_path / name): options for name, options in feeds.items()})
    with MockWeb(spec=SITE) as web:
        crawl = crawl_of(
            web,
            tmp_path,
            [web.url("a.test")],
            arguments={"max_pages": 1},
            settings={"FEEDS": given},
            feed=False,
        ).run()
    way = "; -o FILE.jsonl keeps the items of all starts"
    start_of = "a later start of this crawl"
    second = f"{start_of} appends a second json document, which makes it invalid"
    assert [line.partition("WARNING: ")[2] for line in crawl.log.splitlines() if way in line] == [
        f"{tmp_path}/c.csv: {start_of} overwrites it{way}",
        f"{tmp_path}/d.json: {second}{way}",
    ]


def test_feed_that_was_not_stored_has_an_exit_code(tmp_path: Path) -> None:
    """No server listens at port 1."""
    feeds = {"FEEDS": '{"ftp://a:b@127.0.0.1:1/x.jsonl": {"format": "jsonlines"}}'}
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=feeds, feed=False).run(code=7)
    assert "krowlspider: 1 feed not stored: the log says why" in crawl.log


def test_command_to_go_on_names_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/scrapy", "broad", "-a", "seeds=a.example,b c"])
    command = ".venv/bin/scrapy crawl broad -a 'seeds=a.example,b c' -s JOBDIR=/tmp/k"
    assert same_again("broad", Path("/tmp/k")) == command


def test_command_to_go_on_does_not_overwrite_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["scrapy", "broad", "-O", "a.jsonl", "-s", "JOBDIR=k"])
    assert same_again("broad", Path("k")) == "scrapy crawl broad -o a.jsonl -s JOBDIR=k"


def test_a_process_of_several_names_no_command_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scrapy node` has added its folder, ports and shares to the words that a person gave."""
    given = ["-s", "JOBDIR=k", "-s", "JOBDIR=k/p1"]
    monkeypatch.setattr(sys, "argv", ["scrapy", "broad", *given])
    assert same_again("broad", Path("k/p1")) == "the same command and JOBDIR"


def test_scrapys_start_is_at_debug_without_its_warnings(caplog: pytest.LogCaptureFixture) -> None:
    lower_start_lines()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("scrapy.middleware").info("Enabled extensions")
        logging.getLogger("scrapy.middleware").warning("Disabled one")
        logging.getLogger("scrapy.core.engine").info("Spider opened")
        logging.getLogger("scrapy.core.engine").info("Closing spider")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["DEBUG", "WARNING", "DEBUG", "INFO"]
