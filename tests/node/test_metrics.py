"""The metrics of all processes: no sum falls, and each gauge names its process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from krowlspider.crawl.metrics.registry import registry, text
from krowlspider.node.serving.metrics import Metrics, Sums
from krowlspider.node.tree import Tree

if TYPE_CHECKING:
    from pathlib import Path


def process(start: int, done: int, *, slow: int = 0, queued: int = 5, dropped: int = 0) -> str:
    """The metrics of a process that started at a time and has done so many pages."""
    stats = {
        "krowl/frontier/done_count": done,
        "krowl/frontier/queued": queued,
        **({"krowl/frontier/dropped_count/url": dropped} if dropped else {}),
    }
    made = text(registry(lambda: stats, {"spider": "broad"})).decode()
    lines = [each for each in made.splitlines() if "process_start_time_seconds" not in each]
    return "\n".join(
        [
            *lines,
            "# HELP process_start_time_seconds Start.",
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {start}.0",
            "# HELP krowl_fetch_seconds Time.",
            "# TYPE krowl_fetch_seconds histogram",
            f'krowl_fetch_seconds_bucket{{le="1"}} {done}.0',
            f'krowl_fetch_seconds_bucket{{le="+Inf"}} {done + slow}.0',
            f"krowl_fetch_seconds_count {done + slow}.0",
            f"krowl_fetch_seconds_sum {done / 2}",
        ]
    )


def read(said: str) -> dict[str, float]:
    """Each series by the client's own parser, which refuses what is no metric."""
    found = {}
    for family in text_string_to_metric_families(said):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_counters_are_added_and_gauges_have_their_process() -> None:
    texts = {"p1": process(1, 10, slow=1), "p2": process(2, 20, queued=7, dropped=3)}
    found = read(Sums().of(texts))
    assert found["krowl_frontier_done_total"] == 30
    assert found["krowl_frontier_dropped_total{reason=url}"] == 3
    assert found["krowl_fetch_seconds_bucket{le=1}"] == 30
    assert found["krowl_fetch_seconds_bucket{le=+Inf}"] == 31
    assert found["krowl_fetch_seconds_count"] == 31
    assert found["krowl_fetch_seconds_sum"] == 15
    assert found["krowl_frontier_queued{process=p1}"] == 5
    assert found["krowl_frontier_queued{process=p2}"] == 7
    assert found["krowl_crawl_info{process=p1,spider=broad}"] == 1
    assert "krowl_frontier_queued" not in found


def test_no_counter_falls_when_a_process_dies_or_is_silent() -> None:
    """Prometheus would take a lower sum for a restart of all processes."""
    sums = Sums()
    sums.of({"p1": process(1, 10), "p2": process(2, 20, dropped=3)})
    silent = read(sums.of({"p1": process(1, 11)}))
    assert silent["krowl_frontier_done_total"] == 31
    assert silent["krowl_frontier_dropped_total{reason=url}"] == 3
    assert "krowl_frontier_queued{process=p2}" not in silent
    # The next process has done more already than the last one had.
    again = read(sums.of({"p1": process(1, 11), "p2": process(3, 25)}))
    assert again["krowl_frontier_done_total"] == 56
    assert again["krowl_frontier_dropped_total{reason=url}"] == 3
    assert read(sums.of({}))["krowl_frontier_done_total"] == 56


def test_a_process_that_does_not_answer_is_down(tmp_path: Path) -> None:
    metrics = Metrics(Tree(tmp_path, "krowlspider"), "/metrics", ["p1"], lambda: 4)
    found = read(asyncio.run(metrics.text()))
    assert found == {"krowl_node_process_up{process=p1}": 0, "krowl_node_restarts_total": 4}
