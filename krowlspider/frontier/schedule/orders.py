"""Orders of a person for hosts while the crawl runs: pauses, blocks and delays.

A host that a pause or a block covers is put off when its time comes: the pop asks only while there
are some. Then it has a due time that never comes, so no pop looks at it.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    DEFERRED,
    PUT_OFF_ELSEWHERE,
    PUT_OFF_HERE,
)
from krowlspider.frontier.schedule.standing import BLOCK, DELAY, PAUSE, StandingOrder
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import due_key, split_due_key, whole_microseconds
from krowlspider.urls.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.schedule.cache import HostCache
    from krowlspider.frontier.schedule.due import DueHeap
    from krowlspider.frontier.schedule.own_delays import OwnDelays
    from krowlspider.frontier.schedule.standing import StandingOrders
    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy

# Hosts that one commit lets go on after the end of an order: bounds the time that it takes.
_RELEASED = 1000
_FIRST_PUT_OFF = due_key(PUT_OFF_ELSEWHERE, "")


class Orders:
    """Pauses, blocks and delays of hosts, all kept in the store.

    ``blocks`` and ``pauses`` are the rules in force; ``is_holding`` is whether there are any.
    ``due_changed`` schedules a host again whose due time has changed. ``now`` returns the job clock
    in seconds.
    """

    def __init__(
        self,
        store: Store,
        rule: DelayPolicy,
        standing: StandingOrders,
        delays: OwnDelays,
        *,
        cache: HostCache,
        due: DueHeap,
        due_changed: Callable[[Host], None],
        now: Callable[[], float],
    ):
        self._store = store
        self._rule = rule
        self.standing = standing
        self.delays = delays
        self._cache = cache
        self._due = due
        self._due_changed = due_changed
        self._now = now
        self.blocks = rules_in(standing.in_force(BLOCK))
        self.pauses = rules_in(standing.in_force(PAUSE))
        self.is_holding = bool(self.blocks.rules or self.pauses.rules)
        # The rules that have ended and whose hosts go on, and the key of the heap up to which hosts
        # were released; None if none is to be released.
        self._ended = Blocks()
        self._released: bytes | None = None
        if (ended := store.get(schema.BLOCK)) is not None:
            self._ended = Blocks((rule, "") for rule in json.loads(ended or b"[]"))
            self._released = _FIRST_PUT_OFF

    # --- giving ---

    def made(
        self, kind: str, rule: str, note: str, seconds: float = 0.0, *, ended: bool = False
    ) -> StandingOrder:
        """Return an order that is later than all that are known.

        :raises OrderError: there are too many of its kind, or a delay is below that of the settings
        """
        stamp = round(self._now() * 1e6)
        order = self.standing.made(StandingOrder(kind, rule, stamp, note, seconds, ended))
        self.standing.check(order)
        if kind == DELAY and not ended:
            self.delays.check(rule, seconds)
        return order

    def take(self, order: StandingOrder) -> bool:
        """Put an order into force, or end one, unless a later one is known; after restarts too.
        Return whether that changed anything.

        The hosts of a pause or block that has ended go on after their delay, some with each commit.
        """
        if not self.standing.keep(order):
            return False
        if order.kind == DELAY:
            if order.ended:
                return self.delays.end(order.rule)
            return self.delays.set(order.rule, order.seconds)
        rules = (self.blocks if order.kind == BLOCK else self.pauses).rules
        was_there = order.rule in rules
        if order.ended:
            rules.pop(order.rule, None)
            changed = self._end(order.rule) or was_there
        else:
            rules[order.rule] = order.note
            changed = not was_there
        self.is_holding = bool(self.blocks.rules or self.pauses.rules)
        return changed

    # --- holding hosts back ---

    def holder_of(self, host: str) -> tuple[str, str, str] | None:
        """Return the kind, rule and note of the order that holds a host back; None without one."""
        for kind, known in ((BLOCK, self.blocks), (PAUSE, self.pauses)):
            if known.rules and (rule := known.rule_of(host)) is not None:
                return kind, rule, known.rules[rule]
        return None

    def holds_back(self, host: Host) -> bool:
        """Put a host off if an order covers it; return whether one does. A deferred host stays
        deferred."""
        if self.holder_of(host.name) is None:
            return False
        if host.state is not DEFERRED:
            host.due = host.ready = PUT_OFF_HERE
            self._due_changed(host)
            # After a death it is put off again: the rule is on disk.
            self._cache.note(host)
        return True

    def _end(self, rule: str) -> bool:
        """Let the hosts of a rule go on; return whether some in memory do that now."""
        self._ended.rules[rule] = ""
        batch = self._store.batch()
        # Hosts that were put off since the last commit are not in the heap on disk yet.
        self._cache.record_changed(batch)
        batch.put(schema.BLOCK, json.dumps(list(self._ended.rules)).encode())
        batch.write()
        self._released = _FIRST_PUT_OFF
        # A host with nothing but a robots.txt to fetch for another one is not in the heap on disk.
        hosts = [each for each in self._cache.hosts.values() if each.robots.fetches]
        gone_on = [self._let_go(host) for host in hosts]
        return self.release() or any(gone_on)

    def release(self) -> bool:
        """Make some of the hosts due that are put off and that no order covers any more; return
        whether there were any."""
        if self._released is None:
            return False
        keys = list(islice(self._store.keys(schema.DUE, self._released), _RELEASED))
        names = [split_due_key(key)[1] for key in keys]
        self._cache.read(names)
        batch = self._store.batch()
        going_on = [host for name in names if self._let_go(host := self._cache.hosts[name])]
        self._cache.record(going_on, batch)
        self._released = keys[-1] if len(keys) == _RELEASED else None
        if self._released is None:
            self._ended = Blocks()
            batch.delete(schema.BLOCK)
        batch.write()
        return bool(going_on)

    def _let_go(self, host: Host) -> bool:
        if not host.is_put_off or self.holder_of(host.name) is not None:
            return False
        if host.due == PUT_OFF_ELSEWHERE and self._ended.rule_of(host.name) is None:
            return False
        self._make_due(host, self._now() + self._delay(host))
        return True

    # --- delays ---

    def wait(self, host: Host) -> None:
        """Have a host wait for its delay, which has become longer: its last request may have ended
        just now."""
        wait = self._delay(host)
        if host.due < self._now() + wait and host.state is not DEFERRED:
            self._make_due(host, self._now() + wait)
            self._cache.record_now(host)

    # --- times ---

    def _delay(self, host: Host) -> float:
        # Its last request may have ended just before.
        return self._rule.of(host.name).delay(host.rate)

    def _make_due(self, host: Host, due: float) -> None:
        host.due = host.ready = whole_microseconds(due)
        self._due_changed(host)
        if host.state is AWAITING_ROBOTS and host.robots.fetches:
            self._due.push(host.due, host.name)


def rules_in(orders: Mapping[str, StandingOrder]) -> Blocks:
    """Return the rules of orders, with their notes."""
    return Blocks((rule, order.note) for rule, order in orders.items())
