"""Answers to pages: counts over all starts, and the last ones of hosts that a person looks at."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.frontier.entry_queues import PAGE, REDIRECT, Lease
from krowlspider.frontier.store import schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krowlspider.frontier.store.store import Batch, Store
    from krowlspider.politeness.delay import DelayPolicy

# Hosts whose prices are kept, 100 bytes each. Of further ones the answers are counted alone.
PRICED_MAX = 1000
# Media types with a count of their own. Others count together.
TYPES_MAX = 500
_OTHER = "other"
# RFC 6838, section 4.2, with shorter names.
_TYPE = re.compile(rb"\s*([A-Za-z0-9][\w!#$&^.+-]{0,49}/[A-Za-z0-9][\w!#$&^.+-]{0,79})\s*(;|$)")


class Outcomes:
    """Counts the last answers of pages by status and media type.

    The counts are ``status/`` (of pages and redirects that are done), ``dropped_status/`` (of those
    that were dropped after an answer), ``type/`` and ``bytes/`` (of pages done) with a name,
    ``received`` bytes of all URLs, ``starts``, and ``began``: the time of the first start in epoch
    seconds. They change on disk with the commit that acknowledges the pages.
    """

    def __init__(self, store: Store, now: float):
        self.counts = read_counts(store)
        # None until a price is asked for.
        self._prices: dict[str, tuple[str, int]] | None = None
        self._store = store
        self.counts["starts"] += 1
        self.counts.setdefault("began", int(now))
        self._types = sum(name.startswith("type/") for name in self.counts)

    def tally(self, acknowledged: Iterable[tuple[Lease, str | None]]) -> Counter[str]:
        """Return the counts that the acknowledgement of these pages adds."""
        # By status, header, kind and end, as nearly all pages have the same few.
        sizes: dict[tuple[int, bytes | None, str, bool], list[int]] = {}
        for lease, dropped in acknowledged:
            if (answer := lease.answer) is not None:
                row = (*answer[:2], lease.kind, dropped is None)
                sizes.setdefault(row, []).append(answer[3])
        counts: Counter[str] = Counter()
        for (status, media_type, of, is_done), some in sizes.items():
            counts["received"] += sum(some)
            if of in (PAGE, REDIRECT):
                counts[f"status/{status}" if is_done else f"dropped_status/{status}"] += len(some)
            if of == PAGE and is_done:
                kind = self._kind(media_type, counts)
                counts[f"type/{kind}"] += len(some)
                counts[f"bytes/{kind}"] += sum(some)
        return counts

    def _kind(self, media_type: bytes | None, counts: Counter[str]) -> str:
        if media_type is None:
            return "none"
        found = _TYPE.match(media_type)
        kind = "invalid" if found is None else found[1].decode().lower()
        name = f"type/{kind}"
        if name in self.counts or name in counts:
            return kind
        if self._types >= TYPES_MAX:
            return _OTHER
        self._types += 1
        return kind

    def priced(self, host: str, price: str) -> None:
        """Count an answer 402 of a host, and keep its last price; "" if it names none."""
        if self._prices is None:
            self._prices = read_prices(self._store)
        last, count = self._prices.get(host, ("", 0))
        if count or len(self._prices) < PRICED_MAX:
            self._prices[host] = price or last, count + 1

    def put(self, batch: Batch, added: Counter[str]) -> None:
        """Put the counts into a batch, with those that it adds."""
        if self._prices is not None:
            batch.put(schema.PRICES, json.dumps(self._prices).encode())
        batch.put(schema.OUTCOMES, json.dumps(self.counts + added).encode())


def read_prices(store: Store) -> dict[str, tuple[str, int]]:
    """Return the last price of each host that has answered 402, and how often it has."""
    saved: dict[str, tuple[str, int]] = json.loads(store.get(schema.PRICES) or b"{}")
    return {host: (price, count) for host, (price, count) in saved.items()}


def read_counts(store: Store) -> Counter[str]:
    return Counter(json.loads(store.get(schema.OUTCOMES) or b"{}"))


# Hosts that are watched, and answers kept of each.
HOSTS_MAX = 16
ANSWERS_MAX = 60


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """A page of a host that is over. ``time`` is that of its commit in epoch seconds, ``delay`` the
    one of its host after it, in seconds, or None; the others are those of its last answer, 0
    without one."""

    time: float
    delay: float | None
    url: str
    outcome: str
    status: int
    size: int
    latency: float


class WatchedHosts:
    """Keeps the last answers of the hosts that were asked for last."""

    def __init__(self, policy: DelayPolicy):
        self._policy = policy
        self._answers: dict[str, deque[HostAnswer]] = {}

    def of(
        self, name: str, recent: Iterable[tuple[Lease, str | None]], now: float
    ) -> list[HostAnswer]:
        """Return the answers of a host, the oldest first, and watch it from now on.

        The first time, return those among ``recent``, without a delay: it is not known any more.
        """
        if (known := self._answers.pop(name, None)) is None:
            known = deque(maxlen=ANSWERS_MAX)
            for lease, dropped in recent:
                if lease.host.name == name:
                    known.append(_answer(lease, dropped, now, None))
            if len(self._answers) >= HOSTS_MAX:
                del self._answers[next(iter(self._answers))]
        # The last: it is forgotten last.
        self._answers[name] = known
        return list(known)

    def take(self, acknowledged: Iterable[tuple[Lease, str | None]], now: float) -> None:
        """Keep what is over of the hosts that are watched; ``now`` is epoch seconds."""
        if not self._answers:
            return
        for lease, dropped in acknowledged:
            host = lease.host
            if (known := self._answers.get(host.name)) is not None:
                delay = self._policy.of(host.name).delay(host.rate)
                known.append(_answer(lease, dropped, now, delay))


def _answer(lease: Lease, dropped: str | None, now: float, delay: float | None) -> HostAnswer:
    answer = lease.answer
    last = (0, 0, 0.0) if answer is None else (answer.status, answer.size, answer.latency)
    return HostAnswer(now, delay, lease.entry.url, dropped or "done", *last)
