"""The telnet console: without a free port there is none, and the crawl goes on."""

from __future__ import annotations

import gc
import socket
from typing import TYPE_CHECKING

import pytest
from twisted.conch.telnet import DONT, ECHO, IAC
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from extensions.telnet import TelnetConsole
from tests.support.crawling import Crawl

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("last", [IAC + DONT + ECHO, b""], ids=["refuses", "leaves"])
def test_a_client_that_negotiates_nothing_is_no_error(last: bytes) -> None:
    errors: list[object] = []

    def note(event: dict[str, object]) -> None:
        if "log_failure" in event:
            errors.append(event["log_failure"])

    gc.collect()
    globalLogPublisher.addObserver(note)
    try:
        transport = object.__new__(TelnetConsole).protocol()
        transport.makeConnection(StringTransport())
        transport.dataReceived(b"name\r\n" + last)
        transport.connectionLost(Failure(ConnectionDone()))
        del transport
        gc.collect()
    finally:
        globalLogPublisher.removeObserver(note)
    assert errors == []


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
