"""Extension: Scrapy's telnet console with its password in a private file, and its ``krowl``
object.
"""

from __future__ import annotations

import logging
import traceback
from functools import cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from scrapy.extensions.telnet import TelnetConsole as ScrapyTelnetConsole
from scrapy.utils.defer import deferred_from_coro
from twisted.conch.insults.insults import ServerProtocol
from twisted.conch.telnet import (
    AuthenticatingTelnetProtocol,
    TelnetBootstrapProtocol,
    TelnetTransport,
)
from twisted.internet.defer import fail, succeed
from twisted.internet.error import CannotListenError

from krowlspider.engine.control import Control
from krowlspider.engine.steering import ForeignHostError
from krowlspider.errors import counted, error_text
from krowlspider.job.crawls import crawl_of
from krowlspider.job.monitoring.access import TELNET_PASSWORD, Secret
from krowlspider.job.parts import LIVE
from krowlspider.views import frontier
from krowlspider.views.frontier import named_host
from krowlspider.views.order_fields import ERRORS, BadRequestError, check_fields
from krowlspider.views.ordering import Ordering, OrderOutcome, stands

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from scrapy.crawler import Crawler
    from twisted.conch.manhole import Manhole
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure


class Text(str):
    """A text that the console prints as it is: the console prints what ``repr`` returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_Given = ParamSpec("_Given")
_Said = TypeVar("_Said")


def _checked(
    call: Callable[Concatenate[Console, _Given], _Said],
) -> Callable[Concatenate[Console, _Given], _Said | Text]:
    """Have a call answer wrong arguments, and what cannot be done, with a line in place of a
    traceback."""
    known, name = signature(call), call.__name__

    @wraps(call)
    def checked(self: Console, *given: _Given.args, **named: _Given.kwargs) -> _Said | Text:
        try:
            bound = known.bind_partial(self, *given, **named)
            words = dict(bound.arguments)
            bound.apply_defaults()
            # "" is the default of what may be left out.
            words |= {each: value for each, value in bound.arguments.items() if value != ""}
            check_fields(name, {each: value for each, value in words.items() if value is not self})
        except (TypeError, BadRequestError) as error:
            return Text(f"krowl.{name}: {error}")
        try:
            return call(self, *given, **named)
        except ERRORS as error:
            return Text(error_text(error))

    return checked


def _order(
    method: Callable[Concatenate[Ordering, _Given], OrderOutcome],
) -> Callable[Concatenate[Console, _Given], Text | Deferred[Text]]:
    """Return the call that gives the order of a method of `Ordering`, with its arguments."""

    @_checked
    @wraps(method)
    def give(self: Console, *given: _Given.args, **named: _Given.kwargs) -> Text | Deferred[Text]:
        bound = signature(method).bind(self._orders, *given, **named)
        bound.apply_defaults()
        _, *fields = bound.arguments.items()
        return self._give(method.__name__, dict(fields))

    return give


_HELP = """\
krowl.status()              figures of the crawl, and why it is paused
krowl.hosts("queued", 10)   hosts in memory: by queued, done, dropped, delay, due_in or errors;
                            a third argument is a state, such as "in flight"
krowl.host("example.com")   one host, and why it is not being fetched
krowl.pages(10)             the last pages that are over: status, size, latency, outcome
krowl.explain("https://..") where a URL is, and why it is not being fetched
krowl.pause()               send no request until krowl.resume(), at all nodes, after restarts too
krowl.pause("example.com")  send nothing to a host until krowl.resume("example.com"); a name without
                            a port is all its ports
krowl.block("example.com")  send nothing to a domain, a host or a SURT prefix such as "com,example,"
krowl.unblock("example.com")
krowl.delay("example.com", 10)  wait 10 s between requests to a host; without a number, as set
krowl.forget("example.com")  remove all of one host: its URLs are new where they are found again
krowl.forget("https://example.com/news")  fetch a page again
krowl.add("https://..", 5)  queue a URL, here with priority 5
krowl.reload()              read the file of KROWL_EXCLUDE again
krowl.set("KROWL_DELAY_MIN", 2)  change a setting until the process ends: LIVE"""
_HELP = _HELP.replace("LIVE", ", ".join(LIVE))


class Console:
    """Answers questions and gives orders of ``who``; each answer and each error is a text for
    people."""

    def __init__(self, crawler: Crawler, who: str):
        self._control = Control(crawler)
        self._orders = Ordering(crawler, who)

    def __repr__(self) -> str:
        return _HELP

    def help(self) -> Text:
        return Text(_HELP)

    @_checked
    def status(self) -> Text:
        """Return the figures of the crawl."""
        found = self._control.status()
        dropped = ", ".join(
            f"{reason}: {count:,}" for reason, count in found["dropped"].items() if count
        )
        hosts = f"{counted(found['hosts'], 'host')}, {found['due']:,} of them due now"
        lines = [
            f"pages done  {found['done']:,} since the start",
            f"queued      {found['queued']:,} on {hosts}",
            f"in flight   {found['in_flight']:,}",
            f"deferred    {found['deferred']:,}",
            f"dropped     {dropped or 'none'}",
            *([f"state       {found['paused']}"] if found["paused"] else []),
        ]
        return Text("\n".join(lines))

    @_checked
    def hosts(self, sort: str = "queued", limit: int = 10, state: str = "") -> Text:
        """Return a table of hosts."""
        found = self._control.hosts(sort, limit, state)
        return Text("\n".join(frontier.host_table(f"by {sort}", found)) or "no host")

    @_checked
    def host(self, name: str) -> Text:
        """Return what is known of a host, given by name or URL."""
        return Text(frontier.one_host(self._control.host(named_host(name))))

    @_checked
    def pages(self, limit: int = 10) -> Text:
        """Return a table of the last pages that are over."""
        return Text("\n".join(frontier.page_table(self._control.pages(limit))))

    @_checked
    def explain(self, url: str) -> Text | Deferred[Text]:
        """Return where a URL is, and why it is not being fetched."""
        here = self._control.explain(url)
        if not here.owner:
            return Text(frontier.explained(here))

        async def text() -> str:
            return frontier.explained(await self._orders.explain_at(here))

        return _later(text())

    pause = _order(Ordering.pause)
    resume = _order(Ordering.resume)
    block = _order(Ordering.block)
    unblock = _order(Ordering.unblock)
    delay = _order(Ordering.delay)
    add = _order(Ordering.add)
    forget = _order(Ordering.forget)
    reload = _order(Ordering.reload)
    set = _order(Ordering.set)

    def _give(self, order: str, fields: dict[str, Any]) -> Text | Deferred[Text]:
        """Return what becomes of an order; a Deferred if other nodes carry it out too."""
        if stands(order, fields) and self._orders.has_others:
            return _later(self._everywhere(order, fields))
        if self._orders.is_for_all(order, fields):
            return _later(self._all(order))
        try:
            return Text(getattr(self._orders, order)(**fields).message)
        except ForeignHostError as error:
            owner = error.owner

        async def text() -> str:
            return (await self._orders.give_to(owner, order, fields)).message

        return _later(text())

    async def _all(self, order: str) -> str:
        return (await self._orders.set_all_paused(paused=order == "pause")).message

    async def _everywhere(self, order: str, fields: dict[str, Any]) -> str:
        return (await self._orders.give_everywhere(order, fields)).message


def _later(asking: Coroutine[Any, Any, str]) -> Deferred[Text]:
    """Return what a question to another node answers. The console prints it when it is there."""

    async def text() -> Text:
        try:
            return Text(await asking)
        except ERRORS as error:
            return Text(error_text(error))

    return deferred_from_coro(text())


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
