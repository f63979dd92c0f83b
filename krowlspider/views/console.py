"""The ``krowl`` object of the telnet console: questions to the crawl, answered as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError, error_text
from krowlspider.frontier.admin.words import counted
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of
from krowlspider.views import frontier

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.engine.control import Control


class Text(str):
    """A text that the console prints as it is: the console prints what ``repr`` returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_HELP = """\
krowl.status()              figures of the crawl, and why it is paused
krowl.hosts("queued", 10)   hosts in memory: by queued, done, dropped, delay, due_in or errors
krowl.host("example.com")   one host, and why it is not being fetched
krowl.explain("https://..") where a URL is, and why it is not being fetched"""


class Console:
    """Asks a `Control`; each answer and each error is a text for people."""

    def __init__(self, control: Control):
        self._control = control

    def __repr__(self) -> str:
        return _HELP

    def help(self) -> Text:
        return Text(_HELP)

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

    def hosts(self, sort: str = "queued", limit: int = 10) -> Text:
        """Return a table of hosts."""
        return _answer(
            lambda: "\n".join(frontier.host_table(f"by {sort}", self._control.hosts(sort, limit)))
        )

    def host(self, name: str) -> Text:
        """Return what is known of a host, given by name or URL."""
        url = normalise(name if "://" in name else f"http://{name}")
        if url is None:
            return Text(f"{name!r} is not the name of a host")
        return _answer(lambda: frontier.one_host(self._control.host(host_of(url))))

    def explain(self, url: str) -> Text:
        """Return where a URL is, and why it is not being fetched."""
        return _answer(lambda: frontier.explained(self._control.explain(url)))


def _answer(ask: Callable[[], str]) -> Text:
    try:
        return Text(ask())
    except (KrowlError, ValueError, OSError) as error:
        return Text(error_text(error))
