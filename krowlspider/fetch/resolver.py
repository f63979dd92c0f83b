"""Resolve names to addresses without blocking the event loop.

Concurrent calls for one name share a look-up. Its answer is cached for its TTL, within bounds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from krowlspider.fetch import errors
from krowlspider.fetch.guard import LocalNames, parse_hosts
from krowlspider.fetch.nameservers import (
    KINDS,
    NEGATIVE,
    Answers,
    Families,
    NameServers,
    Resolution,
    kept_of,
)
from krowlspider.fetch.tcp import Routes, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    from krowlspider.fetch.errors import LoopClock
    from krowlspider.fetch.nameservers import Records

if TYPE_CHECKING:
    OnAnswer = Callable[[str, list[tuple[str, float]]], None]

T = TypeVar("T")

HOSTS_FILE = Path("/etc/hosts")


@dataclass(slots=True, eq=False)
class ResolverStats:
    """Counts since the resolver was made. Names that need no DNS are not counted."""

    questions: int = 0
    """Queries sent to the DNS: one for A, another for AAAA where it pays."""
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
    look-up with all its tries. ``routes`` tells which family is asked for first. ``clock`` returns
    monotonic seconds. ``on_answer`` is called with each answer of the DNS that has addresses,
    ``on_look_up`` with the seconds of each look-up.
    """

    def __init__(
        self,
        *,
        overrides: Mapping[str, str],
        servers: Sequence[str],
        cache_size: int,
        timeout: float,
        loop_clock: LoopClock,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
        on_answer: OnAnswer | None = None,
        on_look_up: Callable[[float], None] | None = None,
    ) -> None:
        hosts = HOSTS_FILE.read_text(errors="replace") if HOSTS_FILE.exists() else ""
        self._local = LocalNames(overrides, parse_hosts(hosts))
        self.routes = routes
        self._nameservers = NameServers(servers, timeout)
        self._families = Families(self._ask, routes, loop_clock, timeout)
        self.timeout = timeout
        self._loop_clock = loop_clock
        self._clock = clock
        self._on_answer = on_answer
        self._on_look_up = on_look_up
        self._answers = Answers(cache_size, clock)
        self._asking: dict[str, asyncio.Task[Resolution]] = {}
        self._asking_others: dict[str, asyncio.Task[list[str]]] = {}
        self.stats = ResolverStats()

    @property
    def cached_names(self) -> int:
        """Return how many names are in the cache."""
        return len(self._answers)

    async def resolve(self, name: str) -> list[str]:
        """Return the addresses of ``name``, those to try first in front, never empty.

        IPv6 is queried only when there is no IPv4, or no route for it. A second query for each name
        would double the load on the DNS. `others` returns the rest, where it is of use.

        :raises NameFailed: the look-up failed; the subclass names the cause
        :raises LocalExhausted: this machine has no memory or socket left
        """
        known = self.known(name)
        if known is not None:
            return known
        name = _bare(name)
        task = self._share(self._asking, name, self._look_up)
        try:
            # Shielded: a caller that is cancelled must not cancel the look-up for the others.
            return _addresses(name, await asyncio.shield(task))
        except asyncio.CancelledError:
            if task.cancelled():
                raise errors.NameFailed(f"{name}: the resolver was closed") from None
            raise

    async def others(self, name: str) -> list[str]:
        """Return the addresses of the family that `resolve` has not queried.

        There are none if this machine has no route for that family, or if the query fails.
        """
        name = _bare(name)
        if self._local.find(name) is not None or not self._answers.may_ask_others(name):
            return []
        answer = self._answers.get(name)
        if answer is not None and answer.addresses:
            version = 10 - version_of(answer.addresses[0])
        else:
            version = 10 - self.routes.first()
        if not self.routes.has(version):
            return []
        look_up = partial(self._look_up_others, kind=KINDS[version])
        task = self._share(self._asking_others, name, look_up)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return []
            raise

    def learn(self, name: str, reached: str, unreached: Collection[str]) -> None:
        """Record which address of a name was connected to ("" for none), and which could not be.

        While the answer of the DNS is kept, the former is returned first and the latter last.
        """
        self._answers.learn(_bare(name), reached, unreached)

    def reached(self, name: str) -> str:
        """Return the address of a name that was connected to last; "" if none is known."""
        return self._answers.reached(_bare(name))

    def known(self, name: str) -> list[str] | None:
        """Return what `resolve` returns without a query, or None when it has to send one.

        :raises NameFailed: the failure that is cached for the name
        """
        name = _bare(name)
        local = self._local.find(name)
        if local is not None:
            return list(local)
        answer = self._answers.get(name)
        if answer is None:
            return None
        self.stats.cached += 1
        return _addresses(name, answer)

    async def close(self) -> None:
        """Cancel the look-ups in flight: calls that wait for one raise NameFailed."""
        tasks = [*self._asking.values(), *self._asking_others.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._nameservers.close()

    def _share(
        self,
        asking: dict[str, asyncio.Task[T]],
        name: str,
        look_up: Callable[[str], Coroutine[Any, Any, T]],
    ) -> asyncio.Task[T]:
        """Return the look-up of a name, which concurrent calls share."""
        task = asking.get(name)
        if task is None:
            task = asking[name] = asyncio.get_running_loop().create_task(look_up(name))
        else:
            self.stats.joined += 1
        return task

    async def _look_up(self, name: str) -> Resolution:
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
        self._answers.put(name, answer)
        return answer

    async def _answer(self, name: str) -> Resolution:
        answers = self._answers
        try:
            records, both_known = await self._families.look_up(name)
        except errors.FetchError as e:
            return answers.failed(type(e), str(e))
        except TimeoutError:
            return answers.failed(errors.NameTimeout, "no answer in time")
        if not records:
            return answers.failed(errors.NameWithoutAddress, "no address")
        if self._on_answer is not None:
            self._on_answer(name, records)
        return answers.found(records, both_known=both_known)

    async def _look_up_others(self, name: str, kind: str) -> list[str]:
        clock, retry_after = self._loop_clock, inf
        records: Records = []
        try:
            async with clock.timeout_at(clock.time() + self.timeout):
                records = await self._ask(name, kind)
            self.stats.answered += 1
        except errors.FetchError as e:
            retry_after = NEGATIVE.get(type(e), 0.0)
        except TimeoutError:
            retry_after = NEGATIVE[errors.NameTimeout]
        finally:
            del self._asking_others[name]
        if records and self._on_answer is not None:
            self._on_answer(name, records)
        self._answers.add_others(name, records, retry_after)
        return kept_of(records)

    def _ask(self, name: str, kind: str) -> Coroutine[Any, Any, Records]:
        self.stats.questions += 1
        return self._nameservers.ask(name, kind)


def _bare(name: str) -> str:
    return name.lower().rstrip(".")


def _addresses(name: str, answer: Resolution) -> list[str]:
    if answer.failure is not None:
        raise answer.failure(f"{name}: {answer.reason}")
    return list(answer.addresses)
