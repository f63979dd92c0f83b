"""The stream of a frontier's parts, from a server on the event loop to a reader in a thread."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.errors import KrowlError
from krowlspider.frontier.admin.ranges import RANGES
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.monitoring.page_server import PageServer
from krowlspider.programs.running import NoCrawlError, Source
from krowlspider.views import rows
from krowlspider.views.rows import rows_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

COUNT = 5000
LARGE = b"x" * 600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LevelStore]:
    """A store with entries of three hosts, one of them large, and a page."""
    with closing(LevelStore(tmp_path / "frontier", create=True)) as made:
        batch = made.batch()
        for host in ("a.test", "b.test", "c.test"):
            batch.put(schema.host_key(host), b"record of " + host.encode())
        for number in range(COUNT):
            batch.put(schema.queue_key(schema.host_key("a.test"), 0, number), b"entry %d" % number)
        batch.put(schema.queue_key(schema.host_key("b.test"), 0, 1), LARGE)
        batch.put(schema.page_prefix("a.test") + b"identity", b"row")
        batch.write()
        yield made


@asynccontextmanager
async def served(store: LevelStore) -> AsyncIterator[tuple[Source, PageServer]]:
    server = PageServer([lambda: rows_routes(lambda: store, "token")], load_after=0)
    host, port = await server.open("127.0.0.1", range(1))
    try:
        yield Source(f"http://{host}:{port}"), server
    finally:
        server.close()
        await asyncio.sleep(0)


def read(source: Source, *parts: str) -> dict[str, list[tuple[bytes, bytes]]]:
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for name, pairs in source.rows(parts, "token"):
        found.setdefault(name, []).extend(pairs)
    return found


async def read_from(store: LevelStore, *parts: str) -> dict[str, Any]:
    async with served(store) as (source, _):
        return await asyncio.to_thread(read, source, *parts)


def test_a_reader_gets_what_the_store_has(store: LevelStore):
    found = asyncio.run(read_from(store, *RANGES))
    assert found == {name: [*pairs(store)] for name, pairs in RANGES.items()}
    assert [key for key, _ in found["hosts"]] == [
        schema.host_key(host) for host in ("a.test", "b.test", "c.test")
    ]
    assert len(found["queue"]) == COUNT + 1
    assert found["seeds"] == []


def test_a_block_has_a_bound(store: LevelStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "_SLICE", 60.0)

    async def sizes() -> list[int]:
        async with served(store) as (source, _):
            return await asyncio.to_thread(
                lambda: [len(pairs) for _, pairs in source.rows(["queue"], "token")]
            )

    assert max(asyncio.run(sizes())) == 2000
    assert [len(some) for some in _slices([(b"k", LARGE)] * 3)] == [1, 1, 1]


def _slices(pairs: list[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    left = iter(pairs)
    while some := list(rows._next(left, 2000)):
        yield some


def test_a_stream_is_of_its_beginning(store: LevelStore):
    """What changes while it is read is not in it."""

    async def found() -> list[bytes]:
        async with served(store) as (source, _):
            stream = source.rows(["queue", "pages"], "token")
            await asyncio.to_thread(next, stream)
            batch = store.batch()
            batch.delete(schema.page_prefix("a.test") + b"identity")
            batch.put(schema.page_prefix("b.test") + b"identity", b"row")
            batch.write()
            rest = await asyncio.to_thread(list, stream)
            return [key for name, pairs in rest if name == "pages" for key, _ in pairs]

    assert asyncio.run(found()) == [schema.page_prefix("a.test") + b"identity"]


def test_one_reader_is_served_at_a_time(store: LevelStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "_RESTS", 1000.0)

    async def both() -> None:
        async with served(store) as (source, _):
            first = source.rows(["queue"], "token")
            await asyncio.to_thread(next, first)
            with pytest.raises(KrowlError, match="read by another scrapy sql: try again"):
                await asyncio.to_thread(read, source, "queue")
            # One that goes away makes room.
            first.close()
            monkeypatch.setattr(rows, "_RESTS", 0.0)
            async with asyncio.timeout(20):
                while True:
                    try:
                        assert len((await asyncio.to_thread(read, source, "pages"))["pages"]) == 1
                        break
                    except KrowlError:
                        await asyncio.sleep(0.05)

    asyncio.run(both())


@pytest.mark.parametrize("by", ["end", "damage", "time"])
def test_a_stream_that_breaks_off_is_not_taken_for_whole(
    store: LevelStore, monkeypatch: pytest.MonkeyPatch, by: str
):
    if by == "time":
        monkeypatch.setattr(rows, "STREAM_MAX", 0.2)
        monkeypatch.setattr(rows, "_RESTS", 100.0)
    elif by == "damage":
        parts = [*RANGES["queue"](store)]

        def damaged(_: object) -> Iterator[tuple[bytes, bytes]]:
            yield from parts[:3000]
            raise rows.STORE_ERRORS[0]("a block is damaged")

        monkeypatch.setitem(RANGES, "queue", damaged)
    else:
        monkeypatch.setattr(rows, "_RESTS", 100.0)

    async def broken() -> None:
        async with served(store) as (source, server):
            stream = source.rows(["queue"], "token")
            await asyncio.to_thread(next, stream)
            if by == "end":
                server.close()
            with pytest.raises(NoCrawlError, match="before its frontier was read: do it again"):
                await asyncio.to_thread(list, stream)

    asyncio.run(broken())
