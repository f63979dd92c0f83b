"""Outages of our own network or name servers: the crawl pauses, and no host is blamed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import LocalExhausted
from krowlspider.politeness.outage import NETWORK, RESOLVER, OutageWatch, State, Verdict

if TYPE_CHECKING:
    from krowlspider.fetch.dns import ResolverStats
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts import Host

logger = logging.getLogger(__name__)


class Outages:
    """Told how every request ended; says whom to blame, and whether requests may go out."""

    def __init__(self, frontier: Frontier, names: ResolverStats):
        self._frontier = frontier
        self._names = names
        self._answered = names.answered
        self._network = OutageWatch(NETWORK)
        self._resolver = OutageWatch(RESOLVER)
        # Whether it was by names that the last outage showed: then names show its end.
        self._by_names = False
        # Outages that began in this start.
        self.begun = 0

    def answered(self) -> None:
        """A host answered."""
        self._succeeded(self._network)
        self._ask_resolver()

    def failed(self, host: Host, kind: str) -> bool:
        """A request to a host failed; True when it is not the host that is to blame."""
        self._ask_resolver()
        fresh, now = not host.pace.errors, self._frontier.now()
        watches = (self._network, self._resolver)
        verdicts = [watch.failed(host.name, kind, now, fresh=fresh) for watch in watches]
        for watch, verdict in zip(watches, verdicts, strict=True):
            if verdict is Verdict.END:
                self._end(watch)
        if begun := [w for w, v in zip(watches, verdicts, strict=True) if v is Verdict.BEGIN]:
            self._begin(begun, kind)
        return kind == LocalExhausted.kind or bool({Verdict.FORGIVE, Verdict.BEGIN} & {*verdicts})

    @property
    def paused(self) -> bool:
        """Whether no host answers."""
        return self._network.state is State.OUTAGE

    def next_probe(self) -> float:
        """Seconds until a request may go out; 0 while some host answers.

        Without name servers, hosts whose addresses are remembered go on.
        """
        now = self._frontier.now()
        return 0.0 if self._network.open(now) else self._network.next_probe - now

    def sent(self) -> None:
        """A request went out."""
        self._network.sent(self._frontier.now())

    def _ask_resolver(self) -> None:
        if self._names.answered != self._answered:
            self._answered = self._names.answered
            self._succeeded(self._resolver)
            if self._by_names:
                self._succeeded(self._network)

    def _succeeded(self, watch: OutageWatch) -> None:
        if watch.succeeded():
            self._end(watch)

    def _end(self, watch: OutageWatch) -> None:
        logger.info(
            "%s again, after %.0f s",
            "Hosts answer" if watch is self._network else "Names are found",
            self._frontier.now() - watch.since,
        )

    def _begin(self, begun: list[OutageWatch], kind: str) -> None:
        self.begun += 1
        if self._network in begun:
            self._by_names = kind.startswith("dns_")
            logger.warning(
                "No host answers (%s): the network of this machine or its name servers seem to be down. The crawl"
                " pauses and tries one host every few seconds; no host is blamed.",
                kind,
            )
        else:
            logger.warning(
                "No name is found (%s): the name servers seem to be down. Hosts whose addresses are known go on; no"
                " host is blamed.",
                kind,
            )
        for name in {name for watch in begun for name in watch.struck}:
            # A failure that both have seen was counted once.
            strikes = max(watch.struck.get(name, 0) for watch in begun)
            self._frontier.forgive(name, strikes)
