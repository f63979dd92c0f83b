"""The copy of a running frontier that ``scrapy sql`` reads."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, closing
from threading import Event
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import KrowlError
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.monitoring.page_server import PageServer
from krowlspider.programs.running import CrawlSource
from krowlspider.sql.live import RANGES
from krowlspider.views import frontier_copy
from krowlspider.views.frontier_copy import copy_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

COUNT = 50_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LevelStore]:
    """A store with entries of two hosts, in tables and in the log, and a page."""
    with closing(LevelStore(tmp_path / "frontier", create=True)) as made:
        for host in ("a.test", "b.test"):
            batch = made.batch()
            batch.put(schema.host_key(host), b"record")
            for number in range(COUNT):
                key = schema.queue_key(schema.host_key(host), 0, number)
                batch.put(key, b"entry %d" % number)
            batch.write()
            if host == "a.test":
                made.flush()
        batch = made.batch()
        batch.put(schema.page_prefix("a.test") + b"identity", b"row")
        batch.write()
        yield made


@asynccontextmanager
async def served(store: LevelStore) -> AsyncIterator[CrawlSource]:
    folder = store.folder.parent
    routes = copy_routes(lambda: folder, lambda: store, "token")
    server = PageServer([lambda: routes], load_after=0)
    host, port = await server.open("127.0.0.1", range(1))
    try:
        yield CrawlSource(f"http://{host}:{port}")
    finally:
        server.close()
        await asyncio.sleep(0)


async def copied(store: LevelStore, token: str = "token") -> Path:
    async with served(store) as source:
        return await asyncio.to_thread(source.copy_frontier, token)


def test_a_copy_has_what_the_store_has(store: LevelStore):
    folder = asyncio.run(copied(store))
    assert folder.parent == store.folder.parent.resolve()
    assert folder.stat().st_mode & 0o777 == 0o700
    expected = {name: [*pairs(store)] for name, pairs in RANGES.items()}
    with closing(LevelStore(folder / "frontier")) as copy:
        batch = store.batch()
        batch.put(schema.page_prefix("b.test") + b"identity", b"later")
        batch.write()
        assert {name: [*pairs(copy)] for name, pairs in RANGES.items()} == expected
    assert len(expected["queue"]) == 2 * COUNT
    assert len(expected["hosts"]) == 2
    linked = [path for path in (folder / "frontier").glob("*.ldb") if path.stat().st_nlink > 1]
    assert linked


def test_a_copy_needs_the_token(store: LevelStore):
    with pytest.raises(KrowlError, match="give the token"):
        asyncio.run(copied(store, "other"))
    assert not [*store.folder.parent.glob("sql-*")]


def test_an_old_copy_is_removed_by_the_next(store: LevelStore):
    old, new = (store.folder.parent / name for name in ("sql-old", "sql-new"))
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (time.time() - 4000,) * 2)
    asyncio.run(copied(store))
    assert (old.exists(), new.exists()) == (False, True)


def test_one_copy_is_made_at_a_time(store: LevelStore, monkeypatch: pytest.MonkeyPatch):
    begun, go_on = Event(), Event()

    def slow(*_: object) -> None:
        begun.set()
        assert go_on.wait(30)

    monkeypatch.setattr(frontier_copy, "copy_frontier", slow)
    monkeypatch.setattr(frontier_copy, "_TURN", 0.05)

    async def both() -> None:
        async with served(store) as source:
            first = asyncio.create_task(asyncio.to_thread(source.copy_frontier, "token"))
            await asyncio.to_thread(begun.wait, 30)
            with pytest.raises(KrowlError, match="copied for another scrapy sql: try again"):
                await asyncio.to_thread(source.copy_frontier, "token")
            go_on.set()
            assert (await first).is_dir()
            await asyncio.to_thread(source.copy_frontier, "token")

    asyncio.run(both())


def test_clients_at_once_wait_for_their_turn(store: LevelStore):
    async def at_once() -> list[Path]:
        async with served(store) as source:
            copies = (asyncio.to_thread(source.copy_frontier, "token") for _ in range(4))
            return await asyncio.gather(*copies)

    assert len(set(asyncio.run(at_once()))) == 4


def test_a_failure_leaves_nothing(store: LevelStore, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(frontier_copy, "copy_frontier", fail)
    with pytest.raises(KrowlError, match="No space left"):
        asyncio.run(copied(store))
    assert not [*store.folder.parent.glob("sql-*")]
