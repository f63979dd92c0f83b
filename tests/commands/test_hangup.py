"""SIGHUP, which the end of a terminal or a session sends, stops a crawl, except under nohup."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from time import monotonic

import pytest

from krowlspider.commands.crawl import _AFTER_HANGUP
from tests.support.crawling import Crawl

HANGUP, TERM = signal.SIGHUP, signal.SIGTERM


def signalled(folder: Path, *numbers: signal.Signals, disposition: str) -> Crawl:
    """Send signals to a crawl that has a request in flight; return it when it has ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        crawl = Crawl(
            folder / "job",
            arguments={"seeds": f"http://127.0.0.1:{server.getsockname()[1]}/"},
            prefix=("env", f"--{disposition}-signal=HUP"),
            cold=True,
        ).start()
        with server.accept()[0]:
            # Field SigIgn of proc(5): the lowest bit is that of signal 1.
            status = Path(f"/proc/{crawl.process.pid}/status").read_text()
            ignored = int(status.partition("SigIgn:")[2].split()[0], 16) & 1
            assert ignored == (disposition == "ignore")
            for number in numbers:
                crawl.process.send_signal(number)
            crawl.wait_until(lambda: "shutting down gracefully" in crawl.log)
            # The stop waits for the request longer than a hangup waits for the stop.
            end = monotonic() + 1.4 * _AFTER_HANGUP
            crawl.wait_until(lambda: monotonic() > end)
    return crawl.wait()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(HANGUP, HANGUP), (TERM, HANGUP)])
def test_hangup_stops_a_crawl_gracefully(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    crawl = signalled(tmp_path, *numbers, disposition="default")
    assert crawl.log.count("SIGHUP received") == (TERM not in numbers)
    assert "forcing unclean shutdown" not in crawl.log
    assert "Crawl ended (shutdown)" in crawl.log


@pytest.mark.slow
def test_hangup_is_ignored_under_nohup(tmp_path: Path) -> None:
    crawl = signalled(tmp_path, HANGUP, TERM, disposition="ignore")
    assert "SIGHUP" not in crawl.log
    assert "Crawl ended (shutdown)" in crawl.log
