"""Each step of the work on a page runs under its mark, in all its tasks, and no other work does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.http import Response
from twisted.python.failure import Failure

from krowlspider.engine.crash_marking import mark_work
from krowlspider.frontier.work_mark import MARK, NOTHING, WorkMark, mark_of
from krowlspider.job.in_flight import cpu_clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    Work = Callable[[], Awaitable[Any]]

KEYS = A, B = b"qa", b"qb"


class Page:
    """A fake InFlight with the key of its entry; None if it is not of the frontier."""

    url = "http://a.test/"

    def __init__(self, key: bytes | None):
        self.key = key

    def mark(self, _: object) -> bytes:
        return NOTHING if self.key is None else mark_of(self.key, self.url)


class FakeJob:
    """A job with a mark."""

    def __init__(self, mark: WorkMark):
        self.mark = mark
        self.cpu = cpu_clock()
        self.frontier = self.queues = self


class FakeScraper:
    """Scrapes an answer, which is a function, by calling it."""

    concurrent_items = 16

    async def _scrape(self, result: Work, request: Page) -> None:
        await result()


@pytest.fixture
def mark(tmp_path: Path) -> WorkMark:
    return WorkMark(tmp_path / MARK, b"boot")


def run(mark: WorkMark, main: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Run ``main`` with a scraper whose work is marked. Requests stand for their InFlight."""

    async def start() -> None:
        scraper = FakeScraper()
        mark_work(scraper, FakeJob(mark), _same)  # type: ignore[arg-type]
        await main(scraper._scrape)

    asyncio.run(start())


def test_interleaved_pages_are_marked_in_their_own_steps(mark: WorkMark) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def work(own: bytes) -> None:
        for _ in range(3):
            seen.append((own, mark.now))
            await asyncio.sleep(0)
        seen.append((own, mark.now))

    async def main(scrape: Any) -> None:
        pages = [scrape(lambda own=own: work(own), Page(own)) for own in KEYS]
        tasks = [asyncio.create_task(page) for page in pages]
        while not all(task.done() for task in tasks):
            assert mark.now == NOTHING
            await asyncio.sleep(0)

    run(mark, main)
    assert [own for own, _ in seen] == [A, B] * 4
    assert all(mark_of(own, Page.url) == found for own, found in seen)
    assert mark.now == NOTHING


class Reading:
    """Reads pages of key A itself. ``seen`` are the URLs read, with the mark at that time."""

    def __init__(self, mark: WorkMark):
        self._mark = mark
        self.seen: list[tuple[str, bytes]] = []

    def only_reads(self, request: Page) -> bool:
        return request.key == A

    async def read(self, response: Response) -> None:
        self.seen.append((response.url, self._mark.now))
        await asyncio.sleep(0)
        self.seen.append((response.url, self._mark.now))
        if response.url == "http://bad.test/":
            raise ValueError("by the spider")


class ToldScraper(FakeScraper):
    """Records the answers it scrapes, and the spider errors it handles."""

    def __init__(self) -> None:
        self.scraped: list[object] = []
        self.errors: list[str] = []

    async def _scrape(self, result: object, request: object) -> None:
        self.scraped.append(result)

    def handle_spider_error(self, failure: Failure, request: Page, response: Response) -> None:
        self.errors.append(f"{response.url} {failure.value}")


def test_reading_spider_gets_its_pages_under_their_marks(mark: WorkMark) -> None:
    """But neither failures nor pages of other callbacks."""
    scraper, reading = ToldScraper(), Reading(mark)
    good, bad = Response("http://good.test/"), Response("http://bad.test/")
    failure = Failure(ValueError("by the web"))

    async def main() -> None:
        mark_work(scraper, FakeJob(mark), _same, reading)  # type: ignore[arg-type]
        scrape: Any = scraper._scrape
        await scrape(good, Page(A))
        await scrape(bad, Page(A))
        await scrape(good, Page(B))
        await scrape(failure, Page(A))

    asyncio.run(main())
    own = mark_of(A, Page.url)
    assert reading.seen == [(page.url, own) for page in (good, good, bad, bad)]
    assert scraper.scraped == [good, failure]
    assert scraper.errors == ["http://bad.test/ by the spider"]
    assert mark.now == NOTHING


def test_a_page_is_charged_for_its_own_steps_alone(mark: WorkMark) -> None:
    """Not for the work of others while it waits."""
    charged: list[float] = []

    class Slow(Reading):
        async def read(self, response: Response) -> None:
            for _ in range(2):
                _work(0.02)
                await asyncio.sleep(0.05)

    async def main() -> None:
        page = Page(A)
        scraper = ToldScraper()

        def charge(_: Any, took: float) -> None:
            charged.append(took)

        slow = Slow(mark)
        mark_work(scraper, FakeJob(mark), _same, slow, charge)  # type: ignore[arg-type]
        scrape: Any = scraper._scrape
        await asyncio.gather(scrape(Response("http://a.test/"), page), _busy())

    async def _busy() -> None:
        await asyncio.sleep(0.03)
        _work(0.1)

    asyncio.run(main())
    (took,) = charged
    assert 0.04 <= took < 0.1


def _same(page: Any) -> Any:
    return page


def _work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_tasks_that_a_page_starts_are_its_own_and_others_are_not(mark: WorkMark) -> None:
    seen: dict[str, bytes] = {}

    async def look(name: str) -> None:
        await asyncio.sleep(0)
        seen[name] = mark.now

    async def nest() -> None:
        await asyncio.create_task(look("grandchild"))

    async def work() -> None:
        await asyncio.gather(look("child"), nest())

    async def main(scrape: Any) -> None:
        await asyncio.gather(scrape(work, Page(A)), look("stranger"))

    run(mark, main)
    assert seen == {
        "child": mark_of(A, Page.url),
        "grandchild": mark_of(A, Page.url),
        "stranger": NOTHING,
    }


def test_marked_task_passes_values_errors_and_cancellation(
    mark: WorkMark,
) -> None:
    seen = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("by the page")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(mark.now)

    async def gives() -> int:
        await asyncio.sleep(0)
        return 7

    async def work() -> None:
        assert await asyncio.create_task(gives()) == 7
        with pytest.raises(ValueError, match="by the page"):
            await asyncio.create_task(fails())
        waiting = asyncio.create_task(waits())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(gives(), 5)

    async def main(scrape: Any) -> None:
        await scrape(work, Page(A))
        with pytest.raises(ValueError, match="by the page"):
            await scrape(fails, Page(A))

    run(mark, main)
    assert seen == [mark_of(A, Page.url)]
    assert mark.now == NOTHING


def test_work_on_a_request_of_nobody_marks_nothing(mark: WorkMark) -> None:
    seen = []

    async def work() -> None:
        seen.append(mark.now)

    async def main(scrape: Any) -> None:
        await scrape(work, Page(None))

    run(mark, main)
    assert seen == [NOTHING]


def test_existing_task_factory_still_makes_the_tasks(mark: WorkMark) -> None:
    made: list[str] = []

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        made.append(type(coroutine).__name__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def work() -> None:
        await asyncio.create_task(asyncio.sleep(0))

    async def start() -> None:
        asyncio.get_running_loop().set_task_factory(make)
        scraper = FakeScraper()
        mark_work(scraper, FakeJob(mark), _same)  # type: ignore[arg-type]
        await asyncio.create_task(scraper._scrape(work, Page(A)))
        assert made == ["coroutine", "Marked"]

    asyncio.run(start())


class CountingScraper(FakeScraper):
    """Makes one item at a time, each of which uses CPU time without waiting."""

    concurrent_items = 1

    def __init__(self) -> None:
        self.processed = 0

    async def _process_spidermw_output_async(self, item: object, response: object) -> None:
        end = time.monotonic() + 0.001
        while time.monotonic() < end:
            pass
        self.processed += 1


def test_callback_with_much_output_leaves_the_loop_its_turns(mark: WorkMark) -> None:
    turns = 0

    async def main() -> None:
        nonlocal turns
        scraper = CountingScraper()
        mark_work(scraper, FakeJob(mark), _same)  # type: ignore[arg-type]
        handle: Any = scraper.handle_spider_output_async  # type: ignore[attr-defined]
        work = asyncio.create_task(handle(iter(range(200)), None, None))
        while not work.done():
            turns += 1
            await asyncio.sleep(0)
        assert scraper.processed == 200

    asyncio.run(main())
    # 0.2 s of work, in steps of 10 ms.
    assert turns >= 10
