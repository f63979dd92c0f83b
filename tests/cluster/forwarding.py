"""Helpers for tests of the forwarding: an outbox in memory, a sink for messages, and a consumer
that can be killed.

``python -m tests.cluster.forwarding URL FILE [before|after]`` is that consumer, which
takes the messages of spider ``s`` and appends their URLs to FILE, synced. With a third argument it
prints "here" at its first batch, before or after it has stored it, and then does nothing more.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvloop

from krowlspider.cluster.transport.inbox import Inbox
from krowlspider.cluster.transport.message import Message, encode
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.job.nodes.receiver import Time
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from redis.asyncio import Redis

SPIDER = "s"
# Seconds; far above what any step takes.
_BOUND = 30.0
# Seconds that the loop may be late on a machine that does other things: a call that blocked would
# take 2.
LATE = 1.0
# Ends a line of the consumer's file.
_WHOLE = " ."


def drive(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main

    uvloop.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _BOUND
    while not holds():
        assert time.monotonic() < end, "it never held"
        await asyncio.sleep(0.01)


def urls(count: int, start: int = 0) -> list[str]:
    return [f"https://site-{n % 7}.test/page/{n}" for n in range(start, start + count)]


def messages(count: int, start: int = 0) -> list[bytes]:
    return [encode(Message(url)) for url in urls(count, start)]


def quick_clock() -> float:
    """A clock whose minute takes a second, so that a peer in trouble is soon asked again."""
    return time.monotonic() * 60


def quick_time(times: float) -> Time:
    """Return a time that passes so many times faster."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / times)

    return Time(lambda: time.monotonic() * times, sleep)


QUICK_TIME = quick_time(30)


class MemoryOutbox:
    """An outbox that is lost with the process, as a test may read and fill it."""

    def __init__(self) -> None:
        self.queues: dict[str, dict[int, bytes]] = {}
        self._next = 0

    def put(self, owner: str, found: Sequence[bytes]) -> None:
        for message in found:
            self.queues.setdefault(owner, {})[self._next] = message
            self._next += 1

    def depth(self, owner: str) -> int:
        return len(self.queues.get(owner, ()))

    def owners(self) -> list[str]:
        return [owner for owner, queue in self.queues.items() if queue]

    def after(self, owner: str, sequence: int, most: int) -> list[tuple[int, bytes]]:
        queue = self.queues.get(owner, {})
        return [item for item in queue.items() if item[0] > sequence][:most]

    def note_sent(self, owner: str, sequence: int) -> None:
        """Do nothing: it has no limit."""

    def acknowledge(self, owner: str, last: int) -> Iterator[int]:
        queue = self.queues.get(owner, {})
        gone = [sequence for sequence in queue if sequence <= last]
        for sequence in gone:
            del queue[sequence]
        yield len(gone)


class Sink:
    """Takes messages; while ``gate`` is not set, it holds the batch that it has been given."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.messages: list[Message] = []
        self.held: list[list[Message]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def take(self, batch: list[Message]) -> None:
        self.held.append(batch)
        await self.gate.wait()
        self.messages += batch
        self.urls += [message.url for message in batch]


@asynccontextmanager
async def clients(*all_urls: str, timeout: float = 2.0) -> AsyncIterator[list[Redis]]:
    made = [redis_client(url, timeout=timeout) for url in all_urls]
    try:
        yield made
    finally:
        for each in made:
            await each.aclose()


@asynccontextmanager
async def running(worker: Any) -> AsyncIterator[None]:
    """A forwarder's or inbox's ``run``, under way."""
    task = asyncio.create_task(worker.run())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def lag() -> AsyncIterator[list[float]]:
    """Seconds by which the event loop was late, each 5 ms, the worst first at the end."""
    found: list[float] = []

    async def tick() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.005)
            found.append(time.monotonic() - begun - 0.005)

    task = asyncio.create_task(tick())
    try:
        yield found
    finally:
        task.cancel()
        found.sort(reverse=True)


@contextmanager
def consumer(url: str, file: Path, stop: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The consumer of this module in a process of its own, killed at the end; with ``stop``, it
    stands there already."""
    command = [sys.executable, "-m", "tests.cluster.forwarding", url, str(file), stop]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        if stop:
            assert process.stdout.readline() == b"here\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def stored(file: Path) -> list[str]:
    """What consumers have written, less the line that one may have been killed in."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.removesuffix(_WHOLE) for line in lines if line.endswith(_WHOLE)]


async def _consume(url: str, path: str, stop: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def here() -> None:
        print("here", flush=True)
        await asyncio.Event().wait()

    async def take(batch: list[Message]) -> None:
        if stop == "before":
            await here()
        os.write(file, "".join(f"\n{message.url}{_WHOLE}" for message in batch).encode())

    async def settle(_: object) -> dict[str, bytes]:
        os.fsync(file)
        if stop == "after":
            await here()
        return {}

    await Inbox(redis_client(url), SPIDER, take, make_durable=settle, poll=0.01).run()


if __name__ == "__main__":
    asyncio.run(_consume(*sys.argv[1:4]))
