"""The status line: once in each interval, with the limits of the crawl, on one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

import pytest

from krowlspider.engine.dispatcher import LastRequests
from krowlspider.frontier.hosts.host import PUT_OFF_HERE
from krowlspider.job.crawls import Crawl
from krowlspider.job.limits import CrawlLimits, PageBudget, may_end, progress
from krowlspider.job.status import Progress, status_line
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.job.flights import Flights


def test_a_timer_that_ends_early_gives_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = Mock()
    stats.get_value.return_value = 0
    progress = Progress(Mock(), stats, lambda: (Counter(), 0), 100.0, CrawlLimits())
    monkeypatch.setattr(progress, "publish", lambda: None)
    monkeypatch.setattr("krowlspider.job.status.pause_reason", lambda _: "")
    job = progress._job
    job.frontier.queued = job.frontier.deferred_queued = 0
    job.frontier.counters = Counter()
    job.frontier.schedule.host_count = job.frontier.schedule.count_due.return_value = 0
    job.archive.stats.bytes_written = 0
    times = (109.9995, 110.0, 119.9991, 120.0, 130.0)
    assert [now for now in times if progress.due_line(now, 10.0)] == [109.9995, 119.9991, 130.0]


@pytest.mark.parametrize(
    ("due", "reason"), [(PUT_OFF_HERE, "paused or blocked"), (86_450.0, "within its delay")]
)
def test_hosts_that_a_person_holds_are_not_within_a_delay(due: float, reason: str) -> None:
    stats, job = Mock(), Mock(is_paused=False, full=None)
    stats.get_value.return_value = 0
    job.outages.is_out = job.memory.keeps_out = False
    job.frontier.queued, job.frontier.deferred_queued = 5, 0
    job.frontier.schedule.host_count = 2
    job.frontier.counters = Counter()
    job.frontier.schedule.count_due.return_value = 0
    job.frontier.schedule.next_due.return_value = due
    job.frontier.now.return_value = 50.0
    job.archive.stats.bytes_written = 0
    progress = Progress(Crawl(job, None), stats, lambda: (Counter(), 0), 100.0, CrawlLimits())
    assert progress.line(110.0).endswith(f" | every host is {reason}")


def test_a_narrow_terminal_shows_why_nothing_is_sent() -> None:
    """The reason stands before the figures, of which the terminal may cut the last ones."""
    stats, job = Mock(), Mock()
    stats.get_value.return_value = 0
    job.frontier.queued, job.frontier.deferred_queued = 5, 0
    job.frontier.schedule.host_count = 2
    job.frontier.counters = Counter()
    job.frontier.schedule.count_due.return_value = 0
    job.archive.stats.bytes_written = 0
    crawl = Crawl(job, None)
    crawl.stopping = lambda: "stopping, waits for 2 requests (at most 9 s)"
    found = Progress(crawl, stats, lambda: (Counter(done=4), 2), 100.0, CrawlLimits())
    line = "4 pages | stopping, waits for 2 requests (at most 9 s) | 0.0 pages/s | "
    assert found.live_line(101.0).startswith(line)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (CrawlLimits(), "1,204 pages"),
        (CrawlLimits(pages=5000), "1,204 of 5,000 pages, 5 min 15 s left"),
        (CrawlLimits(answers=2600), "1,204 pages, 1,300 of 2,600 answers, 1 min 40 s left"),
        (CrawlLimits(seconds=130), "1,204 pages, 30.0 s left"),
        (CrawlLimits(5000, 2600, 130), "1,204 of 5,000 pages, 1,300 of 2,600 answers, 30.0 s left"),
    ],
)
def test_time_left_is_that_to_the_nearest_limit(limits: CrawlLimits, text: str) -> None:
    assert progress(limits, pages=1204, answers=1300, seconds=100, queued=9) == text


def test_a_paused_crawl_has_no_rate_for_the_time_left() -> None:
    limits = CrawlLimits(5000, 2600, 130)
    text = progress(limits, pages=1204, answers=1300, seconds=100, queued=9, is_paused=True)
    assert text == "1,204 of 5,000 pages, 1,300 of 2,600 answers, 30.0 s left"
    limits.seconds = 0.0
    text = progress(limits, pages=1204, answers=1300, seconds=100, queued=9, is_paused=True)
    assert text == "1,204 of 5,000 pages, 1,300 of 2,600 answers"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (CrawlLimits(pages=1204, last="waits for the last 2 requests (at most 60 s)"), None),
        (
            CrawlLimits(pages=1204, seconds=130, last="waits"),
            "1,204 of 1,204 pages, waits, 30.0 s left",
        ),
        (CrawlLimits(pages=1204), "1,204 of 1,204 pages"),
        (CrawlLimits(seconds=90), "1,204 pages"),
        (CrawlLimits(seconds=130, is_stopping=True), "1,204 pages"),
    ],
)
def test_the_last_requests_are_no_time_that_is_estimated(
    limits: CrawlLimits, text: str | None
) -> None:
    found = progress(limits, pages=1204, answers=0, seconds=100, queued=9)
    assert found == (text or f"1,204 of 1,204 pages, {limits.last}")


@dataclass
class Sent:
    """Requests that were sent, each with its own time limit or None."""

    limits: list[float | None]
    last_sent: float = 100.0

    @property
    def on_the_wire(self) -> int:
        return len(self.limits)

    def time_limits(self, usual: float) -> Iterator[float]:
        return (usual if limit is None else limit for limit in self.limits)


def test_a_crawl_that_ends_counts_its_requests_and_seconds() -> None:
    """The bound is the longest time limit, from the last request or the stop on."""
    now, closing, sent = [100.0], [False], Sent([None, 12.0])
    budget = PageBudget(None)
    last = LastRequests(
        cast("Flights", sent),
        budget,
        is_closing=lambda: closing[0],
        timeout=60.0,
        clock=lambda: now[0],
    )
    assert (last.stop_text(), last.limit_text()) == ("", "")
    budget.left = 0
    assert last.limit_text() == "waits for the last 2 requests (at most 60 s)"
    now[0] = 102.5
    assert last.limit_text() == "waits for the last 2 requests (at most 58 s)"
    sent.last_sent = 102.5
    assert last.limit_text() == "waits for the last 2 requests (at most 60 s)"
    sent.limits = [12.0]
    assert last.limit_text() == "waits for the last request (at most 12 s)"
    now[0] = 120.0
    assert last.limit_text() == "waits for the last request"
    now[0], sent.limits, closing[0] = 100.0, [None, 90.0], True
    assert last.stop_text() == "stopping, waits for 2 requests (at most 1 min 30 s)"
    now[0], sent.limits = 148.5, [90.0]
    assert last.stop_text() == "stopping, waits for 1 request (at most 42 s)"
    now[0] = 191.0
    assert last.stop_text() == "stopping, waits for 1 request"
    sent.limits = []
    assert (last.stop_text(), last.limit_text()) == ("stopping", "")


@pytest.mark.parametrize(
    ("since", "wait", "left"),
    [(0.0, 0.0, "4.0 s left"), (1.0, 0.0, "3.0 s left"), (1.0, 9.0, "9.0 s left"), (5.0, 0.0, "")],
)
def test_time_left_counts_down_while_no_page_ends(since: float, wait: float, left: str) -> None:
    """It is the wait of the hosts at least. A rate that falls with each second would add time."""
    text = progress(
        CrawlLimits(pages=20),
        pages=12,
        answers=0,
        seconds=6 + since,
        queued=9,
        since=since,
        wait=wait,
    )
    assert text == ", ".join(part for part in ("12 of 20 pages", left) if part)


@pytest.mark.parametrize(
    ("due", "lefts"),
    [
        (161.0, ["10.0 s left", "51.0 s left", "41.0 s left", "1.0 s left", "26.6 s left"]),
        (PUT_OFF_HERE, ["10.0 s left", "", "", "", ""]),
    ],
)
def test_the_status_line_knows_when_a_host_is_due(due: float, lefts: list[str]) -> None:
    """And that hosts which a person holds have no such time."""
    stats, job, schedule = Mock(), Mock(is_paused=False, full=None), Mock(host_count=2)
    stats.get_value.return_value = 0
    job.outages.is_out = job.memory.keeps_out = False
    job.frontier.queued, job.frontier.deferred_queued, job.frontier.schedule = 5, 0, schedule
    job.frontier.counters, job.archive.stats.bytes_written = Counter(), 0
    schedule.next_due.return_value, schedule.count_due.return_value = due, 0
    measure = Mock()
    crawl = Progress(Crawl(job, None), stats, measure, 100.0, CrawlLimits(20))
    found = []
    # Some pages end at the last look only. The clock of the job is another one.
    for now, done, in_flight in (
        (110, 10, 1),
        (111, 10, 0),
        (121, 10, 0),
        (161, 10, 0),
        (162, 14, 0),
    ):
        measure.return_value = Counter(done=done), in_flight
        job.frontier.now.return_value = min(now - 1.0, 160.0)
        found.append(crawl.live_line(float(now)).partition(" | ")[0].partition("pages")[2][2:])
    assert found == lefts


def test_without_a_page_no_time_is_estimated() -> None:
    assert progress(CrawlLimits(pages=9), pages=0, answers=0, seconds=1, queued=9) == "0 of 9 pages"
    # Its last request hangs: the rate says nothing of when it ends.
    text = progress(CrawlLimits(pages=9), pages=3, answers=0, seconds=1, queued=0)
    assert text == "3 of 9 pages"


def test_status_line_of_a_large_crawl_is_short() -> None:
    figures = {
        "so_far": progress(CrawlLimits(pages=5000), pages=1204, answers=0, seconds=80, queued=9),
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


@table(
    ("limits", "pages", "queued", "seconds", "expected"),
    [
        (CrawlLimits(), 0, 0, 1, True),
        (CrawlLimits(), 0, 1, 1, False),
        (CrawlLimits(), 100, 121, 100, False),
        (CrawlLimits(), 100, 120, 100, True),
        (CrawlLimits(), 100, None, 100, False),
        (CrawlLimits(pages=220), 100, 10_000, 100, True),
        (CrawlLimits(pages=221), 100, 10_000, 100, False),
        (CrawlLimits(pages=220), 100, None, 100, True),
        (CrawlLimits(seconds=220), 1, 10_000, 100, True),
        (CrawlLimits(seconds=221), 1, 10_000, 100, False),
    ],
)
def test_a_crawl_that_may_soon_end_is_ending(
    limits: CrawlLimits, pages: int, queued: int | None, seconds: float, expected: bool
) -> None:
    assert may_end(limits, pages, queued, seconds) is expected
