"""URLs from one node's outbox to another's inbox, through a real redis-server: how many a second, and what each costs whom.

The sender is a process of its own, with its outbox in memory, and the receiver another one, which is this; the server is
a third. First all is sent, then all is taken in, then both at once. ``SINKS`` are what the receiver does with a batch:
``decode`` only reads it, ``store`` decides on each URL and queues it in a frontier on disk.

A rate of CPU is that of one core which does nothing else; the rate of both at once is by the clock, and less where three
processes have fewer than three cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import uvloop

from bench.frontier import LIMITS, RULE
from krowlspider.cluster.forwarder import Forwarder
from krowlspider.cluster.inbox import Inbox, lengths, requests_key
from krowlspider.cluster.message import Message, encode
from krowlspider.cluster.redisio import redis_client
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.frontier import Candidate, Frontier
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.store import LevelStore
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.urls.host import host_of
from tests.cluster.servers import Server, redis_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Take: TypeAlias = Callable[[list[Message]], Awaitable[None]]

MESSAGES = 200_000
# URLs a second that a core is to send, and to take in.
MIN_SENT, MIN_TAKEN = 30_000, 40_000
_SPIDER = "bench"


def _decoding(_: Path) -> Take:
    async def take(_: list[Message]) -> None:
        """The inbox has read them: nothing is left to do."""

    return take


def _storing(folder: Path) -> Take:
    """A frontier in a folder of its own takes them, as the scheduler hands them over."""
    store = LevelStore(folder / f"frontier-{time.monotonic_ns()}", create=True)
    seen = SeenSet(store, 1_000_000)
    frontier = Frontier(store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time)
    hasher = IdentityHasher(1)

    async def take(batch: list[Message]) -> None:
        hosts = [host_of(message.url) for message in batch]
        keys = hasher.keys([message.url for message in batch])
        known = frontier.knows(hosts, keys)
        frontier.queue(
            [
                Candidate(host, key, Entry(message.url, message.depth), message.priority)
                for message, host, key, is_known in zip(batch, hosts, keys, known, strict=True)
                if not is_known
            ]
        )

    return take


SINKS: dict[str, Callable[[Path], Take]] = {"decode": _decoding, "store": _storing}


def messages(count: int) -> list[Message]:
    """Links as pages have them: on 5,000 sites, with the page that named them."""
    via = "https://www.other-site.example/2026/11/some-article-on-something.html"
    return [
        Message(f"https://www.site-{n % 5000}.example/articles/{n}/the-title.html?page=2", 3, via=via, hop="L")
        for n in range(count)
    ]  # fmt: skip


class ListOutbox:
    """The cheapest outbox there is: what remains is the forwarder's own."""

    def __init__(self, found: list[bytes]) -> None:
        self._found = found
        self._at = 0
        self.empty = asyncio.Event()

    def owners(self) -> list[str]:
        return ["peer"] if self._at < len(self._found) else []

    def head(self, _: str, count: int) -> list[tuple[bytes, bytes]]:
        return [(b"", message) for message in self._found[self._at : self._at + count]]

    def remove(self, _: str, keys: Sequence[bytes]) -> None:
        self._at += len(keys)
        if not self.owners():
            self.empty.set()


async def _send(url: str, count: int) -> dict[str, float]:
    """CPU microseconds of a message: to encode, and to send."""
    found = messages(count)
    begun = time.process_time()
    encoded = [encode(message) for message in found]
    made = time.process_time()
    client = redis_client(url)
    outbox = ListOutbox(encoded)
    forwarder = Forwarder(outbox, lambda _: client, requests_key(_SPIDER), inbox_max=10**9)
    task = asyncio.create_task(forwarder.run())
    await outbox.empty.wait()
    sent = time.process_time()
    task.cancel()
    return {"encode_us": (made - begun) / count * 1e6, "send_us": (sent - made) / count * 1e6}


def _sender(url: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.forwarding", url, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def _take_all(url: str, count: int, take: Take) -> dict[str, float]:
    """CPU microseconds of a message, and messages a second from the first batch on."""
    left, first, later, done = count, 0.0, 0, asyncio.Event()

    async def counted(batch: list[Message]) -> None:
        nonlocal left, first, later
        await take(batch)
        later += len(batch) if first else 0
        first = first or time.monotonic()
        left -= len(batch)
        if left <= 0:
            done.set()

    client = redis_client(url)
    begun = time.process_time()
    task = asyncio.create_task(Inbox(client, _SPIDER, "n", counted).run())
    await done.wait()
    rate = later / (time.monotonic() - first)
    # The last turn is over when it is removed from Redis.
    while (await lengths(client, _SPIDER, "n")).processing:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    spent = time.process_time() - begun
    task.cancel()
    return {"take_us": spent / count * 1e6, "rate": rate}


def _server_us(server: Server, count: int, before: float) -> float:
    return (_cpu(server) - before) / count * 1e6


def _cpu(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run(server: Server, count: int, sink: str, folder: Path) -> dict[str, float]:
    before = _cpu(server)
    output, _ = _sender(server.url, count).communicate()
    figures: dict[str, float] = {
        **json.loads(output),
        "server_in_us": _server_us(server, count, before),
    }
    before = _cpu(server)
    taken = uvloop.run(_take_all(server.url, count, SINKS[sink](folder)))
    figures |= {"take_us": taken["take_us"], "server_out_us": _server_us(server, count, before)}
    with _sender(server.url, count):
        both = uvloop.run(_take_all(server.url, count, SINKS[sink](folder)))
        figures["both_rate"] = both["rate"]
    return figures


def measure(
    rounds: int, sink: str = "decode", count: int = MESSAGES, scratch: Path | None = None
) -> dict[str, Any]:
    """Medians of so many rounds."""
    with (
        tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as folder,
        redis_server(Path(folder) / "redis", "--appendfsync", "everysec") as server,
    ):
        found = [_run(server, count, sink, Path(folder)) for _ in range(rounds)]
    medians = {name: round(statistics.median(run[name] for run in found), 2) for name in found[0]}
    return {"messages": count, "sink": sink, "rounds": rounds, **medians}


def table(figures: dict[str, Any]) -> str:
    send, take = figures["encode_us"] + figures["send_us"], figures["take_us"]
    lines = [
        f"{figures['messages']:,} messages, sink: {figures['sink']}, median of {figures['rounds']} rounds",
        f"encode {figures['encode_us']} µs, send {figures['send_us']} µs: {_verdict(send, MIN_SENT)}",
        f"take {take} µs: {_verdict(take, MIN_TAKEN)}",
        f"redis-server {figures['server_in_us']} µs in, {figures['server_out_us']} µs out",
        f"both at once, by the clock: {figures['both_rate']:,.0f} a second",
    ]
    return "\n".join(lines)


def _verdict(us: float, least: int) -> str:
    rate = 1e6 / us
    kept = "kept" if rate >= least else "MISSED"
    return f"{rate:,.0f} a second of CPU, at least {least:,}: {kept}"


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_send(sys.argv[1], int(sys.argv[2])))))
