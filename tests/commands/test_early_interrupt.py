"""Ctrl-C while Python and Scrapy are still being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.crawling import ROOT, Crawl


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
        assert "Traceback" not in printed, f"after {tenths / 10} s"
        interrupted += printed == "krowlspider: interrupted\n"
    assert interrupted >= 2
