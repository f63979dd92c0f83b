"""Measure hosts from one node's frontier to another's, through a real redis-server: time and CPU.

Sender and receiver are processes of their own, each with a frontier on disk. The sender's is filled
once and copied for each run. The hand-over gets a ``share`` of the event loop on both sides. In a
``busy`` run both loops have endless other work too, as in a crawl. ``kept`` is the share of the
thread's CPU time that goes to this work.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from bench.frontier import LIMITS, RULE
from krowlspider.cluster.transport.inbox import Inbox
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.extensions.gc_tuning import collecting_less
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.moves.departure import Departures
from krowlspider.frontier.moves.transfer import Arrivals
from krowlspider.frontier.robots.fetches import RobotsFetches
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.nodes.receiver import HandoverReceiver
from krowlspider.job.nodes.sender import HandoverSender
from krowlspider.urls.canonical import IdentityHasher
from tests.cluster.servers import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOSTS, URLS = 100_000, 2_000_000
# Share of the loop, and whether it has other work.
RUNS = ((1.0, False), (0.25, False), (0.25, True))
# Least share of its rate that a crawl keeps.
MIN_KEPT = 0.7
_SPIDER = "bench"
_HOSTS_A_BATCH = 5
# Seconds between two measurements of the loop lag, and CPU seconds of one piece of other work.
_TICK = 0.005
_WORK = 0.001


class Node:
    """A frontier in a folder, with the parts of a hand-over."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.store = LevelStore(folder / "db", create=create)
        seen = SeenSet(self.store, 1_000_000, file=FilterFile(folder / "seen"))
        self.frontier = Frontier(
            self.store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time
        )
        self.hasher = IdentityHasher(1)
        robots = RobotsFetches(
            self.frontier,
            agent="krowlspider",
            ttl=86_400.0,
            retries=2,
            throttling=5,
            wall=time.time,
        )
        self.departures = Departures(
            self.frontier, self.store, robots, node="here", identify=self._identify
        )
        self.arrivals = Arrivals(
            self.frontier, self.store, robots.cache, self._identify, url_max=2048
        )

    def _identify(self, entry: Entry) -> bytes:
        return self.hasher.key(entry.url)

    async def durable(self) -> None:
        await asyncio.to_thread(self.store.batch(sync=True).write)


def fill(folder: Path, hosts: int, urls: int) -> None:
    folder.mkdir()
    node = Node(folder, create=True)
    for at in range(0, hosts, _HOSTS_A_BATCH):
        names = [f"www.site-{host}.example" for host in range(at, at + _HOSTS_A_BATCH)]
        node.frontier.queue(
            [
                Candidate(name, node.hasher.key(url), Entry(url, 3))
                for name in names
                for url in (
                    f"https://{name}/section/{page}/the-title.html" for page in range(urls // hosts)
                )
            ]
        )
    node.frontier.close()


class Meter:
    """Measures a loop: ``stall`` is its longest lag in seconds, ``done`` counts pieces of other
    work."""

    def __init__(self) -> None:
        self.stall = 0.0
        self.done = 0

    async def watch(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(_TICK)
            self.stall = max(self.stall, time.monotonic() - begun - _TICK)

    async def work(self) -> None:
        while True:
            end = time.thread_time() + _WORK
            while time.thread_time() < end:
                pass
            self.done += 1
            await asyncio.sleep(0)

    @asynccontextmanager
    async def at_work(self, *, busy: bool) -> AsyncIterator[dict[str, float]]:
        """Measure the block; the yielded figures are filled when it ends."""
        tasks = [asyncio.create_task(self.watch())]
        if busy:
            tasks.append(asyncio.create_task(self.work()))
        figures: dict[str, float] = {}
        cpu, thread = time.process_time(), time.thread_time()
        try:
            yield figures
        finally:
            figures["cpu"] = round(time.process_time() - cpu - self.done * _WORK, 1)
            figures["stall_ms"] = round(1000 * self.stall)
            if busy:
                figures["kept"] = round(self.done * _WORK / (time.thread_time() - thread), 3)
            for task in tasks:
                task.cancel()


async def _send(url: str, folder: Path, share: float, *, busy: bool) -> None:
    node, client = Node(folder), redis_client(url)
    sender = HandoverSender(node.departures, lambda _: client, _SPIDER, share=lambda: share)
    async with Meter().at_work(busy=busy) as figures:
        begun = time.monotonic()
        await sender.send_all(lambda _: "there", [(0, 2**64 - 1)])
        figures["seconds"] = time.monotonic() - begun
    received = (await client.info("stats"))["total_net_input_bytes"]
    figures |= {"again": sender.stats.again, "mb": round(received / 1e6)}
    print(json.dumps(figures))


async def _receive(url: str, folder: Path, share: float, *, busy: bool) -> None:
    """Receive hosts until a line comes on standard input."""

    async def no_messages(_: list[Any]) -> None:
        """Ignore messages: none are sent."""

    folder.mkdir()
    node, client = Node(folder, create=True), redis_client(url)
    receiver = HandoverReceiver(node.arrivals, client, _SPIDER, node.durable, share=lambda: share)
    inbox = Inbox(client, _SPIDER, no_messages, take_hosts=receiver.take)
    async with Meter().at_work(busy=busy) as figures:
        print("ready", flush=True)
        task = asyncio.create_task(inbox.run())
        await asyncio.to_thread(sys.stdin.readline)
        task.cancel()
    print(json.dumps({**figures, "queued": node.frontier.queued}))


def _process(what: str, url: str, folder: Path, run: tuple[float, bool]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.handover", what, url, folder, *map(str, run)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _run(url: str, folder: Path, run: tuple[float, bool], urls: int) -> dict[str, Any]:
    """Return the figures of one run.

    :raises RuntimeError: some URLs did not arrive
    """
    os.sync()
    with _process("receive", url, folder / "there", run) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        with _process("send", url, folder / "here", run) as sender:
            output, _ = sender.communicate()
            sent = json.loads(output)
        output, _ = receiver.communicate("end\n")
        received = json.loads(output)
    if received.pop("queued") != urls:
        raise RuntimeError("some URLs did not arrive")
    seconds = sent.pop("seconds")
    return {
        "share": run[0],
        "busy": run[1],
        "seconds": round(seconds, 1),
        "sender": sent,
        "receiver": received,
    }


def measure(
    hosts: int = HOSTS, urls: int = URLS, scratch: Path | None = None
) -> list[dict[str, Any]]:
    """Return a row for each of RUNS."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        folder = Path(name)
        fill(folder / "filled", hosts, urls)
        for run in RUNS:
            shutil.copytree(folder / "filled", folder / "here")
            with redis_server(folder / "redis", "--appendfsync", "everysec") as server:
                rows.append({"hosts": hosts, "urls": urls, **_run(server.url, folder, run, urls)})
            for part in ("here", "there", "redis"):
                shutil.rmtree(folder / part)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    megabytes = first["sender"]["mb"]
    lines = [f"{first['hosts']:,} hosts with {first['urls']:,} URLs, {megabytes} MB into Redis"]
    for row in rows:
        seconds, sides = row["seconds"], (row["sender"], row["receiver"])
        lines.append(
            f"share {row['share']}{', busy' if row['busy'] else ''}: {seconds} s,"
            f" {row['hosts'] / seconds:,.0f} hosts/s, {row['urls'] / seconds:,.0f} URLs/s;"
            " CPU {} s and {} s, longest stall {} ms and {} ms, sent again {}".format(
                *(side["cpu"] for side in sides),
                *(side["stall_ms"] for side in sides),
                row["sender"]["again"],
            )
        )
        if row["busy"]:
            kept = min(side["kept"] for side in sides)
            verdict = "kept" if kept >= MIN_KEPT else "MISSED"
            lines.append(
                f"  other work kept {row['sender']['kept']:.0%} and {row['receiver']['kept']:.0%}"
                f" of the CPU meanwhile, at least {MIN_KEPT:.0%}: {verdict}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    what, at, path, share, is_busy = sys.argv[1:]
    side = {"send": _send, "receive": _receive}[what]
    # As a crawl does while its engine runs.
    with collecting_less():
        uvloop.run(side(at, Path(path), float(share), busy=is_busy == "True"))
