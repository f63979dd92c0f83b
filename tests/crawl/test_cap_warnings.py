"""The log names the hosts whose URLs a cap drops, in a few lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings

from krowlspider.crawl.cap_warnings import NAMED, PERIOD, CapWarnings

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = {
    "KROWL_FRONTIER_MAX": 1000,
    "KROWL_DOMAIN_SHARE": 0.1,
    "KROWL_DOMAIN_BUDGET": 7,
    "KROWL_OUTBOX_MAX": 9,
}


@dataclass
class Refusing:
    """The counts of a frontier that refuses URLs."""

    counters: Counter[str] = field(default_factory=Counter)
    refused: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def refuse(self, cap: str, name: str, count: int) -> None:
        self.counters[f"dropped/{cap}"] += count
        self.refused[cap][name] += count


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


def test_a_host_is_named_with_setting_and_count(
    frontier: Refusing, look: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Once, though more of its URLs are dropped."""
    for _ in range(3):
        frontier.refuse("domain_share", "a.test", 250)
        look()
    (line,) = caplog.messages
    assert line.startswith("KROWL_DOMAIN_SHARE = 0.1: 250 URLs of a.test dropped so far. They")
    assert line.endswith("need a new JOBDIR, or scrapy frontier JOBDIR --import FILE")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_one_host_in_ten_seconds_is_named(
    frontier: Refusing, look: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The one that has lost the most URLs."""
    for number in range(50):
        frontier.refuse("domain_budget", f"{number}.test", number + 1)
    look()
    look()
    starts = [line.partition(" dropped")[0] for line in caplog.messages]
    assert starts == [
        "KROWL_DOMAIN_BUDGET = 7: 50 URLs of 49.test",
        "KROWL_DOMAIN_BUDGET = 7: 49 URLs of 48.test",
    ]


@pytest.mark.parametrize(
    ("cap", "setting"), [("frontier", "FRONTIER_MAX = 1000"), ("outbox", "OUTBOX_MAX = 9")]
)
def test_a_cap_of_the_crawl_names_no_host(
    frontier: Refusing,
    look: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
    cap: str,
    setting: str,
) -> None:
    frontier.refuse(cap, "", 12)
    look()
    assert [line.partition(". They")[0] for line in caplog.messages] == [
        f"KROWL_{setting}: 12 URLs dropped so far"
    ]


def test_the_end_has_a_line_for_each_cap(caplog: pytest.LogCaptureFixture) -> None:
    """With what was dropped since the start, and the hosts that have lost the most."""
    frontier = Refusing()
    frontier.refuse("domain_budget", "before.test", 5)
    frontier.refused.clear()
    warnings = CapWarnings(frontier, Settings(VALUES), Clock())
    frontier.counters["dropped/robots"] += 1
    for number in range(NAMED + 1):
        frontier.refuse("domain_share", f"{number}.test", number + 1)
    frontier.refuse("domain_budget", "a.test", 3)
    warnings.end()
    starts = sorted(line.partition(" dropped")[0] for line in caplog.messages)
    assert starts == [
        "KROWL_DOMAIN_BUDGET = 7: 3 URLs (a.test: 3)",
        "KROWL_DOMAIN_SHARE = 0.1: 21 URLs (5.test: 6, 4.test: 5, 3.test: 4, 2.test: 3, 1.test: 2)",
    ]
