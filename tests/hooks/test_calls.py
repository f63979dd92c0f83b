"""A hook that raises or takes too long is counted, named and cut off; what is off costs nothing."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.hooks import Hooks
from krowlspider.hooks.calls import BAD_MAX, HELD, SLOW, Call
from krowlspider.job.hooking.link_hooks import LinkHooks
from tests.hooks.test_gocrawl_hooks import SITE, hooked
from tests.support.crawls import ROBOTS, anchors, crawl_of, page, paths
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scrapy.http import Response

    from krowlspider.hooks import Answer, Url


class Clock:
    """Moves with each call of `hold`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def hold(self, seconds: float) -> str:
        self.now += seconds
        return "answer"


def call_of(method: Callable[..., Any], clock: Clock | None = None) -> tuple[Call, Counter[str]]:
    counted: Counter[str] = Counter()
    count = lambda name: counted.update([name.removeprefix("krowl/hooks/")])
    return Call("filter", method, timeout=0.01, count=count, clock=clock or Clock()), counted


def fail(*_: Any) -> None:
    raise ValueError("of a user")


def cancelled(*_: Any) -> None:
    raise asyncio.CancelledError


def ends(*_: Any) -> None:
    sys.exit(3)


@pytest.mark.parametrize("method", [fail, cancelled, ends])
def test_whatever_a_hook_raises_is_counted(method: Callable[..., Any]) -> None:
    """A cancelled task of its own, or sys.exit(), would end a page without its links."""

    async def later() -> None:
        await asyncio.sleep(0)
        method()

    async def main() -> None:
        call, counted = call_of(later)
        assert await call.answer() is None
        assert counted == {"failed_count/filter": 1}

    asyncio.run(main())
    call, counted = call_of(method)
    assert call.now() is None
    assert counted == {"failed_count/filter": 1}


def test_a_crawl_that_stops_cancels_a_hook() -> None:
    async def main() -> None:
        call, counted = call_of(lambda: asyncio.sleep(60))
        call._timeout = 60
        task = asyncio.create_task(call.answer())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not counted

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [0, 1, "no", [], asyncio.sleep(0)])
def test_an_answer_of_another_type_is_counted(wrong: Any) -> None:
    """Such as the coroutine of a function that wraps a hook."""
    call, counted = call_of(lambda: wrong)
    assert call.verdict(call.now()) is None
    assert counted == {"failed_count/filter": 1}


def test_a_generator_counts_as_its_hook() -> None:
    clock = Clock()

    def raises() -> Iterator[str]:
        yield "/a"
        raise KeyError("href")

    def holds() -> Iterator[str]:
        yield clock.hold(SLOW * 2)

    call, counted = call_of(raises, clock)
    assert call.items(raises(), 5) is None
    assert call.items(itertools.repeat("/a"), 5) is None
    assert call.items("/a", 5) is None
    assert counted == {"failed_count/filter": 3}
    assert call.items(holds(), 5) == ["answer"]
    assert counted["slow_count/filter"] == 1


class ByGenerator(Hooks):
    def start(self, seeds: Sequence[str]) -> Iterator[str]:
        yield seeds[0]
        raise ConnectionError("no database")

    def visit(self, url: Url, response: Response) -> Iterator[str]:
        for anchor in response.css("a"):
            yield anchor.attrib["data-href"]


def test_links_of_the_spider_hold_if_a_generator_raises(tmp_path: Path) -> None:
    """And so do the seeds as given."""
    crawl, log = hooked(tmp_path, ByGenerator)
    assert sorted(paths(log)) == ["/", "/a", "/b", "/gone"]
    assert crawl.stats["krowl/hooks/failed_count/start"] == 1
    # /b and /gone have no links.
    assert crawl.stats["krowl/hooks/failed_count/visit"] == 2


class Changing(Hooks):
    """Changes what it is given."""

    def archive(self, url: Url, answer: Answer) -> None:
        answer.headers.clear()
        answer.request_headers.clear()

    def fetched_robots(self, url: Url, response: Response) -> None:
        url.url = url.host = "b.test"

    def visit(self, url: Url, response: Response) -> None:
        url.url = "http://b.test/"
        assert "Content-Type" in response.headers


def test_what_a_hook_is_given_is_its_own(tmp_path: Path) -> None:
    crawl, log = hooked(tmp_path, Changing)
    assert sorted(paths(log)) == ["/", "/a", "/b", "/gone"]
    assert not [name for name in crawl.stats if "failed_count/" in name]


def test_a_hook_that_raises_is_named_once_and_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    call, counted = call_of(fail)
    for _ in range(int(BAD_MAX) + 5):
        assert call.now("x") is None
    assert counted == {"failed_count/filter": BAD_MAX, "cut_off_count/filter": 1}
    first, last = caplog.records
    assert "Hook filter failed, and its default holds" in first.getMessage()
    assert first.exc_info is not None
    assert "Hook filter is cut off until the next start" in last.getMessage()
    assert call.cut == "20 calls failed, the last with ValueError('of a user')"


def test_rare_failures_cut_nothing_off() -> None:
    """One call in a hundred may fail for ever; one in twenty may not."""

    def every(number: int) -> Callable[[int], int]:
        return lambda at: at if at % number else fail()  # type: ignore[func-returns-value]

    rare, _ = call_of(every(100))
    often, _ = call_of(every(20))
    for at in range(5000):
        rare.now(at)
        often.now(at)
    assert (rare.cut, rare.failures) == ("", 50)
    assert often.cut


def test_a_call_that_holds_the_loop_is_slow() -> None:
    clock = Clock()
    call, counted = call_of(clock.hold, clock)
    assert call.now(SLOW) == "answer"
    assert counted == {}
    # Its answer counts, and so does its time.
    assert call.now(2 * SLOW) == "answer"
    assert counted == {"slow_count/filter": 1}
    assert call.now(HELD) == "answer"
    assert counted == {"slow_count/filter": 2, "cut_off_count/filter": 1}
    assert call.now(0) is None


def test_start_and_end_may_hold_the_loop() -> None:
    clock = Clock()
    counted: Counter[str] = Counter()
    call = Call("start", clock.hold, timeout=1, count=counted.update, may_hold=True, clock=clock)
    assert call.now(60) == "answer"
    assert (call.cut, counted) == ("", {})


def test_a_coroutine_has_its_time() -> None:
    async def ask(what: str) -> str:
        if what == "late":
            await asyncio.sleep(60)
        if what == "raises":
            # Its own, not that of the limit.
            raise TimeoutError
        await asyncio.sleep(0)
        return what

    async def main() -> None:
        call, counted = call_of(ask)
        assert [await call.answer(what) for what in ("soon", "late", "raises")] == [
            *("soon", None, None),
        ]
        assert counted == {"slow_count/filter": 1, "failed_count/filter": 1}
        plain, _ = call_of(lambda what: what)
        assert await plain.answer("plain") == "plain"

    asyncio.run(main())


def test_slow_hooks_of_links_get_fewer_at_once() -> None:
    hooks = LinkHooks(scope=None, filter_=None, priority=None, enqueued=None)
    for _ in range(20):
        hooks.took(0.0001, 100)
    assert hooks.at_once == 500
    for _ in range(20):
        hooks.took(1.0, 100)
    assert hooks.at_once == 2


class Raising(Hooks):
    def filter(self, link: Url, is_known: bool) -> bool:
        raise ValueError("never works")

    async def visit(self, url: Url, response: Response) -> list[str]:
        await asyncio.sleep(3600)
        return []


def test_a_crawl_goes_on_without_a_hook_that_fails(tmp_path: Path) -> None:
    """The default holds for each call, and afterwards. The end names what was cut off."""
    spec = [ROBOTS, page("/", anchors(*(f"/{at}" for at in range(40)))), page("^/", "")]
    crawl, log = hooked(tmp_path, Raising, spec=spec, KROWL_HOOKS_TIMEOUT=0.01)
    assert len(paths(log)) == 41
    stats = crawl.stats
    assert stats["krowl/hooks/failed_count/filter"] == BAD_MAX
    assert stats["krowl/hooks/slow_count/visit"] == BAD_MAX
    assert stats["krowl/hooks/cut_off_count/filter"] == 1
    assert stats["krowl/hooks/cut_off_count/visit"] == 1
    assert crawl.log.count("ValueError: never works\n") == 1
    assert "2 hooks cut off: filter (20 calls failed" in crawl.log
    assert "hooks        cut off: filter (20 calls failed" in crawl.log


class Holding(Hooks):
    def enqueued(self, url: Url) -> None:
        time.sleep(HELD + 0.1)


def test_a_hook_that_blocks_is_cut_off_at_once(tmp_path: Path) -> None:
    crawl, _ = hooked(tmp_path, Holding)
    assert crawl.stats["krowl/hooks/slow_count/enqueued"] == 1
    assert crawl.stats["krowl/hooks/cut_off_count/enqueued"] == 1
    assert "one call held the event loop for 2." in crawl.log


def test_hooks_cost_no_call_when_off(tmp_path: Path) -> None:
    called = set()
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")])
        sys.setprofile(lambda frame, *_: called.add(frame.f_code.co_filename))
        try:
            crawl.run()
        finally:
            sys.setprofile(None)
    ours = ("/krowlspider/hooks/", "/job/hooking/", "/middlewares/hooks.py", "hooked_handler.py")
    assert any("/krowlspider/job/intake.py" in name for name in called)
    assert [name for name in called if any(own in name for own in ours)] == []
