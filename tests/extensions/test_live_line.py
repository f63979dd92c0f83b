"""The live line on a terminal: the log above it is whole."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, TextIO

import pytest

from krowlspider.job.limits import until_empty
from krowlspider.views.live_line import LiveLine
from tests.mockweb import MockWeb
from tests.support.crawling import ROOT
from tests.support.crawls import anchors, crawl_of, page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def terminal(columns: int) -> Iterator[tuple[TextIO, list[bytes]]]:
    """A terminal of so many columns, and what was written to it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written: list[bytes] = []

    def read() -> None:
        while True:
            try:
                written.append(os.read(master, 65536))
            except OSError:
                return

    reader = Thread(target=read)
    reader.start()
    try:
        with open(slave, "w", closefd=False) as stream:
            yield stream, written
    finally:
        os.close(slave)
        reader.join(10)
        os.close(master)


def screen(written: list[bytes]) -> list[str]:
    """Return the lines that a terminal shows in the end."""
    lines = [""]
    for part in re.split(r"(\r\n|\r\x1b\[2K)", b"".join(written).decode()):
        if part == "\r\n":
            lines.append("")
        elif part.startswith("\r"):
            lines[-1] = ""
        else:
            assert "\x1b" not in part
            assert "\r" not in part
            lines[-1] += part
    return lines


def test_records_stand_whole_above_the_line() -> None:
    root = logging.getLogger()
    with terminal(40) as (stream, written):
        line = LiveLine(stream)
        handler = logging.StreamHandler(stream)
        root.addHandler(handler)
        try:
            root.warning("before")
            line.start()
            assert line.has_log
            line.show("1 page | " + "x" * 80)
            root.warning("a\nlong %s", "y" * 60)
            line.show("2 pages")
            assert screen_of(written, "2 pages")[-1] == "2 pages"
            line.stop()
            root.warning("after")
        finally:
            root.removeHandler(handler)
    lines = screen(written)
    assert lines == ["before", "a", f"long {'y' * 60}", "after", ""]
    assert f"1 page | {'x' * 30}\r" in b"".join(written).decode()
    assert "x" * 31 not in b"".join(written).decode()


def screen_of(written: list[bytes], awaited: str) -> list[str]:
    end = time.monotonic() + 10
    while awaited not in b"".join(written).decode() and time.monotonic() < end:
        time.sleep(0.01)
    return screen(written)


def test_a_terminal_that_is_gone_ends_the_line_only() -> None:
    master, slave = pty.openpty()
    stream = os.fdopen(slave, "w")
    line = LiveLine(stream)
    os.close(master)
    for text in ("a", "b"):
        line.show(text)
    line.write_above("c\n")
    line.stop()
    with pytest.raises(OSError, match="Input/output error"):
        stream.close()


def test_there_is_no_line_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        assert LiveLine.on_terminal() is None


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        ([(0.0, 0, 100), (20.0, 0, 80)], 80.0),
        ([(0.0, 0, 100), (19.0, 0, 80)], 0.0),
        ([(0.0, 0, 100), (30.0, 0, 100)], 0.0),
        ([(5.0, 0, 100)], 0.0),
        ([(0.0, 0, 100), (10.0, 0, 101), (20.0, 0, 90), (30.0, 0, 80)], 120.0),
        # New URLs were found meanwhile.
        ([(0.0, 0, 100), (10.0, 0, 70), (20.0, 0, 95), (30.0, 0, 80)], 0.0),
    ],
)
def test_a_queue_that_shrinks_has_an_end(
    looks: list[tuple[float, int, int]], seconds: float
) -> None:
    assert until_empty(looks) == seconds


@pytest.mark.slow
@pytest.mark.parametrize("is_shown", [True, False])
def test_a_crawl_on_a_terminal_has_one_live_line(tmp_path: Path, is_shown: bool) -> None:
    spec = [
        page("/robots.txt", ""),
        page("/", anchors(*(f"/{at}" for at in range(30)))),
        page("^/[0-9]+$", "x"),
    ]
    with MockWeb(spec=spec) as web, terminal(100) as (stream, written):
        settings = {"KROWL_PROGRESS": is_shown, "KROWL_DELAY_MIN": 0.1}
        crawl = crawl_of(
            web, tmp_path, [web.url("a.test")], arguments={"max_pages": 20}, settings=settings
        )
        environment = {**os.environ, "TERM": "xterm", "STATS_FILE": str(crawl.stats_path)}
        done = subprocess.run(
            crawl.command(), cwd=ROOT, env=environment, stderr=stream, timeout=60, check=False
        )
        assert done.returncode == 0
        text = b"".join(written).decode()
    drawn = re.findall(r"\r\x1b\[2K([0-9]+ of 20 pages.*? \| [0-9.]+ pages/s)", text)
    assert bool(drawn) is is_shown
    log = screen(written)
    ended = next(at for at, line in enumerate(log) if "Crawl ended (" in line)
    assert [line for line in log[:ended] if not re.match("20[0-9-]+ [0-9:]+ |  ", line)] == []
    assert any(re.search(r"INFO: [0-9]+ of 20 pages", line) for line in log) is not is_shown
