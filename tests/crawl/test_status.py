"""The status line comes once in each interval."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from unittest.mock import Mock

from krowlspider.crawl.status import Progress

if TYPE_CHECKING:
    import pytest


def test_a_timer_that_ends_early_gives_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(Mock(), Mock(), lambda: (Counter(), 0), 100.0)
    monkeypatch.setattr(progress, "publish", lambda: None)
    monkeypatch.setattr("krowlspider.crawl.status.LINE", "%(done)d")
    monkeypatch.setattr("krowlspider.crawl.status.pause_reason", lambda _: "")
    job = progress._job
    job.frontier.queued = job.frontier.deferred_queued = 0
    job.frontier.schedule.host_count = job.frontier.schedule.count_due.return_value = 0
    job.archive.stats.bytes_written = 0
    times = (109.9995, 110.0, 119.9991, 120.0, 130.0)
    assert [now for now in times if progress.due_line(now, 10.0)] == [109.9995, 119.9991, 130.0]
