"""SIGINT stops a crawl that a script has started with "&": its shell has it ignored."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.node.test_node import NodeCrawl
from tests.support.crawling import Crawl
from tests.support.debian import program


def is_ignored(pid: int) -> bool:
    """Return whether a process ignores SIGINT: field SigIgn of proc(5)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigIgn:")[2].split()[0], 16) & 1 << signal.SIGINT - 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Crawl, NodeCrawl])
def test_sigint_stops_a_crawl_of_a_script(tmp_path: Path, kind: type[Crawl]) -> None:
    program("redis-server")
    with socket.create_server(("127.0.0.1", 0)) as server:
        crawl = kind(
            tmp_path / "job",
            arguments={"seeds": f"http://127.0.0.1:{server.getsockname()[1]}/"},
            prefix=("env", "--ignore-signal=INT"),
            cold=True,
        ).start()
        with server.accept()[0]:
            assert not is_ignored(crawl.process.pid)
            crawl.process.send_signal(signal.SIGINT)
            crawl.wait_until(lambda: "SIGINT" in crawl.log)
    assert crawl.wait().process.returncode == 0
