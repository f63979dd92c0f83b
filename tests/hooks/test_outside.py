"""URLs from outside: on disk before the answer, bounded, and refused where they cannot be taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store.store import StoreError
from krowlspider.hooks import HookError, Hooks
from krowlspider.job.hooking import life
from krowlspider.job.hooking.hooked import Hooked
from krowlspider.job.hooking.life import HookLife

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from krowlspider.urls.seeds import Seed


class Some(Hooks):
    def end(self, reason: str) -> None: ...


class Queue:
    """Takes seeds, as `Intake.give`."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.turns = 0

    def give(self, seeds: list[Seed], states: dict[str, str]) -> int:
        self.turns += 1
        new = [seed.url for seed in seeds if seed.url not in self.given]
        self.given.update((url, states.get(url, "")) for url in new)
        return len(new)


def life_of(
    make_durable: Callable[[], Awaitable[object]],
) -> tuple[Hooks, HookLife, Queue]:
    queue, hooks = Queue(), Some()
    hooked = Hooked(hooks, timeout=1, fetch_timeout=1, count=lambda _: None)
    made = HookLife(hooked, give=queue.give, promote=lambda: iter(()), make_durable=make_durable)
    return hooks, made, queue


async def at_once() -> None:
    pass


def test_urls_are_on_disk_before_the_answer() -> None:
    async def main() -> None:
        synced = asyncio.Event()
        hooks, made, queue = life_of(synced.wait)
        await made.start(())
        done = hooks.enqueue(["a.test", "http://b.test/x"], state={"n": 1})
        await asyncio.sleep(0.01)
        # A bare domain is https at first.
        assert queue.given == dict.fromkeys(("https://a.test/", "http://b.test/x"), '{"n":1}')
        assert not done.done()
        assert made.is_taking
        synced.set()
        assert await done == 2
        assert await hooks.enqueue("http://b.test/x") == 0
        assert not made.is_taking
        await made.end("finished")

    asyncio.run(main())


def test_many_urls_leave_the_loop_to_others() -> None:
    async def main() -> None:
        hooks, made, queue = life_of(at_once)
        await made.start(())
        assert await hooks.enqueue(f"http://a.test/{at}" for at in range(1000)) == 1000
        assert queue.turns == 40

    asyncio.run(main())


def test_what_cannot_be_taken_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "WAITING_MAX", 3)

    async def main() -> None:
        hooks, made, queue = life_of(at_once)
        with pytest.raises(HookError, match="the crawl does not run: call enqueue"):
            hooks.enqueue("a.test")
        await made.start(())
        with pytest.raises(HookError, match=r"'ftp://a.test/' cannot be queued: "):
            hooks.enqueue(["a.test", "ftp://a.test/"])
        with pytest.raises(HookError, match="give a URL or a domain alone"):
            hooks.enqueue('http://a.test/\t{"tag": "news"}')
        with pytest.raises(HookError, match="has 5,002 bytes as JSON, more than 4,096"):
            hooks.enqueue("a.test", state="x" * 5000)
        first = hooks.enqueue(["a.test", "b.test"])
        with pytest.raises(HookError, match="2 URLs to be taken already, 3 at most"):
            hooks.enqueue(["c.test", "d.test"])
        assert await first == 2
        assert await hooks.enqueue(["c.test", "d.test"]) == 2
        await made.end("finished")
        with pytest.raises(HookError, match="the crawl does not run"):
            hooks.enqueue("e.test")
        assert len(queue.given) == 4

    asyncio.run(main())


def test_a_thread_in_enqueue_at_the_end_gets_an_error() -> None:
    """It had asked before the end, and would wait for ever after it."""

    async def main() -> None:
        _, made, queue = life_of(at_once)
        await made.start(())
        enqueue = made.enqueue
        await made.end("finished")
        with pytest.raises(HookError, match="the crawl does not run any more"):
            enqueue(["a.test"])
        assert not queue.given
        assert not made.is_taking

    asyncio.run(main())


def test_the_crawl_does_not_wait_for_itself() -> None:
    async def main() -> None:
        hooks, made, _ = life_of(at_once)
        await made.start(())
        done = hooks.enqueue("a.test")
        with pytest.raises(HookError, match="waits for ever: await enqueue"):
            done.result()
        assert await asyncio.to_thread(done.result) == 1
        assert done.result() == 1
        await made.end("finished")

    asyncio.run(main())


def test_an_error_of_the_disk_is_raised_to_the_caller() -> None:
    async def fails() -> None:
        raise StoreError("the disk is full")

    async def main() -> None:
        hooks, made, _ = life_of(fails)
        await made.start(())
        with pytest.raises(StoreError, match="the disk is full"):
            await hooks.enqueue("a.test")
        assert not made.is_taking

    asyncio.run(main())
