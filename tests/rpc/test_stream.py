"""A stream of results to clients that are slow, or ask for what is not there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.rpc.grpc_server import GrpcServer
from krowlspider.rpc.options import Options
from tests.archive.captures import capture, written

grpc = pytest.importorskip("grpc.aio") and pytest.importorskip("grpc")
pb = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2")
pb_grpc = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2_grpc")
control = pytest.importorskip("krowlspider.rpc.control")
sending = pytest.importorskip("krowlspider.rpc.sending")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

# Together more than gRPC has under way to a client.
COUNT, LONG = 1000, "x" * 16_000


@asynccontextmanager
async def serving(folders: Mapping[str, Path]) -> AsyncIterator[SimpleNamespace]:
    server = GrpcServer(Options("127.0.0.1:0"))
    control.add_to(server, None, folders)
    port = await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield SimpleNamespace(ask=pb_grpc.CrawlServiceStub(channel).StreamResults)
    finally:
        await server.stop()


async def read(call: Any, most: int) -> tuple[list[str], str]:
    """Return the first URLs of a stream, and the last token."""
    found: list[str] = []
    async for message in call:
        found += [each.url for each in message.results]
        if len(found) >= most:
            break
    return found, message.resume_token


async def read_to_end(call: Any, messages: list[Any]) -> None:
    # One by one: those before the error are kept.
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)


async def check_a_slow_client(folder: Path) -> None:
    urls = [f"http://a.test/{number}?{LONG}" for number in range(COUNT)]
    written(folder, (capture(number, url=url) for number, url in enumerate(urls)))
    async with serving({"": folder}) as served:
        call = served.ask(pb.StreamResultsRequest(from_start=True))
        await asyncio.sleep(1.5)
        messages: list[Any] = []
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await read_to_end(call, messages)
        found = [each.url for message in messages for each in message.results]
        token = messages[-1].resume_token
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "come back with the last resume_token" in ended.value.details()
        assert 0 < len(found) < COUNT
        call = served.ask(pb.StreamResultsRequest(resume_token=token))
        more, _ = await read(call, COUNT - len(found))
        call.cancel()
    assert found + more == urls


def test_the_stream_of_a_client_that_reads_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It misses nothing when it comes back."""
    monkeypatch.setattr(sending, "_PATIENCE", 0.3)
    asyncio.run(check_a_slow_client(tmp_path))


async def check_bad_requests(folder: Path) -> None:
    many = [f"{number}.test" for number in range(1001)]
    for folders, request, fault in (
        ({}, pb.StreamResultsRequest(), "the crawl has no archive"),
        ({"": folder}, pb.StreamResultsRequest(hosts=many), "1,001 hosts: give 1,000 or fewer"),
        ({"": folder}, pb.StreamResultsRequest(hosts=[""]), "hosts: '' is not the name of a host"),
        ({"": folder}, pb.StreamResultsRequest(resume_token="{"), "is not of this crawl"),
    ):
        async with serving(folders) as served:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await served.ask(request).read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert fault in refused.value.details()


def test_a_bad_request_is_refused_with_the_way_out(tmp_path: Path) -> None:
    asyncio.run(check_bad_requests(tmp_path))


async def check_the_host(folder: Path) -> None:
    hosts = ("a.test", "b.test", "www.a.test:8080") * 3
    captures = (capture(at, url=f"http://{host}/{at}") for at, host in enumerate(hosts))
    written(folder, captures)
    async with serving({"": folder}) as served:
        call = served.ask(pb.StreamResultsRequest(hosts=["A.test"], from_start=True))
        found, _ = await read(call, 6)
        call.cancel()
    assert [url.rpartition("/")[2] for url in found] == ["0", "2", "3", "5", "6", "8"]


def test_only_results_of_the_hosts_are_sent(tmp_path: Path) -> None:
    asyncio.run(check_the_host(tmp_path))
