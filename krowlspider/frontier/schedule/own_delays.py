"""Delays that a person has set for single hosts; they are kept in the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from krowlspider.errors import KrowlError
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import delete, put
from krowlspider.urls.ports import name_of

if TYPE_CHECKING:
    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy

# Hosts with a delay of their own, and rules of blocks.
ORDERS_MAX = 10_000


class OrderError(KrowlError):
    """An order that cannot be carried out; nothing has changed."""


class OwnDelays:
    """Puts the delays of the store into a policy, and changes both."""

    def __init__(self, store: Store, rule: DelayPolicy):
        self._store = store
        self._rule = rule
        # What the settings say of single hosts.
        self._configured = dict(rule.of_hosts)
        self._seconds = {key[1:].decode(): float(value) for key, value in store.items(schema.DELAY)}
        self._apply()

    def _apply(self) -> None:
        for host, seconds in self._seconds.items():
            policy = self._of(host)
            minimum = max(policy.minimum, seconds)
            self._rule.of_hosts[host] = replace(policy, minimum=minimum, of_hosts={})

    def _of(self, host: str) -> DelayPolicy:
        configured = self._configured
        return configured.get(host) or configured.get(name_of(host), self._rule)

    def set(self, host: str, seconds: float) -> None:
        """Make the delay of a host at least so long, after restarts too. What its robots.txt asks
        for holds if it is longer.

        :raises OrderError: the settings ask for more; or ORDERS_MAX hosts have a delay of their own
        """
        if seconds < (least := self._of(host).minimum):
            raise OrderError(
                f"{seconds:g} s is below the least delay of this host, {least:g} s"
                " (KROWL_DELAY_MIN); nothing has changed"
            )
        if host not in self._seconds and len(self._seconds) >= ORDERS_MAX:
            raise OrderError(f"{ORDERS_MAX:,} hosts have a delay of their own: end some")
        put(self._store, schema.DELAY + host.encode(), f"{seconds!r}".encode())
        self._seconds[host] = seconds
        self._apply()

    def end(self, host: str) -> bool:
        """End the delay of a host; return False if it has none of its own."""
        if self._seconds.pop(host, None) is None:
            return False
        delete(self._store, [schema.DELAY + host.encode()])
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
