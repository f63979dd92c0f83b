"""The metrics of all processes: no sum falls, and each gauge names its process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from krowlspider.job.metrics import registry, text
from krowlspider.job.monitoring.access import METRICS, note_url
from krowlspider.node import metrics as serving
from krowlspider.node.metrics import SIZE_MAX, ProcessMetrics, Sums, TreeMetrics, read
from krowlspider.node.tree import Tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def said_by(start: int, done: int, *, slow: int = 0, queued: int = 5, dropped: int = 0) -> str:
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


def process(start: int, done: int, **more: int) -> ProcessMetrics:
    return read(said_by(start, done, **more))


def values(said: str) -> dict[str, float]:
    """Each series by the client's own parser, which refuses what is no metric."""
    found = {}
    for family in text_string_to_metric_families(said):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_counters_are_added_and_gauges_have_their_process() -> None:
    answers = {"p1": process(1, 10, slow=1), "p2": process(2, 20, queued=7, dropped=3)}
    found = values(Sums().of(answers))
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
    silent = values(sums.of({"p1": process(1, 11)}))
    assert silent["krowl_frontier_done_total"] == 31
    assert silent["krowl_frontier_dropped_total{reason=url}"] == 3
    assert "krowl_frontier_queued{process=p2}" not in silent
    # The next process has done more already than the last one had.
    again = values(sums.of({"p1": process(1, 11), "p2": process(3, 25)}))
    assert again["krowl_frontier_done_total"] == 56
    assert again["krowl_frontier_dropped_total{reason=url}"] == 3
    assert values(sums.of({}))["krowl_frontier_done_total"] == 56


@asynccontextmanager
async def answering(folder: Path, body: bytes, *, ends: bool = True) -> AsyncIterator[None]:
    """A process with this JOBDIR whose answer is ``body``, after which it may send no end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)
            if not ends:
                await reader.read()
        finally:
            writer.close()

    folder.mkdir(exist_ok=True)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        note_url(folder, METRICS, f"http://127.0.0.1:{port}/metrics")
        yield


GOOD = said_by(1, 10).encode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (GOOD + b"x" * SIZE_MAX, "has more than 4,000,000 bytes"),
        (b"<!doctype html>\n", "not a sample of a metric: '<!doctype html>'"),
        (GOOD + b"\nkrowl_fetch_seconds_count{", "not a sample of krowl_fetch_seconds"),
        (GOOD + b"\nkrowl_fetch_seconds_count ten", "could not convert"),
        (GOOD + b"\nkrowl_fetch_seconds_count\xff 1", "can't decode"),
        (b"", "has no metrics"),
    ],
)
def test_unusable_answer_of_a_process_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes, why: str
) -> None:
    """The other processes are shown. The next warning comes after it has answered well again."""
    metrics = TreeMetrics(Tree(tmp_path), "/metrics", ["p1", "p2"], lambda: 0)

    async def ask(body: bytes) -> dict[str, float]:
        async with answering(tmp_path / "p1", body), answering(tmp_path / "p2", GOOD):
            return values(await metrics._ask_all())

    for _ in range(2):
        found = asyncio.run(ask(body))
        assert found["krowl_node_process_up{process=p1}"] == 0
        assert found["krowl_node_process_up{process=p2}"] == 1
        assert found["krowl_frontier_done_total"] == 10
    (line,) = (record.getMessage() for record in caplog.records)
    assert "process p1" in line
    assert why in line
    assert asyncio.run(ask(GOOD))["krowl_frontier_done_total"] == 20
    asyncio.run(ask(body))
    assert len(caplog.records) == 2


def test_a_process_that_does_not_answer_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has noted no address, or its answer does not end in time."""
    monkeypatch.setattr(serving, "_METRICS_TIMEOUT", 0.05)
    metrics = TreeMetrics(Tree(tmp_path), "/metrics", ["p1", "p2"], lambda: 4)

    async def ask() -> dict[str, float]:
        async with answering(tmp_path / "p2", GOOD, ends=False):
            return values(await metrics.text())

    assert asyncio.run(ask()) == {
        **{f"krowl_node_process_up{{process=p{number}}}": 0 for number in (1, 2)},
        "krowl_node_restarts_total": 4,
    }


async def test_calls_by_grpc_are_metrics_of_the_node(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    metrics = TreeMetrics(Tree(tmp_path), "/metrics", [], lambda: 0, lambda: counts)
    counts.update(call=7, token=2, limit=1)
    assert values(await metrics.text()) == {
        "krowl_node_restarts_total": 0,
        "krowl_node_grpc_calls_total": 7,
        "krowl_node_grpc_refused_total{reason=limit}": 1,
        "krowl_node_grpc_refused_total{reason=token}": 2,
    }
