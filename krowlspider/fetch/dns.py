"""Names to addresses: asked once, remembered for as long as the answer says, off the loop's back."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.fetch.errors import NameFailed, NameNotFound
from krowlspider.fetch.hosts import LocalNames, parse_hosts
from krowlspider.fetch.nameservers import NameServers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# A crawl asks again for a host soon: shorter answers are kept a minute; longer than an hour none,
# so that a site that moves is followed within one. Failures: a minute (RFC 2308 allows up to 5).
POSITIVE_MIN, POSITIVE_MAX, NEGATIVE = 60.0, 3600.0, 60.0
# A name may list hundreds of addresses; the dialer tries three.
ADDRESSES_KEPT = 8
HOSTS_FILE = Path("/etc/hosts")


@dataclass(slots=True, eq=False)
class _Answer:
    addresses: list[str]
    expires: float
    failure: type[NameNotFound | NameFailed] | None = None
    reason: str = ""


class Resolver:
    """Looks names up: overrides, addresses, localhost, /etc/hosts, then the DNS.

    ``overrides``: exact name or "*.suffix" to address. ``servers``: "address" or "address:port",
    empty for those of /etc/resolv.conf. ``cache_size``: names remembered, least recently used
    dropped. ``timeout``: seconds for one look-up, all tries together. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        *,
        overrides: Mapping[str, str],
        servers: Sequence[str],
        cache_size: int,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        hosts = HOSTS_FILE.read_text(errors="replace") if HOSTS_FILE.exists() else ""
        self._local = LocalNames(overrides, parse_hosts(hosts))
        self._nameservers = NameServers(servers, timeout)
        self._cache_size = cache_size
        self._timeout = timeout
        self._clock = clock
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Answer]] = {}

    async def resolve(self, name: str) -> list[str]:
        """The addresses of ``name``, IPv4 first, never empty.

        IPv6 is asked for only when there is no IPv4: a second query for each name would double
        the load on the DNS for addresses that come second anyway.
        Raises NameNotFound (NXDOMAIN) or NameFailed (all else).
        """
        name = name.lower().rstrip(".")
        local = self._local.find(name)
        if local is not None:
            return list(local)
        answer = self._remembered(name)
        if answer is None:
            answer = await self._asked(name)
        if answer.failure is not None:
            raise answer.failure(f"{name}: {answer.reason}")
        return list(answer.addresses)

    async def close(self) -> None:
        """Give up what is being asked: those who wait for it get NameFailed."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._nameservers.close()

    def __len__(self) -> int:
        return len(self._cache)

    def _remembered(self, name: str) -> _Answer | None:
        answer = self._cache.get(name)
        if answer is None:
            return None
        if answer.expires <= self._clock():
            del self._cache[name]
            return None
        self._cache.move_to_end(name)
        return answer

    async def _asked(self, name: str) -> _Answer:
        task = self._ask(name)
        try:
            # Shielded: a caller that gives up must not take the answer from the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise NameFailed(f"{name}: the resolver was closed") from None
            raise

    def _ask(self, name: str) -> asyncio.Task[_Answer]:
        task = self._asking.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look_up(name))
            self._asking[name] = task
        return task

    async def _look_up(self, name: str) -> _Answer:
        try:
            answer = await self._query(name)
            self._cache[name] = answer
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        finally:
            del self._asking[name]
        return answer

    async def _query(self, name: str) -> _Answer:
        ask = self._nameservers.ask
        try:
            async with asyncio.timeout(self._timeout):
                records = await ask(name, "A") or await ask(name, "AAAA")
        except (NameNotFound, NameFailed) as e:
            return self._failure(type(e), str(e))
        except TimeoutError:
            return self._failure(NameFailed, "no answer in time")
        if not records:
            return self._failure(NameFailed, "no address")
        ttl = min(ttl for _, ttl in records)
        expires = self._clock() + min(max(ttl, POSITIVE_MIN), POSITIVE_MAX)
        return _Answer([address for address, _ in records[:ADDRESSES_KEPT]], expires)

    def _failure(self, failure: type[NameNotFound | NameFailed], reason: str) -> _Answer:
        return _Answer([], self._clock() + NEGATIVE, failure, reason)
