"""Measure a crawl with more hosts, with more requests in flight, and with a slower web."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench import crawl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.pages import Shape

# Pages of the web, for any number of hosts: in a larger web, a page has more new links.
_PAGES = 400_000
# Least seconds of a run whose rate is limited by the latency.
_LASTING = 60


def hosts(shape: Shape, counts: Sequence[int], *, pages: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each number of hosts. The web has the same number of pages with each."""
    # No page is refused because the queue of its host is full.
    settings = {"KROWL_HOST_QUEUE_MAX": _PAGES}
    return [
        _row(
            replace(shape, hosts=count, per_host=max(1, _PAGES // count)),
            crawl.Plan(pages, rounds, settings=settings),
        )
        for count in counts
    ]


def transit(
    shape: Shape,
    concurrencies: Sequence[int],
    latencies: Sequence[float],
    *,
    pages: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """Return a row for each number of requests in flight and each latency of the server in seconds.

    The web has the same number of pages with each. It has more hosts if the requests need them.
    """
    rows = []
    for concurrency, latency in _pairs(concurrencies, latencies):
        count = max(shape.hosts, 2 * concurrency)
        per_host = shape.hosts * shape.per_host // count
        slow = replace(shape, hosts=count, per_host=per_host, latency=latency)
        least = _LASTING * concurrency / latency if latency else pages
        rows.append(_row(slow, crawl.Plan(min(pages, int(least)), rounds, concurrency)))
    return rows


def _pairs(concurrencies: Sequence[int], latencies: Sequence[float]) -> Iterator[tuple[int, float]]:
    for latency in latencies:
        for concurrency in concurrencies:
            yield concurrency, latency


def _row(shape: Shape, plan: crawl.Plan) -> dict[str, Any]:
    figures = crawl.measure(shape, ["krowlspider"], plan)
    found = figures["crawlers"]["krowlspider"]
    row = {
        "hosts": shape.hosts,
        "concurrency": plan.concurrency,
        "latency": shape.latency,
        **{
            key: found[key]["median"]
            for key in (
                "pages",
                "pages_per_cpu_second",
                "pages_per_second",
                "rss_mb",
                "requests_per_page",
                "connections_per_request",
                "lag_p99_ms",
                "lag_max_ms",
            )
        },
    }
    if shape.latency:
        # Count requests, not pages: robots.txt has the latency too. The run of one page, which is
        # subtracted as the start, made two requests.
        run = found["runs"][0]
        seconds = run["seconds"] - run["start_seconds"] + 2 * shape.latency
        row["of_permitted"] = round(run["requests"] * shape.latency / plan.concurrency / seconds, 3)
    return row


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["  ".join(f"{name:>20}" for name in names)]
    lines += ["  ".join(f"{row.get(name, ''):>20}" for name in names) for row in rows]
    return "\n".join(lines)
