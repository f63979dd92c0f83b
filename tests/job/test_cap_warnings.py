"""The log names the hosts whose URLs a cap drops, in a few lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from krowlspider.frontier.entry_queues import NAMES_MAX, CapRefusals
from krowlspider.job.limits import NAMED, PERIOD, CapWarnings

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = {
    "KROWL_FRONTIER_MAX": 1000,
    "KROWL_DOMAIN_BUDGET": 7,
}


@dataclass
class Refusing:
    """The counts of a frontier that refuses URLs."""

    counters: Counter[str] = field(default_factory=Counter)
    refused: CapRefusals = field(default_factory=CapRefusals)

    def refuse(self, cap: str, name: str, count: int) -> None:
        self.counters[f"dropped/{cap}"] += count
        for _ in range(count):
            self.refused.add(cap, name)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def frontier() -> Refusing:
    return Refusing()


@pytest.fixture
def look(frontier: Refusing) -> Callable[[], None]:
    """Return a function that looks once PERIOD seconds are over."""
    clock = Clock()
    warnings = CapWarnings(frontier, Settings(VALUES), clock)

    def after_a_while() -> None:
        warnings.look()
        clock.now += PERIOD
        warnings.look()

    return after_a_while


def test_a_domain_is_named_once_with_setting_count_and_hosts(
    frontier: Refusing, look: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Though more of its URLs are dropped."""
    for _ in range(3):
        frontier.refuse("domain_share", "www.a.com", 200)
        frontier.refuse("domain_share", "a.com", 50)
        look()
    (line,) = caplog.messages
    assert line == (
        "Share of a domain of KROWL_FRONTIER_MAX = 1000: 250 URLs dropped so far (www.a.com: 200,"
        " a.com: 50). They are not marked as seen: raise it and start again with the same JOBDIR"
        " and seeds. That queues dropped seeds, and links when another page names them. Links of"
        " pages that are done need a new JOBDIR, or scrapy frontier JOBDIR --import FILE"
    )
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_one_domain_in_ten_seconds_is_named(
    frontier: Refusing, look: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The one that has lost the most URLs."""
    for number in range(50):
        frontier.refuse("domain_budget", f"{number}.test", number + 1)
    look()
    look()
    starts = [line.partition(". They")[0] for line in caplog.messages]
    assert starts == [
        "KROWL_DOMAIN_BUDGET = 7: 50 URLs dropped so far (49.test: 50)",
        "KROWL_DOMAIN_BUDGET = 7: 49 URLs dropped so far (48.test: 49)",
    ]


@pytest.mark.parametrize(
    ("cap", "named"),
    [("frontier", "KROWL_FRONTIER_MAX = 1000"), ("outbox", "Room for URLs of other nodes")],
)
def test_a_cap_of_the_crawl_is_named_once(
    frontier: Refusing,
    look: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
    cap: str,
    named: str,
) -> None:
    for number in range(3):
        frontier.refuse(cap, f"{number}.test", 4)
        look()
    assert [line.partition(". They")[0] for line in caplog.messages] == [
        f"{named}: 4 URLs dropped so far (0.test: 4)"
    ]


def test_the_end_has_a_line_for_each_cap(caplog: pytest.LogCaptureFixture) -> None:
    """With what was dropped since the start, and the hosts that have lost the most."""
    frontier = Refusing()
    frontier.counters["dropped/domain_budget"] = 5
    warnings = CapWarnings(frontier, Settings(VALUES), Clock())
    frontier.counters["dropped/robots"] += 1
    for number in range(NAMED + 1):
        frontier.refuse("domain_share", f"{number}.test", number + 1)
    frontier.refuse("domain_budget", "a.test", 3)
    warnings.end()
    starts = sorted(line.partition(". They")[0] for line in caplog.messages)
    most = "5.test: 6, 4.test: 5, 3.test: 4, 2.test: 3, 1.test: 2"
    share = "Share of a domain of KROWL_FRONTIER_MAX = 1000"
    assert starts == [
        "KROWL_DOMAIN_BUDGET = 7: 3 URLs dropped in this run (a.test: 3)",
        f"{share}: 21 URLs dropped in this run ({most}, other hosts: 1)",
    ]


def test_hosts_without_end_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    """A wildcard domain takes no memory, and the sum stays exact."""
    frontier = Refusing()
    warnings = CapWarnings(frontier, Settings(VALUES), Clock())
    for number in range(3 * NAMES_MAX):
        frontier.refuse("outbox", f"{number}.evil.test", 1)
        if not number % 100:
            frontier.refuse("outbox", "good.test", 1)
    assert len(frontier.refused.hosts("outbox")) <= NAMES_MAX
    warnings.end()
    (line,) = caplog.messages
    assert line.startswith(
        "Room for URLs of other nodes: 3,030 URLs dropped in this run (good.test: 30"
    )
    assert "other hosts: 2996)" in line
