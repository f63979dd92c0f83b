"""The answers of several processes are put together as those of one."""

from __future__ import annotations

from typing import Any

from extensions.live_page import FIELDS
from krowlspider.crawl.status import reasons_of_all
from krowlspider.node.serving.together import (
    history_of_all,
    hosts_of_all,
    pages_of_all,
    status_of_all,
)


def status(**more: Any) -> dict[str, Any]:
    sums = ("done", "queued", "deferred", "hosts", "due", "in_flight", "archive_mb")
    counts: dict[str, Any] = {name: {} for name in ("fetched", "dropped", "statuses", "failed")}
    return {**dict.fromkeys(sums, 0), **counts, "seconds": 1.0, "paused": "", **more}


def sample(time: float, rate: float, lag: float = 0.0) -> list[float]:
    values = {"time": time, "pages_per_second": rate, "lag_ms": lag}
    return [values.get(name, 0.0) for name in FIELDS]


def test_figures_are_sums_and_counts_are_added_by_name() -> None:
    total = status_of_all(
        {
            "p1": status(done=3, statuses={"200": 2, "404": 1}, seconds=9.0),
            "p2": status(done=4, statuses={"200": 4}, dropped={"robots": 1}),
        }
    )
    assert (total["done"], total["seconds"]) == (7, 9.0)
    assert total["statuses"] == {"200": 6, "404": 1}
    assert total["dropped"] == {"robots": 1}


def test_a_reason_names_the_processes_it_does_not_hold_for_all_of() -> None:
    assert reasons_of_all({"p1": "waits", "p2": "waits"}) == "waits"
    assert reasons_of_all({"p1": "", "p2": "waits"}) == "p2 waits"
    assert reasons_of_all({"p1": "", "p2": ""}) == ""


def test_hosts_are_sorted_over_all_processes() -> None:
    answers = {"p1": [{"host": "a", "due_in": 1.0}, {"host": "b", "due_in": None}]}
    answers["p2"] = [{"host": "c", "due_in": 5.0}]
    assert [row["host"] for row in hosts_of_all(answers, "due_in", 2)] == ["b", "c"]


def test_pages_of_all_processes_alternate() -> None:
    answers = {"p1": [{"url": "1"}], "p2": [{"url": "2"}, {"url": "3"}]}
    assert [row["url"] for row in pages_of_all(answers, 3)] == ["1", "2", "3"]


def test_samples_are_added_from_the_last_one_back() -> None:
    one = {"fields": FIELDS, "samples": [sample(1, 5.0), sample(11, 7.0, 3.0)]}
    other = {"fields": FIELDS, "samples": [sample(10.5, 1.0, 9.0)]}
    assert history_of_all([one, other])["samples"] == [sample(1, 5.0), sample(11, 8.0, 9.0)]
