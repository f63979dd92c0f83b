"""Orders of a person for hosts while the crawl runs: pauses, blocks and delays.

A paused or blocked host is due in years, so no pop looks at it. A host that a block covers is put
off when its time comes: the pop asks only while there are blocks.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krowlspider.frontier.hosts.host import AWAITING_ROBOTS, DEFERRED
from krowlspider.frontier.schedule.own_delays import ORDERS_MAX, OrderError
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import due_key, split_due_key, whole_microseconds
from krowlspider.frontier.store.store import put
from krowlspider.urls.rules.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.frontier.hosts.host import Host
    from krowlspider.frontier.schedule.cache import HostCache
    from krowlspider.frontier.schedule.due import DueHeap
    from krowlspider.frontier.schedule.own_delays import OwnDelays
    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy

# Seconds by which a paused host is put off: ten years. No other wait is nearly as long.
PAUSED = 3650 * 86_400.0
# Seconds by which a blocked host is put off.
BLOCKED_FOR = 2 * PAUSED
# Hosts that one commit lets go on after the end of a block: bounds the time that it takes.
_RELEASED = 1000


def read_blocks(store: Store) -> Blocks:
    """Return the blocks that a store has."""
    rules = ((key[1:].decode(), note.decode()) for key, note in store.items(schema.BLOCK))
    return Blocks((rule, note) for rule, note in rules if rule)


class Orders:
    """Pauses, blocks and delays of hosts, all kept in the store.

    ``blocks`` are the rules in effect, ``delays`` those of single hosts. ``due_changed`` schedules
    a host again whose due time has changed. ``now`` returns the job clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        rule: DelayPolicy,
        delays: OwnDelays,
        *,
        cache: HostCache,
        due: DueHeap,
        due_changed: Callable[[Host], None],
        now: Callable[[], float],
    ):
        self._store = store
        self._rule = rule
        self.delays = delays
        self._cache = cache
        self._due = due
        self._due_changed = due_changed
        self._now = now
        self.blocks = read_blocks(store)
        # The key of the heap up to which hosts were released; None if none is to be released.
        self._released: bytes | None = None
        if store.get(schema.BLOCK) is not None:
            self._released = self._first_blocked()

    # --- pauses ---

    def pause(self, host: Host) -> bool:
        """Send nothing to a host until `unpause`, after restarts too. Return False for a deferred
        host, to which nothing is sent anyway until it is tried again."""
        return self._put_off(host, PAUSED)

    def unpause(self, host: Host) -> bool:
        """Let a host go on after its delay. Return False if it is not paused."""
        return is_paused(host, self._now()) and self._put_off(host, self._delay(host))

    # --- blocks ---

    def block(self, rule: str, note: str) -> bool:
        """Send nothing to the hosts of a rule of `block_rule` until `unblock`, after restarts too.
        Return False if it is in effect already.

        :raises OrderError: there are ORDERS_MAX blocks
        """
        if rule in self.blocks.rules:
            return False
        if len(self.blocks.rules) >= ORDERS_MAX:
            raise OrderError(f"there are {ORDERS_MAX:,} blocks: end some, or use KROWL_EXCLUDE")
        put(self._store, schema.BLOCK + rule.encode(), note.encode())
        self.blocks.rules[rule] = note
        return True

    def unblock(self, rule: str) -> bool:
        """End a block. Its hosts go on after their delay, some with each commit. Return False if
        there is no such block."""
        if self.blocks.rules.pop(rule, None) is None:
            return False
        batch = self._store.batch()
        # Hosts that were put off since the last commit are not in the heap on disk yet.
        self._cache.record_changed(batch)
        batch.delete(schema.BLOCK + rule.encode())
        batch.put(schema.BLOCK, b"")
        batch.write()
        self._released = self._first_blocked()
        # A host with nothing but a robots.txt to fetch for another one is not in the heap on disk.
        for host in [each for each in self._cache.hosts.values() if each.robots.fetches]:
            self._let_go(host)
        self.release()
        return True

    def holds_back(self, host: Host) -> bool:
        """Put a host off if a block covers it; return whether one does. A deferred host stays
        deferred."""
        if self.blocks.rule_of(host.name) is None:
            return False
        if host.state is not DEFERRED:
            host.due = host.ready = whole_microseconds(self._now() + BLOCKED_FOR)
            self._due_changed(host)
            # After a death it is put off again: the rule is on disk.
            self._cache.note(host)
        return True

    def release(self) -> None:
        """Make some of the hosts due that are put off and that no block covers any more."""
        if self._released is None:
            return
        keys = list(islice(self._store.keys(schema.DUE, self._released), _RELEASED))
        names = [split_due_key(key)[1] for key in keys]
        self._cache.read(names)
        batch = self._store.batch()
        for name in names:
            host = self._cache.hosts[name]
            if self._let_go(host):
                self._cache.record([host], batch)
        self._released = keys[-1] if len(keys) == _RELEASED else None
        if self._released is None:
            batch.delete(schema.BLOCK)
        batch.write()

    def _let_go(self, host: Host) -> bool:
        now = self._now()
        if not is_put_off(host, now) or self.blocks.rule_of(host.name) is not None:
            return False
        self._make_due(host, now + self._delay(host))
        return True

    def _first_blocked(self) -> bytes:
        return due_key(self._now() + (PAUSED + BLOCKED_FOR) / 2, "")

    # --- delays ---

    def set_delay(self, host: Host, seconds: float) -> None:
        """Make the delay of a host at least so long, as `OwnDelays.set`."""
        self.delays.set(host.name, seconds)
        # Its last request may have ended just now.
        wait = self._delay(host)
        if host.due < self._now() + wait:
            self._put_off(host, wait)

    # --- times ---

    def _delay(self, host: Host) -> float:
        # Its last request may have ended just before.
        return self._rule.of(host.name).delay(host.rate)

    def _put_off(self, host: Host, wait: float) -> bool:
        if host.state is DEFERRED:
            return False
        self._make_due(host, self._now() + wait)
        self._cache.record_now(host)
        return True

    def _make_due(self, host: Host, due: float) -> None:
        host.due = host.ready = whole_microseconds(due)
        self._due_changed(host)
        if host.state is AWAITING_ROBOTS and host.robots.fetches:
            self._due.push(host.due, host.name)


def is_paused(host: Host, now: float) -> bool:
    """Return whether a host is paused at ``now``, in seconds of the job clock."""
    return PAUSED / 2 < host.due - now < (PAUSED + BLOCKED_FOR) / 2


def is_put_off(host: Host, now: float) -> bool:
    """Return whether a host was put off because of a block."""
    return host.due - now > (PAUSED + BLOCKED_FOR) / 2
