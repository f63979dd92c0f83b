"""Ctrl-C before the crawl has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.crawling import CONTACT, ROOT, Crawl, scrapy


@pytest.mark.slow
def test_an_early_interrupt_prints_no_traceback(tmp_path: Path) -> None:
    """At most one line is printed, if the crawl has not begun to log."""
    crawl = Crawl(tmp_path / "job", arguments={"seeds": "http://127.0.0.1:9/"})
    command = [str(Path(sys.prefix) / "bin" / "scrapy"), *crawl.words()]
    interrupted = 0
    for tenths in range(1, 9):
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        time.sleep(tenths / 10)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
        # Python's own start, on a busy machine: no file of this project is read yet.
        if "init_import_site" not in printed:
            assert "Traceback" not in printed, f"after {tenths / 10} s"
        interrupted += printed == "krowlspider: interrupted\n"
    assert interrupted >= 2


@pytest.mark.slow
def test_interrupt_while_the_crawl_opens_says_how_to_go_on(tmp_path: Path) -> None:
    """Scrapy stops without a summary."""
    (tmp_path / "opening.py").write_text(
        "import asyncio, signal\n"
        "from scrapy import Spider, signals\n"
        "class Opening(Spider):\n"
        "    name = 'opening'\n"
        "    @classmethod\n"
        "    def from_crawler(cls, crawler):\n"
        "        spider = super().from_crawler(crawler)\n"
        "        crawler.signals.connect(spider.opened, signals.spider_opened)\n"
        "        return spider\n"
        "    async def opened(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        await asyncio.sleep(1)\n"
    )
    settings = {"KROWL_CONTACT": CONTACT, "JOBDIR": tmp_path / "job", "PROMETHEUS_PORT": 0}
    words = [word for each in settings.items() for word in ("-s", "{}={}".format(*each))]
    log = scrapy("runspider", str(tmp_path / "opening.py"), *words).stderr.decode()
    assert "Crawl ended" not in log
    (line,) = (line for line in log.splitlines() if "WARNING" in line)
    assert line.endswith("WARNING: The crawl was cut short: the same command continues it")
