"""Resolve names to addresses without blocking the event loop.

Concurrent calls for one name share a look-up. Its answer is cached for its TTL, within bounds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.fetch import errors
from krowlspider.fetch.dns.hosts_file import LocalNames, parse_hosts
from krowlspider.fetch.dns.nameservers import NameServers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krowlspider.fetch.loop_clock import LoopClock

    # Takes a name, and its addresses with their TTLs in seconds.
    OnAnswer = Callable[[str, list[tuple[str, float]]], None]

# Seconds that addresses are kept. A crawl soon asks again, so short TTLs are raised to a minute; an
# hour at most, so that a moved site is followed within one.
POSITIVE_MIN, POSITIVE_MAX = 60.0, 3600.0
# Seconds to keep a failure, at most the five minutes of RFC 2308, section 7: c-ares hides the
# zone's TTL (section 5). A timeout may be one lost packet. Others are cheap or not about the name.
NEGATIVE: dict[type[errors.FetchError], float] = {
    errors.NameNotFound: 300.0,
    errors.NameWithoutAddress: 60.0,
    errors.NameServerFailed: 60.0,
    errors.NameTimeout: 10.0,
}
# A name may list hundreds of addresses; the dialer tries only three.
ADDRESSES_KEPT = 8
HOSTS_FILE = Path("/etc/hosts")


@dataclass(slots=True, eq=False)
class _Answer:
    addresses: list[str]
    expires: float
    failure: type[errors.FetchError] | None = None
    reason: str = ""


@dataclass(slots=True, eq=False)
class ResolverStats:
    """Counts since the resolver was made. Names that need no DNS are not counted."""

    questions: int = 0
    """Queries sent to the DNS: one for A, another for AAAA when there is no A."""
    answered: int = 0
    """Look-ups that the DNS settled: addresses, no address, or no such name."""
    cached: int = 0
    """Names found in the cache, failures included."""
    joined: int = 0
    """Calls that waited for a look-up of the same name already in flight."""
    waited: float = 0.0
    """Seconds that all look-ups took together."""
    failures: Counter[str] = field(default_factory=Counter)
    """Look-ups that returned no address, by ``kind``."""


class Resolver:
    """Resolves names by overrides, addresses, localhost, /etc/hosts, then the DNS.

    ``overrides`` maps an exact name or "*.suffix" to an address. ``servers`` are "address" or
    "address:port"; empty means those of /etc/resolv.conf. ``cache_size`` is the number of names
    kept; the least recently used is dropped. ``timeout`` is in seconds of ``loop_clock``, for one
    look-up with all its tries. ``clock`` returns monotonic seconds. ``on_answer`` is called with
    each answer of the DNS that has addresses, ``on_look_up`` with the seconds of each look-up.
    """

    def __init__(
        self,
        *,
        overrides: Mapping[str, str],
        servers: Sequence[str],
        cache_size: int,
        timeout: float,
        loop_clock: LoopClock,
        clock: Callable[[], float] = time.monotonic,
        on_answer: OnAnswer | None = None,
        on_look_up: Callable[[float], None] | None = None,
    ) -> None:
        hosts = HOSTS_FILE.read_text(errors="replace") if HOSTS_FILE.exists() else ""
        self._local = LocalNames(overrides, parse_hosts(hosts))
        self._nameservers = NameServers(servers, timeout)
        self._cache_size = cache_size
        self._timeout = timeout
        self._loop_clock = loop_clock
        self._clock = clock
        self._on_answer = on_answer
        self._on_look_up = on_look_up
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Answer]] = {}
        self.stats = ResolverStats()

    @property
    def cached_names(self) -> int:
        """Return how many names are in the cache."""
        return len(self._cache)

    async def resolve(self, name: str) -> list[str]:
        """Return the addresses of ``name``, IPv4 first, never empty.

        IPv6 is queried only when there is no IPv4. A second query for each name would double the
        load on the DNS for addresses that are tried last anyway.

        :raises NameFailed: the look-up failed; the subclass names the cause
        :raises LocalExhausted: this machine has no memory or socket left
        """
        known = self.known(name)
        if known is not None:
            return known
        name = _bare(name)
        task = self._asking.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look_up(name))
            self._asking[name] = task
        else:
            self.stats.joined += 1
        try:
            # Shielded: a caller that is cancelled must not cancel the look-up for the others.
            return _addresses(name, await asyncio.shield(task))
        except asyncio.CancelledError:
            if task.cancelled():
                raise errors.NameFailed(f"{name}: the resolver was closed") from None
            raise

    def known(self, name: str) -> list[str] | None:
        """Return what `resolve` returns without a query, or None when it has to send one.

        :raises NameFailed: the failure that is cached for the name
        """
        name = _bare(name)
        local = self._local.find(name)
        if local is not None:
            return list(local)
        answer = self._cache.get(name)
        if answer is None:
            return None
        if answer.expires <= self._clock():
            del self._cache[name]
            return None
        self._cache.move_to_end(name)
        self.stats.cached += 1
        return _addresses(name, answer)

    async def close(self) -> None:
        """Cancel the look-ups in flight: calls that wait for one raise NameFailed."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._nameservers.close()

    async def _look_up(self, name: str) -> _Answer:
        begun = self._clock()
        try:
            answer = await self._answer(name)
        finally:
            del self._asking[name]
            waited = self._clock() - begun
            self.stats.waited += waited
            if self._on_look_up is not None:
                self._on_look_up(waited)
        if answer.failure is not None:
            self.stats.failures[answer.failure.kind] += 1
        if answer.failure in (None, errors.NameNotFound, errors.NameWithoutAddress):
            self.stats.answered += 1
        if answer.failure is None or answer.failure in NEGATIVE:
            self._cache[name] = answer
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return answer

    async def _answer(self, name: str) -> _Answer:
        try:
            clock = self._loop_clock
            async with clock.timeout_at(clock.time() + self._timeout):
                records = await self._records(name)
        except errors.FetchError as e:
            return self._failure(type(e), str(e))
        except TimeoutError:
            return self._failure(errors.NameTimeout, "no answer in time")
        if not records:
            return self._failure(errors.NameWithoutAddress, "no address")
        if self._on_answer is not None:
            self._on_answer(name, records)
        ttl = min(ttl for _, ttl in records)
        expires = self._clock() + min(max(ttl, POSITIVE_MIN), POSITIVE_MAX)
        return _Answer([address for address, _ in records[:ADDRESSES_KEPT]], expires)

    async def _records(self, name: str) -> list[tuple[str, float]]:
        failure: errors.NameServerFailed | None = None
        try:
            records = await self._ask(name, "A")
        except errors.NameServerFailed as e:
            records, failure = [], e
        if records:
            return records
        try:
            records = await self._ask(name, "AAAA")
        except errors.NameNotFound:
            # The A answer shows that the name exists; some servers err so (RFC 4074, section 4.2).
            if failure is not None:
                raise
        if failure is not None and not records:
            raise failure
        return records

    async def _ask(self, name: str, kind: str) -> list[tuple[str, float]]:
        self.stats.questions += 1
        return await self._nameservers.ask(name, kind)

    def _failure(self, failure: type[errors.FetchError], reason: str) -> _Answer:
        return _Answer([], self._clock() + NEGATIVE.get(failure, 0.0), failure, reason)


def _bare(name: str) -> str:
    return name.lower().rstrip(".")


def _addresses(name: str, answer: _Answer) -> list[str]:
    if answer.failure is not None:
        raise answer.failure(f"{name}: {answer.reason}")
    return list(answer.addresses)
