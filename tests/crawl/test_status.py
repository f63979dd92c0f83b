"""The status line: once in each interval, with the limits of the crawl, on one line."""

from __future__ import annotations

from collections import Counter
from unittest.mock import Mock

import pytest

from krowlspider.crawl.status import Progress, status_line
from krowlspider.crawl.time_left import Limits, progress
from krowlspider.frontier.schedule.orders import PAUSED


def test_a_timer_that_ends_early_gives_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = Mock()
    stats.get_value.return_value = 0
    progress = Progress(Mock(), stats, lambda: (Counter(), 0), 100.0, Limits())
    monkeypatch.setattr(progress, "publish", lambda: None)
    monkeypatch.setattr("krowlspider.crawl.status.pause_reason", lambda _: "")
    job = progress._job
    job.frontier.queued = job.frontier.deferred_queued = 0
    job.frontier.schedule.host_count = job.frontier.schedule.count_due.return_value = 0
    job.archive.stats.bytes_written = 0
    times = (109.9995, 110.0, 119.9991, 120.0, 130.0)
    assert [now for now in times if progress.due_line(now, 10.0)] == [109.9995, 119.9991, 130.0]


@pytest.mark.parametrize(
    ("wait", "reason"), [(PAUSED - 60, "paused or blocked"), (86_400.0, "within its delay")]
)
def test_hosts_that_a_person_holds_are_not_within_a_delay(wait: float, reason: str) -> None:
    stats, job = Mock(), Mock(is_paused=False, full=None, node=None)
    stats.get_value.return_value = 0
    job.outages.paused = job.memory.keeps_out = False
    job.frontier.queued, job.frontier.deferred_queued = 5, 0
    job.frontier.schedule.host_count = 2
    job.frontier.schedule.count_due.return_value = 0
    job.frontier.schedule.next_due.return_value = 50.0 + wait
    job.frontier.now.return_value = 50.0
    job.archive.stats.bytes_written = 0
    progress = Progress(job, stats, lambda: (Counter(), 0), 100.0, Limits())
    assert progress.line(110.0).endswith(f" | every host is {reason}")


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(), "1,204 pages"),
        (Limits(pages=5000), "1,204 of 5,000 pages, 5 min 15 s left"),
        (Limits(answers=2600), "1,204 pages, 1,300 of 2,600 answers, 1 min 40 s left"),
        (Limits(seconds=130), "1,204 pages, 30.0 s left"),
        (Limits(5000, 2600, 130), "1,204 of 5,000 pages, 1,300 of 2,600 answers, 30.0 s left"),
    ],
)
def test_time_left_is_that_to_the_nearest_limit(limits: Limits, text: str) -> None:
    assert progress(limits, pages=1204, answers=1300, seconds=100) == text


def test_a_paused_crawl_has_no_rate_for_the_time_left() -> None:
    limits = Limits(5000, 2600, 130)
    text = progress(limits, pages=1204, answers=1300, seconds=100, is_paused=True)
    assert text == "1,204 of 5,000 pages, 1,300 of 2,600 answers, 30.0 s left"
    limits.seconds = 0.0
    text = progress(limits, pages=1204, answers=1300, seconds=100, is_paused=True)
    assert text == "1,204 of 5,000 pages, 1,300 of 2,600 answers"


def test_without_a_page_no_time_is_estimated() -> None:
    assert progress(Limits(pages=9), pages=0, answers=0, seconds=1) == "0 of 9 pages"


def test_status_line_of_a_large_crawl_is_short() -> None:
    figures = {
        "so_far": progress(Limits(pages=5000), pages=1204, answers=0, seconds=80),
        "pages_per_second": 15.3,
        "queued": 1766,
        "hosts": 150,
        "due": 2,
        "in_flight": 12,
        "deferred": 0,
        "dropped": 9,
        "archive_mb": 7.3,
    }
    assert status_line(figures) == (
        "1,204 of 5,000 pages, 4 min 12 s left | 15.3 pages/s | 1,766 URLs queued on 150 hosts"
        " | 12 in flight | 9 dropped | WARC 7.3 MB"
    )
    none = {"pages_per_second": 0.0, "due": 0, "in_flight": 0, "dropped": 0}
    resting = status_line({**figures, **none, "deferred": 3})
    assert resting.endswith(
        " on 150 hosts | 3 deferred, as hosts do not answer | WARC 7.3 MB"
        " | every host is within its delay"
    )
    full = status_line(
        {**figures, **none, "archive_mb": 0.0143, "paused": "paused: no room in jobs/a"}
    )
    assert full.endswith(" | WARC 14.3 KB | paused: no room in jobs/a")
