"""A page counts as taken only once the program has said so."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from socket import socketpair
from typing import Any

from krowlspider.library.delivery import LINES_MAX, Delivery, Lines
from krowlspider.library.messages import TAKEN, Frames, LogLine, Stats
from krowlspider.library.page import Page
from tests.library.test_messages import some_page


class Program:
    """The side of the program: what it has received, and whether the crawl was stopped."""

    def __init__(self, lines: Lines | None = None):
        self.socket, self._theirs = socketpair()
        self.socket.setblocking(False)
        self.delivery = Delivery(self._theirs, lines or Lines())
        self._frames = Frames()
        self.received: list[Any] = []
        self.stops = 0

    def begin(self) -> None:
        self.delivery.begin(lambda: {"n": len(self.received)}, self._stopped)

    def _stopped(self) -> None:
        self.stops += 1

    async def until(self, count: int, kind: type = Page) -> list[Any]:
        """Return what was received of a kind, once there are so many."""
        while len(of_kind := [each for each in self.received if isinstance(each, kind)]) < count:
            with suppress(BlockingIOError):
                self.received += self._frames.feed(self.socket.recv(100_000))
            await asyncio.sleep(0)
        return of_kind

    async def close(self) -> None:
        await self.delivery.close()
        self.socket.close()
        self._theirs.close()


async def given(delivery: Delivery, page: Page) -> asyncio.Task[bool]:
    task = asyncio.create_task(delivery.give(page))
    await asyncio.sleep(0)
    return task


async def test_pages_are_taken_in_their_order() -> None:
    program = Program()
    program.begin()
    pages = [some_page(url=f"http://a.test/{number}") for number in range(3)]
    tasks = [await given(program.delivery, page) for page in pages]
    assert await program.until(3) == pages
    program.socket.send(TAKEN)
    assert await tasks[0]
    assert not tasks[1].done()
    program.socket.send(TAKEN * 2)
    assert await tasks[1]
    assert await tasks[2]
    await program.close()
    assert program.stops == 0


async def test_what_is_not_taken_when_the_program_leaves_is_not_done() -> None:
    """Of three pages, one was taken, one sent, and one waits for the socket."""
    program = Program()
    program.begin()
    small, large = some_page(), some_page(body=b"x" * 5_000_000)
    tasks = [await given(program.delivery, page) for page in (small, small, large)]
    await program.until(2)
    program.socket.send(TAKEN)
    program.socket.close()
    assert [await task for task in tasks] == [True, False, False]
    assert program.stops == 1
    assert program.delivery.was_left
    assert not await program.delivery.give(small)
    await program.close()
    assert program.stops == 1


async def test_a_page_under_way_is_sent_to_its_end() -> None:
    """Otherwise what the process says at last could not be read."""
    program = Program()
    program.begin()
    large = some_page(body=b"x" * 5_000_000)
    task = await given(program.delivery, large)
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(program.delivery.close())
    assert await program.until(1) == [large]
    assert not await task
    await closing
    await program.close()


async def test_lines_and_stats_come_before_pages_and_are_bounded() -> None:
    lines = Lines()
    program = Program(lines)
    logger = logging.getLogger("tests.library.lines")
    logger.addHandler(lines)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    for number in range(LINES_MAX + 2):
        logger.info("line %d", number)
    program.begin()
    await given(program.delivery, some_page())
    found = await program.until(LINES_MAX, LogLine)
    assert (found[0].text, found[-1].text) == ("line 2", f"line {LINES_MAX + 1}")
    await program.until(1)
    assert (await program.until(1, Stats))[0].stats == {"n": LINES_MAX + 1}
    try:
        raise ValueError("a fault")
    except ValueError:
        logger.exception("failed")
    text = (await program.until(LINES_MAX + 1, LogLine))[-1].text
    assert text.startswith("failed\nTraceback")
    assert text.endswith("ValueError: a fault")
    logger.removeHandler(lines)
    await program.close()


def test_a_line_that_cannot_be_formatted_is_no_error() -> None:
    """It would be raised where a pipeline logs, and lose the item."""
    lines = Lines()
    lines.handle(logging.makeLogRecord({"msg": "%d pages", "args": ("x",)}))
    assert [line.text for line in lines.kept] == ["%d pages cannot be formatted with ('x',)"]
