"""A snapshot of a running crawl always has an outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from krowlspider.errors import JobError
from krowlspider.job.snapshots import RunningSnapshot

TARGET = Path("/taken")


class Failing:
    """A snapshot that fails at once with an error that nobody foresaw."""

    target = TARGET

    def __init__(self) -> None:
        self.is_discarded = False

    def gather(self) -> None:
        raise RuntimeError("unforeseen")

    def discard(self, _: BaseException) -> None:
        self.is_discarded = True

    def stop(self) -> None:
        pass


async def no_commit(_: Any) -> None:
    raise AssertionError("there is nothing to commit for")


def test_an_unforeseen_error_is_its_outcome(caplog: pytest.LogCaptureFixture) -> None:
    """The command that waits for it ends, and the crawl ends as usual."""

    async def main() -> Failing:
        running, failing = RunningSnapshot(no_commit), Failing()
        running.begin(failing)  # type: ignore[arg-type]
        await running.end()
        with pytest.raises(JobError, match="No snapshot to /taken: unforeseen"):
            running.outcome(TARGET)
        return failing

    assert asyncio.run(main()).is_discarded
    assert "RuntimeError: unforeseen" in caplog.text


def test_none_begins_once_the_crawl_ends() -> None:
    async def main() -> None:
        running = RunningSnapshot(no_commit)
        await running.end()
        with pytest.raises(JobError, match="the crawl ends"):
            running.begin(Failing())  # type: ignore[arg-type]

    asyncio.run(main())
