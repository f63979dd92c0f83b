"""Extension: Scrapy's telnet console, with its password in a private file instead of the log."""

from __future__ import annotations

import logging
import traceback
from functools import cache
from typing import TYPE_CHECKING, Any

from scrapy.extensions.telnet import TelnetConsole as ScrapyTelnetConsole
from twisted.conch.insults.insults import ServerProtocol
from twisted.conch.telnet import (
    AuthenticatingTelnetProtocol,
    TelnetBootstrapProtocol,
    TelnetTransport,
)
from twisted.internet.defer import fail, succeed
from twisted.internet.error import CannotListenError

from krowlspider.crawl.crawls import crawl_of
from krowlspider.crawl.monitoring.access import TELNET_PASSWORD, Secret
from krowlspider.views.control.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from scrapy.crawler import Crawler
    from twisted.conch.manhole import Manhole
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

logger = logging.getLogger(__name__)


def _without_errors(name: str) -> Callable[[TelnetTransport, bytes], Deferred[Any]]:
    """Return a method of the transport that negotiates an option, and ignores a refusal."""
    method = getattr(TelnetTransport, name)

    def negotiate(transport: TelnetTransport, option: bytes) -> Deferred[Any]:
        agreed: Deferred[Any] = method(transport, option)
        return agreed.addErrback(lambda _: None)

    return negotiate


class _Transport(TelnetTransport):
    """Ignores that a client refuses an option or leaves: the console works without it. Drops a
    client that sends what is no telnet, and one that exits."""

    will, wont, do, dont = map(_without_errors, ("will", "wont", "do", "dont"))

    def dataReceived(self, data: bytes) -> None:
        try:
            super().dataReceived(data)
        except SystemExit:
            self.loseConnection()
        except Exception as error:  # noqa: BLE001 - of whatever a stranger sends
            logger.info("Telnet client dropped: what it has sent cannot be read (%r)", error)
            assert self.transport is not None
            self.transport.abortConnection()


@cache
def _manhole() -> type[Manhole]:
    """Return a console that shows a wrong call in a line. What fails further down has its
    traceback, in the console."""
    # It installs the reactor.
    from twisted.conch.manhole import Manhole, ManholeInterpreter  # noqa: PLC0415

    class Interpreter(ManholeInterpreter):
        def showsyntaxerror(self, filename: str | None = None, **_: object) -> None:
            self.write("".join(traceback.format_exc(limit=0).splitlines(keepends=True)[-1:]))

        def excepthook(
            self, kind: type[BaseException], error: BaseException, trace: TracebackType
        ) -> None:
            frames = traceback.extract_tb(trace)
            own = [frame for frame in frames if frame.filename == self.filename]
            if own and frames[-1] is own[-1]:
                self.write("".join(traceback.format_exception_only(kind, error)))
            else:
                super().excepthook(kind, error, trace)

        def _ebDisplayDeferred(self, failure: Failure, *about: Any) -> None:
            # It is shown: nobody else is to hear of it.
            super()._ebDisplayDeferred(failure, *about)

    class Quiet(Manhole):
        def connectionMade(self) -> None:
            super().connectionMade()
            self.interpreter = Interpreter(self, self.namespace)

    return Quiet


class TelnetConsole(ScrapyTelnetConsole):
    """Writes a generated password to a file that only its owner can read, and never logs it.

    Anyone with the password can run Python in the crawl, and many people read logs. What a client
    does puts no error into the log.
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        self._secret = Secret(settings["TELNETCONSOLE_PASSWORD"])
        # Scrapy would generate a password and log it.
        settings.set("TELNETCONSOLE_PASSWORD", self._secret.text, settings.maxpriority())
        super().__init__(crawler)

    def protocol(self) -> TelnetTransport:
        return _Transport(AuthenticatingTelnetProtocol, self)

    def login(self, credentials: Any, _: object, *interfaces: object) -> Deferred[Any]:
        """Let a person in; a portal of Twisted."""
        name, password = self.username.encode(), self.password.encode()
        if not (credentials.username == name and credentials.checkPassword(password)):
            return fail(ValueError("Invalid credentials"))
        console = TelnetBootstrapProtocol(ServerProtocol, _manhole(), self._get_telnet_vars())
        return succeed((interfaces[0], console, lambda: None))

    def _get_telnet_vars(self) -> dict[str, Any]:
        console = Console(self.crawler, "the telnet console")
        return {**super()._get_telnet_vars(), "krowl": console}

    def start_listening(self) -> None:
        try:
            super().start_listening()
        except CannotListenError as error:
            logger.warning(
                "No telnet console: no free port in TELNETCONSOLE_PORT=%s at %s (%s);"
                " give others, or TELNETCONSOLE_ENABLED=False",
                ",".join(map(str, self.portrange)),
                self.host,
                error.socketError,
            )
            return
        crawl = crawl_of(self.crawler)
        where = self._secret.keep(crawl.job.folder.path / TELNET_PASSWORD) or "as set"
        assert self.port is not None
        at = self.port.getHost()
        crawl.watched_at.append(
            f"telnet {at.host} {at.port} (user {self.username}, password {where})"
        )

    def stop_listening(self) -> None:
        super().stop_listening()
        self._secret.forget()
