"""Standing orders of people for hosts: blocks, pauses and delays, kept in the store.

Each is of a name, a name at one port, or a rule of `block_rule`, whether the frontier knows a host
of it or not. All nodes of a cluster have the same ones: of two for one rule, the later one holds.
So an order that has ended is kept too, for nodes that come back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.errors import KrowlError
from krowlspider.frontier.store import schema
from krowlspider.urls.blocks import block_rule, ordered_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.frontier.store.store import Store

# Orders of a kind that are in force, and ended ones that are kept.
ORDERS_MAX = 10_000
ENDED_MAX = 1000

BLOCK, PAUSE, DELAY = "block", "pause", "delay"
_PREFIXES = {BLOCK: schema.BLOCK, PAUSE: schema.PAUSE, DELAY: schema.DELAY}


class OrderError(KrowlError):
    """An order that cannot be carried out; nothing has changed."""


class StandingOrder(NamedTuple):
    """An order of a ``kind``, given at ``stamp``, in microseconds of the clock of its node.

    ``note`` says who gave it, and when. ``seconds`` are those of a delay.
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

    def all(self) -> list[StandingOrder]:
        """Return all orders, the latest one last."""
        return sorted(self._known.values(), key=lambda order: order.stamp)

    def in_force(self, kind: str) -> dict[str, StandingOrder]:
        """Return the orders of a kind that have not ended, by their rules."""
        return {
            rule: order
            for (each, rule), order in self._known.items()
            if each == kind and not order.ended
        }

    def made(self, order: StandingOrder) -> StandingOrder:
        """Return an order with a stamp that is later than that of the order that it replaces."""
        before = self._known.get((order.kind, order.rule))
        return order if before is None else order._replace(stamp=max(order.stamp, before.stamp + 1))

    def check(self, order: StandingOrder) -> None:
        """:raises OrderError: there are ORDERS_MAX of its kind in force"""
        known = self.in_force(order.kind)
        if not order.ended and order.rule not in known and len(known) >= ORDERS_MAX:
            what = "blocks: end some, or use KROWL_EXCLUDE"
            if order.kind != BLOCK:
                what = f"names with a {order.kind} of their own: end some"
            raise OrderError(f"there are {ORDERS_MAX:,} {what}")

    def keep(self, order: StandingOrder) -> bool:
        """Write an order. Return False for one that is not later than the one that is known."""
        before = self._known.get((order.kind, order.rule))
        if before is not None and before.stamp >= order.stamp:
            return False
        batch = self._store.batch()
        self._known[order.kind, order.rule] = order
        self.latest = max(self.latest, order.stamp)
        batch.put(order.key, json.dumps(order[2:]).encode())
        ended = [each for each in self._known.values() if each.ended]
        if order.ended and len(ended) > ENDED_MAX:
            oldest = min(ended, key=lambda each: each.stamp)
            del self._known[oldest.kind, oldest.rule]
            batch.delete(oldest.key)
        batch.write()
        return True


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
