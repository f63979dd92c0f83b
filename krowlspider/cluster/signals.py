"""What one person says to all nodes, and the pages that they may fetch together: by Consul, or by one Redis.

Consul keeps ``krowlspider/CLUSTER/signal`` and ``krowlspider/CLUSTER/pages``, Redis ``krowlspider:CLUSTER:signal``
and so on. A signal is the plain text RUNNING, PAUSED or STOP; without the key it is RUNNING.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from redis.exceptions import RedisError

from krowlspider.cluster.consul.calls import Agent, SessionGoneError, Step, coded
from krowlspider.cluster.membership import UnansweredError
from krowlspider.cluster.ring.record import BadRecordError, load_counters
from krowlspider.cluster.signal import Signal
from krowlspider.cluster.tasks import end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from consul import Consul
    from redis.asyncio import Redis

    from krowlspider.cluster.ring.census import Entry
    from krowlspider.cluster.ring.record import Counters

logger = logging.getLogger(__name__)

# Seconds for a call to Redis, and between two looks at it: together less than the 5 s in which a signal is honoured.
_PATIENCE = 2.0
_LOOK = 2.0
# Seconds that a blocking query waits: with the patience of a call it is less than 5 s, should the wire be cut.
_WAIT = 2.0
# Tries to change a number that others change at the same time.
_TRIES = 20
# Seconds, times the number of tries, that one waits at most before the next.
_STEP = 0.01
# For Redis, in one step: take up to ARGV[1] pages of ARGV[2] in all, or give them back when that is negative; the change.
# What is taken never falls below 0, should some come back after a reset.
_MOVE = """
local taken = tonumber(redis.call('GET', KEYS[1]) or '0')
local pages, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local change = math.max(-taken, math.min(pages, math.max(0, limit - taken)))
if change ~= 0 then redis.call('INCRBY', KEYS[1], change) end
return change
"""


class Budget(Protocol):
    """Pages that all nodes together may fetch; each takes portions of them.

    What was taken is never more than the limit. An answer that is lost, and a node that dies, may leave up to a
    portion unfetched.
    """

    async def take(self, pages: int) -> int:
        """Pages that this node may fetch now, ``pages`` at most; 0 when all are taken.

        :raises UnansweredError:
        """

    async def give_back(self, pages: int) -> None:
        """Leave to others what was taken and not fetched; who has found none left asks again.

        :raises UnansweredError: the pages may be lost
        """

    async def taken(self) -> int:
        """Pages that all nodes have taken and not given back.

        :raises UnansweredError:
        """

    async def reset(self) -> None:
        """The crawl is over: the next one may take all pages again.

        :raises UnansweredError: it may or not
        """


class Signals(ABC):
    """Watches the signal, from `start` to `close`; ``on_change`` is called when it has changed."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.signal = Signal.RUNNING
        self.on_change = on_change
        self._refused: str | None = None
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def send(self, signal: Signal) -> None:
        """Tell all nodes.

        :raises UnansweredError:
        """

    @abstractmethod
    async def look(self) -> Signal:
        """What stands there now.

        :raises UnansweredError:
        """

    @abstractmethod
    async def _watch(self) -> None:
        """Say what stands there, again and again."""

    async def start(self) -> None:
        self._task = asyncio.create_task(self._watch())
        self._task.add_done_callback(_tell_end)

    async def close(self) -> None:
        if self._task is not None:
            await end([self._task])

    def _said(self, text: bytes | None) -> None:
        """A word that is none changes nothing, and is told once."""
        word = "RUNNING" if text is None else text.decode(errors="replace").strip()
        if word not in set(Signal):
            if word != self._refused:
                logger.warning(
                    "The cluster's signal %.40r is none of %s: it is ignored",
                    word,
                    ", ".join(Signal),
                )
            self._refused = word
            return
        self._refused = None
        if self.signal != word:
            self.signal = Signal(word)
            logger.info("The cluster's signal is %s", word)
            self.on_change()


def _tell_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        logger.critical("The cluster's signal is not heard any more", exc_info=task.exception())


class ConsulSignals(Signals):
    """The signal as a key of Consul; while nobody answers the last one stands."""

    def __init__(
        self, agent: Agent, cluster: str, on_change: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(on_change)
        self._agent = agent
        self._key = f"krowlspider/{cluster}/signal"

    async def send(self, signal: Signal) -> None:
        await self._agent.call(lambda consul: consul.kv.put(self._key, str(signal)))

    async def look(self) -> Signal:
        await self._next(None)
        return self.signal

    async def _watch(self) -> None:
        index: str | None = None
        while True:
            try:
                index = await self._next(index)
            except UnansweredError:
                index = None
                await asyncio.sleep(1.0)
            # A key that is not there rings at each write of other keys.
            await asyncio.sleep(0.1)

    async def _next(self, index: str | None) -> str:
        def ask(consul: Consul) -> tuple[str, bytes | None]:
            new, found = consul.kv.get(self._key, index=index, wait=f"{_WAIT:g}s")
            return str(new), found["Value"] or b"" if found else None

        new, text = await self._agent.call(ask, wait=_WAIT if index else 0.0)
        self._said(text)
        return new


class ConsulBudget:
    """Of ``limit`` pages; the number taken is a key of Consul."""

    def __init__(self, agent: Agent, cluster: str, limit: int) -> None:
        self._agent = agent
        self._key = f"krowlspider/{cluster}/pages"
        self._limit = limit

    async def take(self, pages: int) -> int:
        return await self._move(lambda taken: max(0, min(pages, self._limit - taken)))

    async def give_back(self, pages: int) -> None:
        await self._move(lambda taken: -min(pages, taken))

    async def taken(self) -> int:
        return self._number(await self._agent.get(self._key))

    async def reset(self) -> None:
        await self._agent.call(lambda consul: consul.kv.delete(self._key))

    def _number(self, entry: Entry | None) -> int:
        try:
            return int(entry.value) if entry else 0
        except ValueError as error:
            raise UnansweredError(f"Consul's key {self._key} holds no number") from error

    async def _move(self, step: Callable[[int], int]) -> int:
        for tries in range(1, _TRIES + 1):
            entry = await self._agent.get(self._key)
            taken = self._number(entry)
            change = step(taken)
            if change == 0 or await self._put(taken + change, entry.modified if entry else 0):
                return change
            # Those who lost to the same one do not meet again.
            await asyncio.sleep(random.uniform(0, _STEP * tries))
        raise UnansweredError(f"Consul's key {self._key} changes too fast")

    async def _put(self, taken: int, modified: int) -> bool:
        cas: Step = {"Verb": "cas", "Key": self._key, "Value": coded(str(taken)), "Index": modified}
        try:
            return await self._agent.change(cas)
        except SessionGoneError as error:
            raise UnansweredError(str(error)) from error


class RedisSignals(Signals):
    """The signal as a key of one Redis, looked at each 2 s; while nobody answers the last one stands."""

    def __init__(
        self,
        client: Redis,
        cluster: str,
        on_change: Callable[[], None] = lambda: None,
        *,
        look: float = _LOOK,
    ) -> None:
        super().__init__(on_change)
        self._client = client
        self._key = f"krowlspider:{cluster}:signal"
        self._look = look

    async def send(self, signal: Signal) -> None:
        await _answer(self._client.set(self._key, str(signal)))

    async def look(self) -> Signal:
        self._said(await _answer(self._client.get(self._key)))
        return self.signal

    async def _watch(self) -> None:
        while True:
            with suppress(UnansweredError):
                await self.look()
            await asyncio.sleep(self._look)


class RedisBudget:
    """Of ``limit`` pages; the number taken is a key of one Redis."""

    def __init__(self, client: Redis, cluster: str, limit: int) -> None:
        self._client = client
        self._key = f"krowlspider:{cluster}:pages"
        self._limit = limit

    async def take(self, pages: int) -> int:
        return await self._move(pages)

    async def give_back(self, pages: int) -> None:
        await self._move(-pages)

    async def taken(self) -> int:
        found = await _answer(self._client.get(self._key))
        try:
            return int(found or 0)
        except ValueError as error:
            raise UnansweredError(f"Redis's key {self._key} holds no number") from error

    async def reset(self) -> None:
        await _answer(self._client.delete(self._key))

    async def _move(self, pages: int) -> int:
        return int(await _answer(self._client.eval(_MOVE, 1, self._key, pages, self._limit)))


class RedisBoard:
    """The counters of a static ring's nodes, in a hash of one Redis."""

    def __init__(self, client: Redis, cluster: str) -> None:
        self._client = client
        self.key = f"krowlspider:{cluster}:beats"

    async def exchange(self, node: str, counters: Counters) -> Mapping[str, Counters]:
        """:raises UnansweredError:"""
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.hset(self.key, node, json.dumps(dict(counters)))
            pipe.hgetall(self.key)
            _, shown = await _answer(pipe.execute())
        return self._read(shown)

    async def read(self) -> Mapping[str, Counters]:
        """What all have shown.

        :raises UnansweredError:
        """
        return self._read(await _answer(self._client.hgetall(self.key)))

    @staticmethod
    def _read(shown: Mapping[bytes, bytes]) -> Mapping[str, Counters]:
        read: dict[str, Counters] = {}
        for name, text in shown.items():
            with suppress(BadRecordError, UnicodeDecodeError):
                read[name.decode()] = load_counters(text)
        return read


async def _answer(call: Awaitable[Any]) -> Any:
    """:raises UnansweredError: it failed, or took too long"""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await call
    except (RedisError, OSError) as error:
        raise UnansweredError(f"Redis: {error}") from error
