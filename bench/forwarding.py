"""Measure URLs from one node's outbox to another's disk, through a real redis-server: their rate,
and their CPU on each side.

Sender and server are processes of their own; the sender's outbox is on disk. The receiver is one of
``SINKS``. ``decode`` only reads the batches, after all were sent, and acknowledges all. ``node`` is
a real node on a core of its own, alone in its ring and paused, so that it fetches nothing. It
decides on each URL and queues it durably while the sender sends.

A rate per CPU is that of one core which does nothing else. The rate of both at once is by the
clock: it is less if the three processes have fewer than three cores.
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
from typing import TYPE_CHECKING, Any

import redis
import uvloop

from krowlspider.cluster.transport.forwarder import Forwarder, Streams
from krowlspider.cluster.transport.inbox import Inbox, lengths, requests_key
from krowlspider.cluster.transport.message import (
    Acknowledgement,
    Mark,
    Message,
    encode,
    encode_mark,
)
from krowlspider.cluster.transport.redis_connection import redis_client
from krowlspider.extensions.gc_tuning import collecting_less
from krowlspider.frontier.outbox import Outbox
from krowlspider.frontier.store.store import LevelStore
from krowlspider.urls.canonical import host_of
from tests.cluster.register_nodes import put, supervisor_register
from tests.cluster.servers import Server, redis_server
from tests.support.crawling import Crawl, frontier_view, write_seeds

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 200_000
_SPIDER, _FINDER, _PEER = "broad", "finder", "peer"
_SENT, _ACKNOWLEDGED = "sent", "acknowledged"
_DECODE, _NODE = "decode", "node"
# Least URLs a second of one core: sent, and received by each sink.
MIN_SENT = 30_000
MIN_TAKEN = {_DECODE: 40_000, _NODE: 30_000}
SINKS = tuple(MIN_TAKEN)
# Foreign links that one batch puts into the outbox: a page's.
_LINKS = 20
_TIMEOUT = 120.0


def messages(count: int) -> list[Message]:
    """Make messages of links to 5,000 sites, all found on one page."""
    via = "https://www.other-site.example/2026/11/some-article-on-something.html"
    title = "the-title.html?page=2"
    return [
        Message(f"https://www.site-{n % 5000}.example/articles/{n}/{title}", 3, via=via, hop="L")
        for n in range(count)
    ]


async def _send(url: str, count: int, folder: Path, until: str) -> dict[str, float]:
    """Return CPU microseconds of a message: to put it into an outbox on disk, and to send it.

    ``until`` it is ``acknowledged``, and leaves the outbox, or ``sent``: nobody reads it yet.
    """
    found = messages(count)
    store = LevelStore(folder / f"outbox-{time.monotonic_ns()}", create=True)
    outbox = Outbox(store, 0, {})
    begun = time.process_time()
    for at in range(0, count, _LINKS):
        batch = store.batch()
        for message in found[at : at + _LINKS]:
            outbox.put(_PEER, host_of(message.url), encode(message), batch)
        batch.write()
    made = time.process_time()
    client = redis_client(url)
    streams = Streams(outbox, _FINDER, _SPIDER)
    forwarder = Forwarder(streams, lambda _: client, requests_key(_SPIDER), inbox_max=10**9)
    task = asyncio.create_task(forwarder.run())
    while outbox.depth if until == _ACKNOWLEDGED else forwarder.stats.sent < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    sent = time.process_time()
    task.cancel()
    store.close()
    return {"put_us": (made - begun) / count * 1e6, "send_us": (sent - made) / count * 1e6}


def _sender(url: str, count: int, folder: Path, until: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.forwarding", url, str(count), str(folder), until]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def _take_all(url: str, count: int) -> dict[str, float]:
    """Return CPU microseconds of a message, and messages a second after the first batch."""
    left, first, later, done = count, 0.0, 0, asyncio.Event()

    async def counted(batch: list[Message]) -> None:
        nonlocal left, first, later
        later += len(batch) if first else 0
        first = first or time.monotonic()
        left -= len(batch)
        if left <= 0:
            done.set()

    async def acknowledge(marks: list[Mark]) -> dict[str, bytes]:
        if not marks:
            return {}
        return {_FINDER: encode_mark(Acknowledgement(marks[-1].stream, marks[-1].last))}

    client = redis_client(url)
    begun = time.process_time()
    inbox = Inbox(client, _SPIDER, counted, make_durable=acknowledge)
    task = asyncio.create_task(inbox.run())
    await done.wait()
    rate = later / (time.monotonic() - first)
    # The last batch is done when it is removed from Redis.
    while (await lengths(client, _SPIDER)).requests:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    spent = time.process_time() - begun
    task.cancel()
    return {"take_us": spent / count * 1e6, "rate": rate}


def _server_us(server: Server, count: int, before: float) -> float:
    return (_cpu(server) - before) / count * 1e6


def _cpu(server: Server | Crawl) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run(server: Server, count: int, folder: Path) -> dict[str, float]:
    before = _cpu(server)
    _sender(server.url, count, folder, _SENT).communicate()
    figures = {"server_in_us": _server_us(server, count, before)}
    with collecting_less():
        before = _cpu(server)
        taken = uvloop.run(_take_all(server.url, count))
        figures |= {"take_us": taken["take_us"], "server_out_us": _server_us(server, count, before)}
        sender = _sender(server.url, count, folder, _ACKNOWLEDGED)
        both = uvloop.run(_take_all(server.url, count))
        output, _ = sender.communicate(timeout=_TIMEOUT)
        figures["both_rate"] = both["rate"]
    return {**json.loads(output), **figures}


def _run_node(server: Server, count: int, folder: Path) -> dict[str, float]:
    """Measure a node that receives while the sender sends."""
    with (
        redis.Redis.from_url(server.url) as client,
        tempfile.TemporaryDirectory() as name,
        supervisor_register(Path(name)) as register,
    ):
        for key, value in (("founded", "1"), ("signal", "PAUSED")):
            put(register, "krowlspider", key, value)
        crawl = Crawl(
            folder / f"job-{time.monotonic_ns()}",
            arguments={"seeds": write_seeds(folder / "seeds.txt", ["http://seed.example/"])},
            settings={
                "KROWL_CONSUL": register.url,
                "REDIS_URL": server.url,
                "KROWL_NODE_ID": _PEER,
            },
            prefix=["taskset", "-c", "0"],
            feed=False,
        ).start()
        try:
            crawl.wait_until(lambda: "paused by a person" in crawl.log)
            os.sched_setaffinity(server.process.pid, {1})
            before, server_before = _cpu(crawl), _cpu(server)
            sender = _sender(server.url, count, folder, _ACKNOWLEDGED)
            os.sched_setaffinity(sender.pid, {1})
            waiting: Callable[[], int] = lambda: client.llen(requests_key(_SPIDER))
            crawl.wait_until(lambda: waiting() > 0)
            begun = time.monotonic()
            output, _ = sender.communicate(timeout=_TIMEOUT)
            crawl.wait_until(lambda: waiting() == 0)
            rate = count / (time.monotonic() - begun)
            took = (_cpu(crawl) - before) / count * 1e6
            server_us = _server_us(server, count, server_before)
        finally:
            crawl.interrupt()
    taken = crawl.stats["krowl/cluster/taken_count"]
    assert taken == count == frontier_view(crawl.jobdir)["queued"] - 1, (taken, crawl.log)
    return {**json.loads(output), "take_us": took, "server_us": server_us, "both_rate": rate}


def measure(
    rounds: int, sink: str = _DECODE, count: int = MESSAGES, scratch: Path | None = None
) -> dict[str, Any]:
    """Return the medians of ``rounds`` rounds."""
    with (
        tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as folder,
        redis_server(Path(folder) / "redis", "--appendfsync", "everysec") as server,
    ):
        run = _run_node if sink == _NODE else _run
        found = [run(server, count, Path(folder)) for _ in range(rounds)]
    medians = {name: round(statistics.median(each[name] for each in found), 2) for name in found[0]}
    return {"messages": count, "sink": sink, "rounds": rounds, **medians}


def table(figures: dict[str, Any]) -> str:
    send, take = figures["put_us"] + figures["send_us"], figures["take_us"]
    server = {name: value for name, value in figures.items() if name.startswith("server")}
    lines = [
        (
            f"{figures['messages']:,} messages, sink: {figures['sink']},"
            f" median of {figures['rounds']} rounds"
        ),
        (
            f"put into the outbox {figures['put_us']} µs, send {figures['send_us']} µs:"
            f" {_verdict(send, MIN_SENT)}"
        ),
        f"take {take} µs: {_verdict(take, MIN_TAKEN[figures['sink']])}",
        f"redis-server: {', '.join(f'{name} {value} µs' for name, value in server.items())}",
        f"both at once, by the clock: {figures['both_rate']:,.0f} a second",
    ]
    return "\n".join(lines)


def _verdict(us: float, least: int) -> str:
    rate = 1e6 / us
    kept = "kept" if rate >= least else "MISSED"
    return f"{rate:,.0f} a second of CPU, at least {least:,}: {kept}"


if __name__ == "__main__":
    with collecting_less():
        url, count, folder, until = sys.argv[1:]
        print(json.dumps(uvloop.run(_send(url, int(count), Path(folder), until))))
