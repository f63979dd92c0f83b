"""Orders of people for hosts: pauses, blocks and delays, in force and in the store.

`StandingOrders` keeps them in the store. Each is of a name, a name at one port, or a rule of
`block_rule`, whether the frontier knows a host of it or not. All nodes of a cluster have the same
ones: of two for one rule, the later one holds. So an order that has ended is kept too, for nodes
that come back. A block may have a time at which it ends by itself.

`Orders` has those in force. A host that a pause or a block covers is put off when its time comes:
it gets a due time that never comes, so no later pop looks at it. While no pause or block is in
force, the pop does not ask.
"""

from __future__ import annotations

import json
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.errors import KrowlError
from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    DEFERRED,
    PUT_OFF_ELSEWHERE,
    PUT_OFF_HERE,
    Host,
)
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import due_key, split_due_key, whole_microseconds
from krowlspider.urls.canonical import orders_for
from krowlspider.urls.seeds import Blocks, block_rule, ordered_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from krowlspider.frontier.schedule.cache import DueHeap, HostCache
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Orders of a kind that are in force, and ended ones that are kept.
ORDERS_MAX = 10_000
ENDED_MAX = 1000

BLOCK, PAUSE, DELAY = "block", "pause", "delay"
_PREFIXES = {BLOCK: schema.BLOCK, PAUSE: schema.PAUSE, DELAY: schema.DELAY}


class OrderError(KrowlError):
    """An order that cannot be carried out; nothing has changed."""


class StandingOrder(NamedTuple):
    """An order of a ``kind``, given at ``stamp``, in microseconds of the clock of its node.

    ``note`` says who gave it, and when. ``seconds`` are those of a delay. Of a block, they are the
    time of the job clock after which it ends; 0 for a block without an end.
    """

    kind: str
    rule: str
    stamp: int
    note: str
    seconds: float = 0.0
    ended: bool = False

    @property
    def key(self) -> bytes:
        return _PREFIXES[self.kind] + self.rule.encode()


class StandingOrders:
    """The orders of a store, those that have ended included. ``latest`` is the stamp of the last
    one, 0 without any."""

    def __init__(self, store: Store):
        self._store = store
        self._known = {
            (kind, rule): _decode(kind, rule, value)
            for kind, prefix in _PREFIXES.items()
            for key, value in store.items(prefix)
            if (rule := key[1:].decode())
        }
        self.latest = max((order.stamp for order in self._known.values()), default=0)
        # Those in force by kind and rule, and the stamps of those that have ended.
        self._in_force: dict[str, dict[str, StandingOrder]] = {kind: {} for kind in _PREFIXES}
        self._ended: dict[tuple[str, str], int] = {}
        for order in self._known.values():
            self._sort_in(order)

    def all(self) -> list[StandingOrder]:
        """Return all orders, the latest one last."""
        return sorted(self._known.values(), key=lambda order: order.stamp)

    def in_force(self, kind: str) -> dict[str, StandingOrder]:
        """Return the orders of a kind that have not ended, by their rules."""
        return dict(self._in_force[kind])

    def made(self, order: StandingOrder) -> StandingOrder:
        """Return an order with a stamp that is later than that of the order that it replaces."""
        before = self._known.get((order.kind, order.rule))
        return order if before is None else order._replace(stamp=max(order.stamp, before.stamp + 1))

    def check(self, order: StandingOrder) -> None:
        """:raises OrderError: there are ORDERS_MAX of its kind in force"""
        known = self._in_force[order.kind]
        if not order.ended and order.rule not in known and len(known) >= ORDERS_MAX:
            what = "blocks: end some, or use KROWL_EXCLUDE"
            if order.kind != BLOCK:
                what = f"names with a {order.kind} of their own: end some"
            raise OrderError(f"there are {ORDERS_MAX:,} {what}")

    def put(self, orders: Iterable[StandingOrder], batch: Batch) -> int:
        """Put orders into a batch that is written at once; return how many were later than those
        that are known. The others are left out."""
        count = 0
        for order in orders:
            key = order.kind, order.rule
            before = self._known.get(key)
            if before is not None and before.stamp >= order.stamp:
                continue
            self._known[key] = order
            self._sort_in(order)
            self.latest = max(self.latest, order.stamp)
            batch.put(order.key, json.dumps(order[2:]).encode())
            count += 1
        over = len(self._ended) - ENDED_MAX
        for key in nsmallest(over, self._ended, key=self._ended.__getitem__):
            batch.delete(self._known.pop(key).key)
            del self._ended[key]
        return count

    def _sort_in(self, order: StandingOrder) -> None:
        if order.ended:
            self._ended[order.kind, order.rule] = order.stamp
            self._in_force[order.kind].pop(order.rule, None)
        else:
            self._in_force[order.kind][order.rule] = order
            self._ended.pop((order.kind, order.rule), None)


def encode_orders(orders: Iterable[StandingOrder]) -> str:
    return json.dumps(list(orders))


def decode_orders(text: str) -> list[StandingOrder]:
    """Return the orders in a text of another node.

    :raises ValueError: it has something else
    """
    found = msgspec.json.decode(text.encode(), type=list[StandingOrder])
    for order in found:
        if order.kind not in _PREFIXES or not order.note.isprintable() or order.stamp < 0:
            raise ValueError(f"no standing order: {str(order)[:200]!r}")
        if order.rule != (block_rule if order.kind == BLOCK else ordered_host)(order.rule):
            raise ValueError(f"no rule of hosts: {order.rule[:80]!r}")
    return found


def read_orders(store: Store, kind: str) -> dict[str, StandingOrder]:
    """Return the orders of a kind that a store has in force, by their rules."""
    return StandingOrders(store).in_force(kind)


def _decode(kind: str, rule: str, value: bytes) -> StandingOrder:
    found: Any = None
    try:
        found = json.loads(value)
    except ValueError:
        found = value.decode()
    # Before there were stamps, a block was a note, and a delay a number.
    if isinstance(found, list):
        return StandingOrder(kind, rule, *found)
    if isinstance(found, int | float):
        return StandingOrder(kind, rule, 0, "", float(found))
    return StandingOrder(kind, rule, 0, str(found))


class OwnDelays:
    """Puts delays of ``seconds`` by name, with or without port, into a policy, and changes them."""

    def __init__(self, rule: DelayPolicy, seconds: Mapping[str, float]):
        self._rule = rule
        # What the settings say of single hosts.
        self._configured = dict(rule.of_hosts)
        self._seconds = dict(seconds)
        self._apply(self._seconds)

    def _apply(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            policy = self._of(host)
            minimum = max(policy.minimum, self._seconds[host])
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
        self._apply([host])
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
        self._apply(self._seconds)


# Hosts that one commit lets go on after the end of an order: bounds the time that it takes.
_RELEASED = 1000
# Blocks that one commit ends whose time is over.
_ENDED_AT_ONCE = 500
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
        # No block ends before this time of the job clock.
        self._next_end = self._first_end()
        # The rules that have ended and whose hosts go on, and the key of the heap up to which hosts
        # were released; None if none is to be released. Rules that end meanwhile wait: their hosts
        # may be before that key.
        self._ended, self._ended_later = Blocks(), Blocks()
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
        batch = self._store.batch()
        if not self.standing.put([order], batch):
            return False
        if not order.ended or order.kind == DELAY:
            batch.write()
        if order.kind == DELAY:
            if order.ended:
                return self.delays.end(order.rule)
            return self.delays.set(order.rule, order.seconds)
        rules = (self.blocks if order.kind == BLOCK else self.pauses).rules
        was_there = order.rule in rules
        if order.ended:
            rules.pop(order.rule, None)
            changed = self._end([order.rule], batch) or was_there
        else:
            rules[order.rule] = order.note
            self._next_end = min(self._next_end, order.seconds or inf)
            changed = not was_there
        self.is_holding = bool(self.blocks.rules or self.pauses.rules)
        return changed

    def advance(self) -> None:
        """End blocks whose time is over, and let some hosts go on whose orders have ended."""
        now = self._now()
        if now > self._next_end:
            blocks = self.standing.in_force(BLOCK)
            over = [each for each in blocks.values() if 0 < each.seconds < now][:_ENDED_AT_ONCE]
            batch = self._store.batch()
            ended = (each._replace(stamp=each.stamp + 1, ended=True) for each in over)
            self.standing.put(ended, batch)
            for order in over:
                self.blocks.rules.pop(order.rule, None)
            self.is_holding = bool(self.blocks.rules or self.pauses.rules)
            self._next_end = self._first_end()
            if over:
                self._end([order.rule for order in over], batch)
                return
        self.release()

    def _first_end(self) -> float:
        blocks = self.standing.in_force(BLOCK).values()
        return min((order.seconds for order in blocks if order.seconds), default=inf)

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

    def _end(self, rules: Iterable[str], batch: Batch) -> bool:
        """Let the hosts of rules go on; return whether some in memory do that now. ``batch`` has
        the end of the orders: after a death between two batches, no order would hold the hosts, and
        nothing would let them go on."""
        ended = self._ended if self._released is None else self._ended_later
        ended.rules.update(dict.fromkeys(rules, ""))
        # Hosts that were put off since the last commit are not in the heap on disk yet.
        self._cache.record_changed(batch)
        self._put_ended(batch)
        batch.write()
        if self._released is None:
            self._released = _FIRST_PUT_OFF
        # A host with nothing but a robots.txt to fetch for another one is not in the heap on disk.
        hosts = [each for each in self._cache.hosts.values() if each.robots.fetches]
        gone_on = [self._let_go(host) for host in hosts]
        return self.release() or any(gone_on)

    def _put_ended(self, batch: Batch) -> None:
        rules = [*self._ended.rules, *self._ended_later.rules]
        if rules:
            batch.put(schema.BLOCK, json.dumps(rules).encode())
        else:
            batch.delete(schema.BLOCK)

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
        if len(keys) == _RELEASED:
            self._released = keys[-1]
        else:
            self._ended, self._ended_later = self._ended_later, Blocks()
            self._released = _FIRST_PUT_OFF if self._ended.rules else None
            self._put_ended(batch)
        batch.write()
        return bool(going_on)

    def _let_go(self, host: Host) -> bool:
        if not host.is_put_off or self.holder_of(host.name) is not None:
            return False
        if host.due == PUT_OFF_ELSEWHERE and not self._has_ended(host.name):
            return False
        self._make_due(host, self._now() + self._delay(host))
        return True

    def _has_ended(self, host: str) -> bool:
        """Return whether a rule for a host has ended, and its hosts go on now."""
        return any(each.rule_of(host) is not None for each in (self._ended, self._ended_later))

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
