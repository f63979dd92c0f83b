"""Bodies are decoded at once or in a thread, under the mark of their page."""

from __future__ import annotations

import asyncio
import gzip
import random
from functools import cache
from typing import TYPE_CHECKING, Any

import brotli
import pytest
from scrapy.http import HtmlResponse

from krowlspider.engine import handler  # noqa: F401 - which knows of no such charset
from krowlspider.fetch.errors import DecodeFailed
from krowlspider.fetch.memory import READ, FetchMemory, Memory
from krowlspider.frontier.work_mark import MARK, NOTHING, THREAD_MARK, WorkMark, mark_of
from krowlspider.job.in_flight import Decoders
from tests.fetch.emptiness import costly
from tests.fetch.http.coders import PAGE
from tests.support.work import seconds

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

PAGE_MARK = mark_of(b"q a.test")
CAP = 10 * 1024 * 1024
# A page of 45 kB; `PAGE` has 95.
SMALL = PAGE[:45_000]
# A page of 6 MB, which takes about 20 ms to decode.
LARGE = random.Random(1).randbytes(3_000_000).hex().encode()


@cache
def costly_body() -> bytes:
    """Return a body that takes 0.24 s of CPU until it proves broken."""
    return brotli.compress(costly(2_000_000)[:-5] + b"\xff" * 5)


class Bench:
    """Decoders with their marks."""

    def __init__(self, folder: Path):
        self.mark = WorkMark(folder / MARK, b"boot")
        self.thread_mark = WorkMark(folder / THREAD_MARK, b"boot")
        self.decoders = Decoders(self.mark, self.thread_mark)
        self.memory = Memory(16 * CAP)

    def decode(self, body: bytes, coding: bytes) -> Coroutine[Any, Any, bytes]:
        self.page = FetchMemory(self.memory)
        return self.decoders.decode(PAGE_MARK, body, coding, CAP, self.page)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.decoders.close()
    made.mark.close()


async def turns_of(decoding: asyncio.Task[bytes], bench: Bench) -> tuple[int, set[bytes]]:
    """Return the number of the loop's turns during a decoding, and the thread's marks in them."""
    turns, marks = 0, set()
    while not decoding.done():
        await asyncio.sleep(0)
        turns += 1
        marks.add(bench.thread_mark.now)
        assert bench.mark.now == NOTHING
    return turns, marks


def test_an_ordinary_page_is_decoded_immediately(bench: Bench) -> None:
    async def main() -> None:
        for body, coding in ((gzip.compress(SMALL), b"gzip"), (brotli.compress(SMALL), b"br")):
            # A coroutine that never waits ends in its first step.
            with pytest.raises(StopIteration) as ended:
                bench.decode(body, coding).send(None)
            assert ended.value.value == SMALL

    asyncio.run(main())


def test_a_costly_body_is_decoded_in_a_thread_under_its_mark(bench: Bench) -> None:
    """The loop goes on meanwhile, and the page is marked all the time."""

    async def main() -> None:
        task = asyncio.ensure_future(bench.decode(costly_body(), b"deflate, br"))
        turns, marks = await turns_of(task, bench)
        with pytest.raises(DecodeFailed):
            task.result()
        assert turns > 100
        assert PAGE_MARK in marks
        assert bench.thread_mark.now == NOTHING

    asyncio.run(main())


def test_a_body_that_expands_is_decoded_in_a_thread(bench: Bench) -> None:
    async def main() -> None:
        data = LARGE
        task = asyncio.ensure_future(bench.decode(gzip.compress(data, 1), b"gzip"))
        turns, _ = await turns_of(task, bench)
        assert task.result() == data
        # A task that never waits is done in its first step.
        assert turns > 2

    asyncio.run(main())


def test_an_ordinary_page_does_not_wait_for_costly_ones(bench: Bench) -> None:
    async def main() -> None:
        costs = [
            asyncio.ensure_future(bench.decode(costly_body(), b"deflate, br")) for _ in range(2)
        ]
        await asyncio.sleep(0)
        assert await bench.decode(gzip.compress(SMALL), b"gzip") == SMALL
        assert not any(each.done() for each in costs)
        await asyncio.wait(costs)
        assert all(isinstance(each.exception(), DecodeFailed) for each in costs)

    asyncio.run(main())


def test_a_body_that_expands_waits_for_memory(bench: Bench) -> None:
    """Its memory is counted by its decoded size."""

    async def main() -> None:
        data = LARGE
        others = [FetchMemory(bench.memory) for _ in range(2)]
        for other in others:
            other.receive(8 * CAP)
            other.wait(READ, lambda: None)
        task = asyncio.ensure_future(bench.decode(gzip.compress(data, 1), b"gzip"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        assert bench.page.waited
        for other in others:
            other.release()
        assert await task == data
        assert bench.memory.used == bench.page.size == len(data)

    asyncio.run(main())


@pytest.mark.parametrize("charset", ["punycode", "PunyCode"])
def test_a_charset_of_quadratic_time_is_none(charset: str) -> None:
    """When a spider reads the text of a page: 2 MB would take minutes."""
    body = b"<title>x</title>" + b"a" * 1_000_000 + b"-" + b"a" * 1_000_000
    headers = {"Content-Type": f"text/html; charset={charset}"}
    page = HtmlResponse("http://a.test/", headers=headers, body=body)
    assert seconds(lambda: page.text, tries=1) < 2
    assert page.text == body.decode()
