"""The answers of several processes are put together as those of one."""

from __future__ import annotations

from typing import Any

from krowlspider.extensions.live_page import FIELDS
from krowlspider.job.status import reasons_of_all
from krowlspider.node.figures import (
    OneProcess,
    history_of_all,
    hosts_of_all,
    own_counts,
    pages_of_all,
    status_of_all,
)


def process(**status: Any) -> OneProcess:
    sums = ("queued", "deferred", "hosts", "due", "in_flight", "archive_mb")
    found = {**dict.fromkeys(sums, 0), "statuses": {}, "failed": {}, "paused": "", "seconds": 1.0}
    found |= {"policies": ""}
    found |= status
    made = OneProcess()
    made.take(found, found["seconds"], own_counts(found))
    return made


def sample(time: float, rate: float, lag: float = 0.0, queued: float = 0.0) -> list[float]:
    values = {"time": time, "pages_per_second": rate, "lag_ms": lag, "queued": queued}
    return [values.get(name, 0.0) for name in FIELDS]


def test_figures_are_sums_and_counts_are_added_by_name() -> None:
    total = status_of_all(
        {
            "p1": process(counters={"done": 3}, statuses={"200": 2, "404": 1}, seconds=9.0),
            "p2": process(counters={"done": 4, "dropped/robots": 1}, statuses={"200": 4}, queued=5),
        }
    )
    assert (total["done"], total["seconds"], total["queued"]) == (7, 9.0, 5)
    assert total["statuses"] == {"200": 6, "404": 1}
    assert total["dropped"] == {"robots": 1}
    assert total["fetched"] == {"page": 7}


def test_counts_of_memory_are_kept_over_a_restart() -> None:
    one = process(statuses={"200": 5}, archive_mb=2.0, seconds=50.0)
    one.take(one.status | {"statuses": {"200": 1}, "seconds": 3.0}, 3.0, {"statuses/200": 1})
    assert status_of_all({"p1": one})["statuses"] == {"200": 6}


def test_a_reason_names_the_processes_it_does_not_hold_for_all_of() -> None:
    assert reasons_of_all({"p1": "waits", "p2": "waits"}) == "waits"
    assert reasons_of_all({"p1": "", "p2": "waits"}) == "p2 waits"
    assert reasons_of_all({"p1": "", "p2": ""}) == ""


def test_sheets_that_one_process_cannot_use_are_named() -> None:
    states = ("1 sheet, 0a1b in force", "not in force: line 2: bad")
    every = {name: process(policies=each) for name, each in zip(("p1", "p2"), states, strict=True)}
    assert status_of_all(every)["policies"] == f"p1 {states[0]}; p2 {states[1]}"
    assert status_of_all({"p1": every["p1"]})["policies"] == states[0]


def test_hosts_are_sorted_over_all_processes() -> None:
    answers = {"p1": [{"host": "a", "due_in": 1.0}, {"host": "b", "due_in": None}]}
    answers["p2"] = [{"host": "c", "due_in": 5.0}]
    assert [row["host"] for row in hosts_of_all(answers, "due_in", 2)] == ["b", "c"]


def test_pages_of_all_processes_alternate() -> None:
    answers = {"p1": [{"url": "1"}], "p2": [{"url": "2"}, {"url": "3"}]}
    assert [row["url"] for row in pages_of_all(answers, 3)] == ["1", "2", "3"]


def test_samples_are_added_by_their_times() -> None:
    """A process that was started again takes samples more often; one that is gone has no rate."""
    one = {"fields": FIELDS, "samples": [sample(at, 5.0, 3.0, 10.0) for at in (0, 10, 20, 30)]}
    other = {"fields": FIELDS, "samples": [sample(at, 1.0, 9.0, 1.0) for at in (11, 13, 15)]}
    found = history_of_all([one, other])["samples"]
    assert [row[0] for row in found] == [0, 11, 13, 15, 20, 30]
    rate, queued = FIELDS.index("pages_per_second"), FIELDS.index("queued")
    assert [row[rate] for row in found] == [5, 6, 6, 6, 6, 6]
    assert [row[queued] for row in found] == [10, 11, 11, 11, 11, 11]
    late = {"fields": FIELDS, "samples": [sample(at, 5.0) for at in (0, 40)]}
    assert [row[rate] for row in history_of_all([late, other])["samples"]][-1] == 5.0
