"""The telnet console: without a free port there is none, and the crawl goes on."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.support.crawling import Crawl

if TYPE_CHECKING:
    from pathlib import Path


def test_taken_port_of_the_console_is_one_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = {"TELNETCONSOLE_ENABLED": "1", "TELNETCONSOLE_PORT": f"{port},{port}"}
        seeds = f"http://127.0.0.1:{port}/"
        crawl = Crawl(tmp_path / "job", arguments={"seeds": seeds}, settings=given)
        crawl.start()
        taken.accept()[0].close()
        crawl.interrupt()
    said = [line for line in crawl.complaints if "telnet" in line.lower()]
    assert len(said) == 1
    assert f"no free port in TELNETCONSOLE_PORT={port},{port} at 127.0.0.1" in said[0]
    assert "Traceback" not in crawl.log
