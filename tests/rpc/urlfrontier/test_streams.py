"""Streams of the service to clients that are slow, or select little of much."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from itertools import repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.rpc import urlfrontier
from krowlspider.rpc.grpc_server import GrpcServer
from krowlspider.rpc.options import Options
from krowlspider.rpc.urlfrontier.crawl import ServedCrawl
from krowlspider.rpc.urlfrontier.records import Item, Phase
from tests.rpc.urlfrontier.served import BEGIN, Clock, discovered, opened

grpc = pytest.importorskip("grpc.aio") and pytest.importorskip("grpc")
pb = pytest.importorskip("krowlspider.rpc.generated.urlfrontier_pb2")
pb_grpc = pytest.importorskip("krowlspider.rpc.generated.urlfrontier_pb2_grpc")
sending = pytest.importorskip("krowlspider.rpc.sending")
streams = pytest.importorskip("krowlspider.rpc.urlfrontier.streams")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

# Together more than gRPC has under way to a client.
COUNT, LONG = 900, "x" * 15_000
DEADLINE = 30.0


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[SimpleNamespace]:
    crawls = opened(folder, Clock())
    server = GrpcServer(Options("127.0.0.1:0"))
    service = urlfrontier.add(server, crawls)
    port = await server.start()
    service.start("here")
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = pb_grpc.URLFrontierStub(channel)
            yield SimpleNamespace(stub=stub, crawls=crawls, counts=server.counts)
    finally:
        service.end_streams()
        await server.stop()
        await service.stop()


def reports() -> Iterator[Any]:
    for number in range(COUNT):
        info = pb.URLInfo(url=f"http://a.example/{number}")
        # The answer to it is as long.
        yield pb.URLItem(discovered=pb.DiscoveredURLItem(info=info), ID=LONG)


CALLS: dict[str, Callable[[Any], Any]] = {
    "list": lambda stub: stub.ListURLs(pb.ListUrlParams(size=COUNT), timeout=DEADLINE),
    "get": lambda stub: stub.GetURLs(pb.GetParams(crawlID="DEFAULT"), timeout=DEADLINE),
    "put": lambda stub: stub.PutURLs(reports(), timeout=DEADLINE),
}


async def read_to_end(call: Any, messages: list[Any]) -> None:
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)


async def check_a_silent_client(folder: Path, name: str) -> None:
    async with serving(folder) as served:
        if name != "put":
            urls = (f"http://a.example/{number}" for number in range(COUNT))
            served.crawls.begun("").put(discovered(*urls, long=LONG))
        call = CALLS[name](served.stub)
        await call.wait_for_connection()
        for _ in range(300):
            if served.counts["silent"]:
                break
            await asyncio.sleep(0.05)
        messages: list[Any] = []
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await read_to_end(call, messages)
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, ended.value.details()
        assert "no message was taken for 0.3 s: " in ended.value.details()
        assert 0 < len(messages) < COUNT


@pytest.mark.parametrize("name", CALLS)
def test_the_stream_of_a_client_that_reads_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Sixteen of them would keep all others out."""
    monkeypatch.setattr(sending, "_PATIENCE", 0.3)
    asyncio.run(check_a_silent_client(tmp_path, name))


async def check_an_end_with_much_to_read() -> None:
    async def endless() -> AsyncIterator[Any]:
        while True:
            yield pb.URLItem(ID="an item")
            await asyncio.sleep(0)

    async def put(given: list[Any]) -> list[Any]:
        return given

    budget = streams.Budget()
    found = streams.acks(endless(), put, budget)
    await anext(found)
    (inbound,) = budget.streams
    for _ in range(10 * streams.MESSAGES_MAX):
        await asyncio.sleep(0)
    assert inbound._queue.full()
    async with asyncio.timeout(5):
        await found.aclose()
    assert not budget.streams
    assert not budget._used


def test_a_stream_ends_though_much_of_it_is_not_read() -> None:
    """As its client reads nothing, or is gone. It would keep its place for ever."""
    asyncio.run(check_an_end_with_much_to_read())


async def check_a_slow_client(folder: Path, rate: float) -> None:
    async with serving(folder) as served:
        urls = (f"http://a.example/{number}" for number in range(COUNT))
        served.crawls.begun("").put(discovered(*urls, long=LONG))
        call = served.stub.ListURLs(pb.ListUrlParams(size=COUNT), timeout=2 * DEADLINE)
        messages = size = 0
        begun = time.monotonic()
        while (message := await call.read()) is not grpc.aio.EOF:
            messages, size = messages + 1, size + message.ByteSize()
            await asyncio.sleep(begun + size / rate - time.monotonic())
        assert messages == COUNT
        assert not served.counts["silent"]


@pytest.mark.slow
def test_the_stream_of_a_slow_client_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 10 KB a second, 75 times as fast here."""
    monkeypatch.setattr(sending, "_PATIENCE", sending._PATIENCE / 75)
    asyncio.run(check_a_slow_client(tmp_path, 750_000))


async def check_a_list_of_nothing(folder: Path, is_over: Callable[[], bool]) -> None:
    async with serving(folder) as served:
        served.crawls.begun("").put(discovered("http://a.example/"))
        asked = pb.ListUrlParams(filter="nowhere", size=1)
        long = asyncio.create_task(served.stub.ListURLs(asked, timeout=DEADLINE).read())
        await asyncio.sleep(0.1)
        found = await served.stub.CountURLs(pb.CountUrlParams(key="a.example"), timeout=DEADLINE)
        assert found.value == 1
        assert not is_over()
        long.cancel()


def test_a_list_that_selects_nothing_keeps_no_call_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = Item("http://b.example/", Phase.DONE, BEGIN)
    items, seen = ServedCrawl.items, []

    def many(crawl: ServedCrawl, name: str = "") -> Iterator[tuple[str, Item]]:
        if name:
            yield from items(crawl, name)
            return
        yield from repeat(("b.example", item), 5_000_000)
        seen.append("all")

    monkeypatch.setattr(ServedCrawl, "items", many)
    asyncio.run(check_a_list_of_nothing(tmp_path, lambda: bool(seen)))
