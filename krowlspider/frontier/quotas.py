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
    from collections.abc import Callable, Iterable, Mapping

    from krowlspider.frontier.entry_queues import Lease
    from krowlspider.frontier.grants import Grant, Grants
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
    """A limit, and the key on disk of what is counted against it. ``sheet`` is the name of the
    sheet if the limit is of all its hosts together, "" if not."""

    reason: str
    most: float
    key: bytes
    sheet: str


class Quotas:
    """Counts what is fetched of the hosts that have a limit.

    ``find`` returns the sheets of a host, ``wall`` epoch seconds. ``grants`` are this node's parts
    of the limits of whole sheets; None for a crawl of one process.
    """

    def __init__(
        self,
        store: Store,
        find: Callable[[str], HostPolicies | None],
        wall: Callable[[], float],
        grants: Grants | None = None,
    ):
        self.grants = grants
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
            if (is_page or limit.reason != "max_pages") and self._is_reached(limit):
                return limit.reason
        return ""

    def turn(self, found: HostPolicies, host: str, url: str, *, is_page: bool = True) -> str | None:
        """Return what `refusal` does for a page that is to be begun now; None if it must wait for
        the other nodes to say what is left of a limit."""
        if (reason := self.refusal(found, host, url, is_page=is_page)) or self.grants is None:
            return reason
        asked = [
            self._may_begin(limit, self.grants)
            for limit in _limits(found, host, url)
            if limit.sheet and (is_page or limit.reason != "max_pages")
        ]
        return "" if all(asked) else None

    def _is_reached(self, limit: _Limit) -> bool:
        used, grants = self._get(limit.key), self.grants
        if limit.reason == "max_seconds":
            began = used.began
            if limit.sheet and grants is not None:
                grant = grants.of(limit.sheet, limit.reason, limit.most)
                began = min(filter(None, (began, grant.began)), default=0.0)
            return began > 0 and self._wall() - began >= limit.most
        amount = _amount(used, limit.reason)
        if amount >= limit.most:
            return True
        if not limit.sheet or grants is None:
            return False
        grant = grants.of(limit.sheet, limit.reason, limit.most)
        return grant.is_spent and amount >= grant.granted

    def _may_begin(self, limit: _Limit, grants: Grants) -> bool:
        grant = grants.of(limit.sheet, limit.reason, limit.most)
        if limit.reason == "max_seconds":
            return grants.ask_when(grant)
        return grants.ask(grant, self.left(grant))

    def used(self, grant: Grant) -> int:
        """Return how many pages or bytes of a grant are used, those in flight included."""
        return _amount(self._get(quota_key("", grant.sheet)), grant.reason)

    def left(self, grant: Grant) -> int:
        """Return how much of a grant may still be used; below 0 if more was used."""
        return min(grant.granted, grant.limit) - self.used(grant)

    def began(self, sheet: str) -> float:
        """Return when this node has begun the first page of a sheet, in epoch seconds; 0 before."""
        return self._get(quota_key("", sheet)).began

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
                self._publish(limits, key)

    def _publish(self, limits: Iterable[_Limit], key: bytes) -> None:
        """Let all nodes know when the first page of a sheet was begun."""
        for limit in limits:
            if limit.key == key and limit.sheet and limit.reason == "max_seconds" and self.grants:
                self.grants.publish(self.grants.of(limit.sheet, limit.reason, limit.most))

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


def _amount(used: _Used, reason: str) -> int:
    return used.pages + used.in_flight if reason == "max_pages" else used.size


def _packed(used: _Used) -> bytes:
    return _USED.pack(used.pages, used.size, used.began)


def _is_page(lease: Lease) -> bool:
    """Return whether a lease is for a page that is fetched for the first time."""
    return not lease.entry.is_again and not (lease.entry.request and lease.entry.file)


def _limits(found: HostPolicies, host: str, url: str) -> list[_Limit]:
    policy = found.of(url)
    is_shared = policy.quota == "sheet"
    return [
        _Limit(
            *(reason, most, quota_key("" if is_shared else host, why.sheet)),
            why.sheet if is_shared else "",
        )
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
