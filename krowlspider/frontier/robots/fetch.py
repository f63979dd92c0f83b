"""One fetch of a robots.txt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from krowlspider.urls.host import authority_of

if TYPE_CHECKING:
    from krowlspider.frontier.hosts.host import Host


class RobotsFetch(Struct, eq=False):
    """The fetch of one authority's robots.txt.

    ``host`` is the host whose pages wait for it. ``url`` is the URL to fetch next. ``passed`` are
    the authorities whose robots.txt redirected, the last of them to ``url``. ``redirects``,
    ``retries`` and ``throttling`` count redirects, tries without an answer, and answers 429 or 5xx.

    ``asked_by`` are the nodes for which the URL is fetched, with the numbers of their asks. Such a
    fetch has no ``authority``, and its ``host`` is that of the URL.
    """

    authority: str
    host: Host
    url: str
    redirects: int = 0
    retries: int = 0
    throttling: int = 0
    passed: list[str] = field(default_factory=list)
    asked_by: dict[str, int] = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Return whether the host awaits this fetch from another host."""
        return self in self.host.robots.awaited

    @property
    def is_fresh(self) -> bool:
        """Return whether no try has failed, no redirect was followed, and no node has asked."""
        tried = self.retries or self.throttling or self.passed
        return not (tried or self.is_away or self.asked_by)

    @property
    def source(self) -> str | None:
        """Return the authority whose robots.txt is ``url``; None if ``url`` is another file."""
        authority = authority_of(self.url)
        return authority if self.url == authority + "/robots.txt" else None
