"""The telnet console: without a free port there is none, and the crawl goes on."""

from __future__ import annotations

import gc
import socket
import sys
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from twisted.conch.telnet import DONT, ECHO, IAC
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from krowlspider.extensions.telnet import TelnetConsole
from tests.support.crawling import Crawl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_reactor() -> Iterator[None]:
    """The console's modules install a reactor, and other tests need a process without one."""
    had_one = "twisted.internet.reactor" in sys.modules
    yield
    if not had_one:
        sys.modules.pop("twisted.internet.reactor", None)


class Said(StringTransport):
    """A connection that may be aborted."""

    def abortConnection(self) -> None:
        self.abort = True

    abort = False


@contextmanager
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that nothing is logged as an error, by Twisted or others, nor put on stderr."""
    errors: list[object] = []

    def note(event: dict[str, object]) -> None:
        if "log_failure" in event:
            errors.append(event["log_failure"])

    gc.collect()
    globalLogPublisher.addObserver(note)
    try:
        yield
        gc.collect()
    finally:
        globalLogPublisher.removeObserver(note)
    assert errors == []
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


def console(**names: object) -> TelnetConsole:
    made = object.__new__(TelnetConsole)
    made.username, made.password = "scrapy", "secret"
    made._get_telnet_vars = lambda: names  # type: ignore[method-assign]
    return made


def connected(made: TelnetConsole) -> tuple[Any, Said]:
    transport, said = made.protocol(), Said()
    transport.makeConnection(said)
    return transport, said


def logged_in(made: TelnetConsole) -> tuple[Any, Said]:
    transport, said = connected(made)
    transport.dataReceived(b"scrapy\r\nsecret\r\n")
    assert b">>> " in said.value()
    said.clear()
    return transport, said


def test_no_client_puts_an_error_into_the_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = [
        b"",
        b"name\r\n" + IAC + DONT + ECHO,
        b"name\r\n",
        b"scrapy\r\nwrong\r\n",
        # Telnet's commands in an order that the protocol does not have.
        b"\xff\xf0",
        b"\xff\xfb\xff\xfb\xff\xfb\xff\xf4\xff\xfd\x06\xff\xf0\x03\x04",
        b"\xff\xfa\xff\xf0\xff\xfa\x18\x01\xff\xf0",
        b"x" * 100_000,
        bytes(range(256)) * 4,
        b"scrapy\r\nsecret\r\n" + bytes(range(256)) * 4,
        b"scrapy\r\nsecret\r\n\x1b[A\x1b[Z\x1b[\x04",
    ]
    with no_errors(caplog):
        for sent, reason in product(messages, (ConnectionDone(), ConnectionLost())):
            transport, _ = connected(console())
            for at in range(0, len(sent), 4096):
                transport.dataReceived(sent[at : at + 4096])
            transport.connectionLost(Failure(reason))
        del transport
    assert capfd.readouterr().err == ""


def test_a_wrong_call_is_answered_in_the_console_alone(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The hook for errors of this process prints none of it."""
    calls = [
        (b"krowl.blok(1)", b"AttributeError: "),
        (b"nosuch", b"NameError: name 'nosuch' is not defined"),
        (b"krowl.block(", b""),
        (b"while", b"SyntaxError: "),
        (b"krowl..block", b"SyntaxError: "),
        (b"   x", b"IndentationError: "),
        (b"f()", b"TypeError: "),
        (b"f(0)", b"ZeroDivisionError: "),
    ]
    with no_errors(caplog):
        for call, line in calls:
            transport, said = logged_in(console(krowl=object(), f=lambda by: 1 / by))
            transport.dataReceived(call + b"\r\n")
            assert line in said.value(), call
            # Only what fails below the call has a traceback.
            assert (b"Traceback" in said.value()) == (call == b"f(0)")
            transport.connectionLost(Failure(ConnectionDone()))
    assert capfd.readouterr().err == ""


def test_exit_ends_the_connection_and_not_the_crawl(caplog: pytest.LogCaptureFixture) -> None:
    def leave() -> None:
        raise SystemExit

    with no_errors(caplog):
        transport, said = logged_in(console(leave=leave))
        transport.dataReceived(b"leave()\r\n")
        assert said.disconnecting


@pytest.mark.parametrize("outcome", ["done", ValueError("late")])
def test_an_answer_after_the_client_has_left_is_no_error(
    outcome: object, caplog: pytest.LogCaptureFixture
) -> None:
    answer: Deferred[object] = Deferred()
    with no_errors(caplog):
        transport, _ = logged_in(console(answer=answer))
        transport.dataReceived(b"answer\r\n")
        transport.connectionLost(Failure(ConnectionLost()))
        if isinstance(outcome, Exception):
            answer.errback(Failure(outcome))
        else:
            answer.callback(outcome)
        del answer, transport


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
