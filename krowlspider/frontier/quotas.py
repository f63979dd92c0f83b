"""What hosts and sheets have used of max_pages, max_bytes and max_seconds.

The counts are written in the batch of the commit that acknowledges the pages, so they are exact
after a crash. They belong to the name of the sheet that gives the limit.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from krowlspider.frontier.store.schema import quota_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.policies.keys import Policy
    from krowlspider.policies.sheets import HostPolicies

# Counts in memory, about 300 bytes each; those that are on disk and not in flight are forgotten.
_COUNTS = 65_536
_USED = Struct(">QQd")


class _Used(msgspec.Struct):
    """Pages and bytes that were fetched, and when the first page was begun, in epoch seconds; 0
    before it. ``in_flight`` are pages that were begun and are not over."""

    pages: int = 0
    size: int = 0
    began: float = 0.0
    in_flight: int = 0


class _Limit(NamedTuple):
    """A limit, and the key on disk of what is counted against it."""

    reason: str
    most: float
    key: bytes


class Quotas:
    """Counts what is fetched of the hosts that have a limit.

    ``find`` returns the sheets of a host, ``wall`` epoch seconds.
    """

    def __init__(
        self,
        store: Store,
        find: Callable[[str], HostPolicies | None],
        wall: Callable[[], float],
    ):
        self._store = store
        self._find = find
        self._wall = wall
        self._used: OrderedDict[bytes, _Used] = OrderedDict()
        self._changed: set[bytes] = set()
        # The keys of the pages in flight.
        self._taken: dict[Lease, set[bytes]] = {}

    def refusal(self, found: HostPolicies, host: str, url: str, *, is_page: bool = True) -> str:
        """Return the limit that a host, whose sheets are ``found``, has reached; "" for none.
        What is no page counts against max_bytes and max_seconds only."""
        for limit in _limits(found, host, url):
            used = self._get(limit.key)
            if limit.reason == "max_pages":
                is_reached = is_page and used.pages + used.in_flight >= limit.most
            elif limit.reason == "max_bytes":
                is_reached = used.size >= limit.most
            else:
                is_reached = used.began > 0 and self._wall() - used.began >= limit.most
            if is_reached:
                return limit.reason
        return ""

    def begin(self, lease: Lease) -> None:
        """Note that a page is sent."""
        host = lease.host
        found = self._find(host.name)
        if found is None or not (limits := _limits(found, host.name, lease.entry.url)):
            return
        taken = self._taken[lease] = {limit.key for limit in limits}
        for key in taken:
            used = self._get(key)
            used.in_flight += _is_page(lease)
            if not used.began:
                used.began = self._wall()
                self._changed.add(key)

    def give_back(self, lease: Lease) -> None:
        """Note that a page goes back to its queue."""
        for key in self._taken.pop(lease, ()):
            self._get(key).in_flight -= _is_page(lease)

    def settle(self, lease: Lease, dropped: str | None) -> None:
        """Count a page that is acknowledged."""
        answer = lease.answer
        for key in self._taken.pop(lease, ()):
            used = self._get(key)
            used.in_flight -= _is_page(lease)
            if answer is not None:
                used.pages += _is_page(lease) and dropped is None and not lease.is_redirect
                used.size += answer.size
                self._changed.add(key)

    def put(self, batch: Batch) -> None:
        """Write what has changed since the last call."""
        for key in self._changed:
            batch.put(key, _packed(self._used[key]))
        self._changed.clear()
        if (over := len(self._used) - _COUNTS) > 0:
            for key in list(islice(self._used, over)):
                if not self._used[key].in_flight:
                    del self._used[key]

    # --- hosts that move ---

    def of_host(self, host: str) -> dict[str, tuple[int, int, float]]:
        """Return what a host has used, by sheet: pages, bytes, and seconds since the first page."""
        now = self._wall()
        found = {}
        for key in self._store.keys(prefix := quota_key(host, "")):
            used = self._get(key)
            age = max(0.0, now - used.began) if used.began else 0.0
            found[key[len(prefix) :].decode()] = used.pages, used.size, age
        return found

    def take(self, host: str, used: Mapping[str, tuple[int, int, float]], batch: Batch) -> None:
        """Add what a host has used elsewhere."""
        for sheet, (pages, size, age) in used.items():
            own = self._get(key := quota_key(host, sheet))
            own.pages += pages
            own.size += size
            began = self._wall() - age
            own.began = min(own.began or began, began)
            batch.put(key, _packed(own))

    def forget(self, host: str, batch: Batch) -> None:
        """Put the removal of what a host has used into the batch."""
        for key in self._store.keys(quota_key(host, "")):
            batch.delete(key)
            self._used.pop(key, None)
            self._changed.discard(key)

    # --- parts ---

    def _get(self, key: bytes) -> _Used:
        if (used := self._used.get(key)) is None:
            saved = self._store.get(key)
            used = self._used[key] = _Used(*_USED.unpack(saved)) if saved else _Used()
        return used


def _packed(used: _Used) -> bytes:
    return _USED.pack(used.pages, used.size, used.began)


def _is_page(lease: Lease) -> bool:
    """Return whether a lease is for a page that is fetched for the first time."""
    return not lease.entry.is_again and not (lease.entry.request and lease.entry.file)


def _limits(found: HostPolicies, host: str, url: str) -> list[_Limit]:
    policy = found.of(url)
    return [
        _Limit(reason, most, quota_key("" if policy.quota == "sheet" else host, why.sheet))
        for reason, most in _given(policy)
        if (why := found.why(url, reason)) is not None
    ]


def _given(policy: Policy) -> list[tuple[str, float]]:
    limits = (
        ("max_pages", policy.max_pages),
        ("max_bytes", policy.max_bytes),
        ("max_seconds", policy.max_seconds),
    )
    return [(reason, most) for reason, most in limits if most is not None]
