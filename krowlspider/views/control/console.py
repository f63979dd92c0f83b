"""The ``krowl`` object of the telnet console: asks a crawl, and changes it."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from scrapy.utils.defer import deferred_from_coro

from krowlspider.crawl.live_settings import LIVE
from krowlspider.engine.control import Control
from krowlspider.engine.steering import ForeignHostError
from krowlspider.errors import error_text
from krowlspider.frontier.admin.words import counted
from krowlspider.views import frontier
from krowlspider.views.control.order_fields import ERRORS, BadRequestError, check_fields
from krowlspider.views.control.ordering import Ordering, Outcome, stands
from krowlspider.views.frontier import named_host

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred


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
            bound.apply_defaults()
            check_fields(name, {k: v for k, v in bound.arguments.items() if v is not self})
        except (TypeError, BadRequestError) as error:
            return Text(f"krowl.{name}: {error}")
        try:
            return call(self, *given, **named)
        except ERRORS as error:
            return Text(error_text(error))

    return checked


def _order(
    method: Callable[Concatenate[Ordering, _Given], Outcome],
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
