"""Delays that a person has set for single names or hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from krowlspider.frontier.schedule.standing import OrderError
from krowlspider.urls.host import orders_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.politeness.delay import DelayPolicy


class OwnDelays:
    """Puts delays of ``seconds`` by name, with or without port, into a policy, and changes them."""

    def __init__(self, rule: DelayPolicy, seconds: Mapping[str, float]):
        self._rule = rule
        # What the settings say of single hosts.
        self._configured = dict(rule.of_hosts)
        self._seconds = dict(seconds)
        self._apply()

    def _apply(self) -> None:
        for host, seconds in self._seconds.items():
            policy = self._of(host)
            minimum = max(policy.minimum, seconds)
            self._rule.of_hosts[host] = replace(policy, minimum=minimum, of_hosts={})

    def _of(self, host: str) -> DelayPolicy:
        found = (self._configured.get(each) for each in orders_for(host))
        return next((policy for policy in found if policy is not None), self._rule)

    def check(self, host: str, seconds: float) -> None:
        """:raises OrderError: the settings ask for more"""
        if seconds < (least := self._of(host).minimum):
            raise OrderError(
                f"{seconds:g} s is below the least delay of this host, {least:g} s"
                " (KROWL_DELAY_MIN); nothing has changed"
            )

    def set(self, host: str, seconds: float) -> bool:
        """Make the delay of a host at least so long; return False if it is that already. What its
        robots.txt asks for holds if it is longer."""
        if self._seconds.get(host) == seconds:
            return False
        self._seconds[host] = seconds
        self._apply()
        return True

    def end(self, host: str) -> bool:
        """End the delay of a host; return False if it has none of its own."""
        if self._seconds.pop(host, None) is None:
            return False
        if (configured := self._configured.get(host)) is None:
            del self._rule.of_hosts[host]
        else:
            self._rule.of_hosts[host] = configured
        return True

    def change_policy(self, field: str, value: float) -> None:
        """Set ``factor``, ``minimum`` or ``maximum`` of all hosts, until the process ends. A longer
        ``minimum`` of a single host stays."""
        for policy in self._configured.values():
            own = max(policy.minimum, value) if field == "minimum" else value
            setattr(policy, field, own)
        setattr(self._rule, field, value)
        self._apply()
