"""Hints of sitemaps and feeds are followed behind their documents, and no more than some wait."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from krowlspider.frontier.due_pages import DuePages
from krowlspider.frontier.pages.hinted import Hint, HintedRows
from krowlspider.frontier.store.store import StoreError
from krowlspider.job.recrawl import HINTING_MAX, Recrawl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


class _Followed(HintedRows):
    def __init__(self, error: Exception | None = None) -> None:
        self.steps: list[list[bytes]] = []
        self._error = error

    def step(self, hints: Iterable[Hint]) -> int:
        if self._error is not None:
            raise self._error
        self.steps.append([hint.key for hint in hints])
        return 0


class _Due(DuePages):
    def __init__(self, hinted: HintedRows) -> None:
        self.hinted = hinted


def recrawl_of(hinted: HintedRows, lock: asyncio.Lock, failed: list[Exception]) -> Recrawl:
    @asynccontextmanager
    async def between() -> AsyncIterator[None]:
        async with lock:
            yield

    return Recrawl(
        _Due(hinted),
        None,  # type: ignore[arg-type]
        is_full=lambda: False,
        wake=lambda: None,
        between_commits=between,
        fail=failed.append,
    )


def test_a_document_does_not_wait_for_its_hints() -> None:
    async def follow() -> None:
        followed, lock = _Followed(), asyncio.Lock()
        recrawl = recrawl_of(followed, lock, [])
        async with lock:
            for number in range(3):
                # At most so many entries wait, whichever documents they are of.
                hints = iter([Hint(b"%d" % number)])
                assert recrawl.take_hints(hints, HINTING_MAX // 2) == (number < 2)
            await asyncio.sleep(0)
            assert followed.steps == []
        assert recrawl.hinting is not None
        await recrawl.hinting
        assert followed.steps == [[b"0"], [b"1"]]
        # There is room again.
        assert recrawl.take_hints(iter([Hint(b"x")] * 201), HINTING_MAX)
        await recrawl.hinting
        assert [len(step) for step in followed.steps[2:]] == [200, 1]

    asyncio.run(follow())


def test_a_store_that_cannot_be_written_ends_the_crawl() -> None:
    async def follow() -> None:
        error, failed = StoreError("no space"), list[Exception]()
        recrawl = recrawl_of(_Followed(error), asyncio.Lock(), failed)
        assert recrawl.take_hints(iter([Hint(b"x")]), 1)
        assert recrawl.hinting is not None
        await recrawl.hinting
        assert failed == [error]

    asyncio.run(follow())
