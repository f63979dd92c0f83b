"""The telnet console for clients that negotiate nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.extensions.telnet import TelnetConsole
from twisted.conch.telnet import TelnetTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred


def _without_errors(name: str) -> Callable[[TelnetTransport, bytes], Deferred[Any]]:
    """Return a method of the transport that negotiates an option, and ignores a refusal."""
    method = getattr(TelnetTransport, name)

    def negotiate(transport: TelnetTransport, option: bytes) -> Deferred[Any]:
        agreed: Deferred[Any] = method(transport, option)
        return agreed.addErrback(lambda _: None)

    return negotiate


class _Transport(TelnetTransport):
    """Ignores that a client refuses an option or leaves: the console works without it."""

    will, wont, do, dont = map(_without_errors, ("will", "wont", "do", "dont"))


class QuietConsole(TelnetConsole):
    """Puts no error into the log for what a client does before its login."""

    def protocol(self) -> TelnetTransport:
        made = super().protocol()
        return _Transport(made.protocolFactory, *made.protocolArgs)  # type: ignore[no-untyped-call]
