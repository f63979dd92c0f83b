"""What is written when a request has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from krowlspider.fetch import errors
from krowlspider.frontier.store.schema import host_key
from tests.frontier.memory import MemoryStore
from tests.support.simulation import Answer, Simulation, Web

if TYPE_CHECKING:
    from pathlib import Path

LATENCY = 0.123


class _Busy(Web):
    """The first answer to each page is ``first``."""

    def __init__(self, first: Answer):
        super().__init__()
        self._first = first

    def answer(self, host: str, path: str, now: float) -> Answer:
        is_first = path != "/robots.txt" and not any(entry.path == path for entry in self.log)
        return self._first if is_first else Answer(LATENCY)

    def address(self, host: str) -> str:
        return "203.0.113.1"

    def links(self, host: str, path: str) -> list[str]:
        return []


class _Store(MemoryStore):
    """Keeps the changes of each batch that has the record of the host."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[dict[bytes, bytes | None]] = []

    def apply(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        if any(key == host_key("a.test") for key, _ in changes):
            self.batches.append(dict(changes))
        super().apply(changes)


@pytest.mark.parametrize(
    "first",
    [
        Answer(LATENCY, 429, retry_after="5", rest=5.0),
        Answer(LATENCY, 500),
        Answer(LATENCY, failure=errors.ConnectionLost),
        Answer(LATENCY, failure=errors.NameNotFound),
    ],
    ids=["429", "500", "lost", "no-name"],
)
def test_a_page_tried_again_writes_its_host_once(tmp_path: Path, first: Answer) -> None:
    """One batch has the removal of the old entry, the new one, and the host with its wait."""

    async def run() -> None:
        store = _Store()
        crawl = Simulation(_Busy(first), lambda _: store, tmp_path)
        crawl.discover(["http://a.test/1", "http://a.test/2"])
        while not any(entry.path == "/1" for entry in crawl.web.log):
            store.batches.clear()
            crawl.run_until(crawl.clocks.monotonic + 0.01)
        (batch,) = store.batches
        host = crawl.job.frontier.schedule.cache.get("a.test")
        record = host_key("a.test")
        assert batch.pop(record) == host.record
        entries = [value is None for key, value in batch.items() if key.startswith(record)]
        assert entries == [True, False]
        assert host.queue.pending == 2
        assert host.due >= crawl.job.frontier.now()

    asyncio.run(run())


def test_a_request_in_flight_is_queued_as_any_other(tmp_path: Path) -> None:
    """A callback may yield its own request: it is known, and its page is done once."""

    async def run() -> None:
        crawl = Simulation(_Busy(Answer(1.0)), lambda _: MemoryStore(), tmp_path)
        crawl.discover(["http://a.test/1"])
        while not any(request.url.endswith("/1") for request in crawl.open):
            crawl.run_until(crawl.clocks.monotonic + 0.01)
        (request,) = crawl.open
        assert not crawl.scheduler.enqueue_request(request)
        crawl.run_until(crawl.clocks.monotonic + 5.0)
        assert crawl.scheduler.counted()["done"] == 1
        assert [entry.path for entry in crawl.web.log] == ["/robots.txt", "/1"]

    asyncio.run(run())


def test_a_page_that_cannot_be_stored_again_is_dropped_once(tmp_path: Path) -> None:
    async def run() -> None:
        crawl = Simulation(_Busy(Answer(1.0, 500)), lambda _: MemoryStore(), tmp_path)
        crawl.discover(["http://a.test/1"])
        while not any(request.url.endswith("/1") for request in crawl.open):
            crawl.run_until(crawl.clocks.monotonic + 0.01)
        (request,) = crawl.open
        request.meta["of a middleware"] = lambda: None
        crawl.run_until(crawl.clocks.monotonic + 10.0)
        assert crawl.scheduler.counted()["dropped/unserializable"] == 1
        assert [entry.path for entry in crawl.web.log] == ["/robots.txt", "/1"]
        assert crawl.job.frontier.pending == 0

    asyncio.run(run())


def test_an_excused_page_keeps_its_place(tmp_path: Path) -> None:
    """And no try of it is counted."""

    async def run() -> None:
        first = Answer(LATENCY, failure=errors.LocalExhausted)
        crawl = Simulation(_Busy(first), lambda _: MemoryStore(), tmp_path)
        crawl.discover(["http://a.test/1", "http://a.test/2"])
        while len(crawl.web.log) < 3:
            crawl.run_until(crawl.clocks.monotonic + 0.1)
        assert [entry.path for entry in crawl.web.log] == ["/robots.txt", "/1", "/1"]
        assert crawl.crawler.stats.get_value("retry/count") is None

    asyncio.run(run())


def test_a_robots_fetch_that_is_given_up_is_queued_again(tmp_path: Path) -> None:
    """The limit of pages may be raised while the last ones end."""

    async def run() -> None:
        crawl = Simulation(_Busy(Answer(1.0)), lambda _: MemoryStore(), tmp_path)
        crawl.discover(["http://a.test/1"])
        flights = crawl.scheduler.flights
        while not crawl.open:
            crawl.run_until(crawl.clocks.monotonic + 0.01)
        (request,) = crawl.open
        assert flights.only_robots_fetches() == [request]
        in_flight = flights.get(request)
        assert in_flight is not None
        flights.give_up(in_flight)
        assert in_flight.host.robots.fetches == [in_flight.robots_fetch]
        # It ends meanwhile: the host's next request is for robots.txt all the same.
        crawl.run_until(crawl.clocks.monotonic + 60.0)
        assert crawl.scheduler.counted()["done"] == 1
        assert flights.only_robots_fetches() == []

    asyncio.run(run())
