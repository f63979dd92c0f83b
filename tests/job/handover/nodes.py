"""Helpers for tests of the hand-over: frontiers on disk, and both sides as processes.

``python -m tests.job.handover.nodes send URL FOLDER`` hands over all hosts of the frontier in
FOLDER/here to the node ``there``, and prints a line for each of its steps. ``receive URL FOLDER
[STEP]`` is that node: it takes the hosts into FOLDER/there. When it comes to STEP for the second
time, it prints "here" and does nothing more.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.transport.inbox import Inbox
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore, records
from krowlspider.job.nodes.receiver import HandoverReceiver
from krowlspider.job.nodes.sender import HandoverSender
from tests.cluster.forwarding import QUICK_TIME, SPIDER, running
from tests.frontier.conftest import LIMITS, World
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redis.asyncio import Redis

    from krowlspider.frontier.moves.chunks import Chunk
    from krowlspider.frontier.moves.departure import Departure

# The steps of a receiver, in order.
STEPS = ("asked", "stored", "durable", "acknowledged")
_KINDS = (
    schema.QUEUE,
    schema.SEEN,
    schema.ROBOTS,
    schema.POISON,
    schema.DEFERRED,
    schema.DUE,
)

# The range of all positions in a ring.
EVERYWHERE = [(0, 2**64 - 1)]


def frontier(folder: Path, node: str) -> World:
    folder.mkdir(exist_ok=True)
    return World(lambda: LevelStore(folder / node, create=True), limits=LIMITS, node=node)


def content(world: World) -> dict[bytes, bytes]:
    """Return all entries of hosts on disk, by key."""
    return dict(item for kind in _KINDS for item in world.store.items(kind))


def urls(world: World) -> list[str]:
    """Return all URLs queued on disk."""
    names = [name for name, _ in records(world.store)]
    return sorted(url for name in names for url in world.queued(name))


def pages(hosts: int, each: int = 3) -> list[str]:
    return sorted(f"http://h{host}.test/{page}" for host in range(hosts) for page in range(each))


def sender_of(
    world: World, client_for: Callable[[str], Redis | None], **options: Any
) -> HandoverSender:
    options = {"share": lambda: 1.0, "time": QUICK_TIME, **options}
    return HandoverSender(world.departures, client_for, SPIDER, **options)


class WatchedArrivals:
    """A frontier's arrivals. ``taken`` is called with the number of chunks after each."""

    def __init__(self, world: World, taken: Callable[[int], object]) -> None:
        self._world = world
        self._taken = taken
        self.count = 0

    def take(self, chunk: Chunk) -> int:
        arrived = self._world.arrivals.take(chunk)
        self.count += 1
        self._taken(self.count)
        return arrived


@asynccontextmanager
async def receiving(
    world: World, client: Redis, taken: Callable[[int], object] = lambda _: None, **options: Any
) -> AsyncIterator[HandoverReceiver]:
    """Run the receiver of a frontier's node."""

    async def make_durable() -> None:
        world.store.batch(sync=True).write()

    options = {"share": lambda: 1.0, "make_durable": make_durable, **options}
    receiver = HandoverReceiver(WatchedArrivals(world, taken), client, SPIDER, **options)
    try:
        async with running(inbox(world, client, receiver)):
            yield receiver
    finally:
        await receiver.close()


def inbox(world: World, client: Redis, receiver: HandoverReceiver) -> Inbox:
    return Inbox(client, SPIDER, _no_messages, take_hosts=receiver.take, poll=0.01)


async def _no_messages(found: list[Any]) -> None:
    raise AssertionError(found)


@contextmanager
def process(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run this module as a process; kill it at the end."""
    command = [sys.executable, "-m", "tests.job.handover.nodes", *map(str, arguments)]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


class _PrintingDepartures:
    """A frontier's departures, which print each step."""

    def __init__(self, world: World) -> None:
        self._all = world.departures
        self.kept = self._all.kept
        self.moving = self._all.moving

    def begin(self, name: str) -> _PrintingDeparture:
        departure = _PrintingDeparture(self._all.begin(name))
        print("begin", flush=True)
        return departure


class _PrintingDeparture:
    def __init__(self, departure: Departure) -> None:
        self._departure = departure
        self.transfer = departure.transfer
        self.abort = departure.abort
        self.skip = departure.skip
        self.begin_again = departure.begin_again

    def chunk(self, arrived: int) -> Chunk | None:
        chunk = self._departure.chunk(arrived)
        print("chunk", flush=True)
        return chunk

    def end(self) -> Iterator[None]:
        for _ in self._departure.end():
            print("end", flush=True)
            yield


async def _send(url: str, folder: Path) -> None:
    world = frontier(folder, "here")
    client = redis_client(url)
    sender = HandoverSender(_PrintingDepartures(world), lambda _: client, SPIDER)
    await sender.send_all(lambda _: "there", EVERYWHERE)
    world.store.close()
    print("all", flush=True)


class _StopAt:
    """Stops the process when the step ``last`` comes for the second time."""

    def __init__(self, last: str) -> None:
        self._last = last
        self._count = 0

    def __call__(self, step: str) -> None:
        self._count += step == self._last
        if self._count == 2:
            print("here", flush=True)
            signal.pause()


async def _receive(url: str, folder: Path, last: str = "") -> None:
    world = frontier(folder, "there")
    reach = _StopAt(last)
    client = redis_client(url)

    async def make_durable() -> None:
        reach("stored")
        world.store.batch(sync=True).write()
        reach("durable")

    class Arrivals(WatchedArrivals):
        def take(self, chunk: Chunk) -> int:
            reach("asked")
            return super().take(chunk)

    class Receiver(HandoverReceiver):
        async def take(self, chunks: list[bytes]) -> list[str | None]:
            reasons = await super().take(chunks)
            reach("acknowledged")
            return reasons

    receiver = Receiver(Arrivals(world, lambda _: None), client, SPIDER, make_durable)
    print("begun", flush=True)
    await inbox(world, client, receiver).run()


if __name__ == "__main__":
    what, url, path, *rest = sys.argv[1:]
    main = {"send": _send, "receive": _receive}[what]
    asyncio.run(main(url, Path(path), *rest))
