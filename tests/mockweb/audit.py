"""The politeness audit of a request log: what a site owner could complain of.

`python -m tests.mockweb.audit LOG --delay 0.25 [--graph TEXT]` prints the violations, one a line,
and exits with 1 when there are any.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mockweb.graph import Graph
from tests.mockweb.log import Entry, read_log
from tests.mockweb.robots import allowed_at, delay_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TOLERANCE_S = 0.005
"""How late the server may notice that a client gave up, on a busy machine."""


def by_host(entry: Entry) -> str:
    """The default unit of politeness: the Host header, port included."""
    return entry.host


def violations(
    entries: Iterable[Entry],
    *,
    min_delay: float | Callable[[str], float],
    by: Callable[[Entry], str] = by_host,
    allowed: Callable[[str, str], bool] | None = None,
    tolerance: float = TOLERANCE_S,
) -> list[str]:
    """What is impolite in a log, in the order of time, one line each; empty when nothing is.

    Per `by` (a host, a domain, an address): never two requests at a time, and from the end of
    one to the start of the next at least `min_delay` seconds (also by host), or the Retry-After
    of an answer 429 or 503. Per host: robots.txt answered before anything else is asked.
    `allowed(host, path)`: nothing asked that it denies. The end of a complete answer is exact:
    only aborted ones and delays get the `tolerance`, in seconds.
    """
    ordered = sorted(entries, key=lambda entry: entry.start)
    groups: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in ordered:
        groups[by(entry)].append(entry)
    found: list[tuple[float, str]] = []
    for group in groups.values():
        found.extend(_haste(group, min_delay, tolerance))
    found.extend(_robots(ordered, allowed))
    return [text for _, text in sorted(found)]


def _haste(
    group: list[Entry], min_delay: float | Callable[[str], float], tolerance: float
) -> Iterator[tuple[float, str]]:
    last = group[0]
    free_at = 0.0
    for entry in group[1:]:
        if last.status in (429, 503):
            free_at = max(free_at, last.end + last.retry_after)
        delay = min_delay(last.host) if callable(min_delay) else min_delay
        gap = entry.start - last.end
        named = f"{entry.url}, after {last.url}"
        if gap < (0 if last.complete else -tolerance):
            yield entry.start, f"overlap of {-gap * 1e3:.1f} ms: {named}"
        elif gap < delay - tolerance:
            yield entry.start, f"gap of {gap:.3f} s instead of {delay:.3f} s: {named}"
        elif entry.start < free_at - tolerance:
            yield entry.start, f"{free_at - entry.start:.3f} s before Retry-After is over: {named}"
        if entry.end >= last.end:
            last = entry


def _robots(
    ordered: list[Entry], allowed: Callable[[str, str], bool] | None
) -> Iterator[tuple[float, str]]:
    known_at: dict[str, float] = {}
    for entry in ordered:
        if entry.path == "/robots.txt":
            known_at[entry.host] = min(known_at.get(entry.host, entry.end), entry.end)
        elif entry.start < known_at.get(entry.host, float("inf")):
            yield entry.start, f"before robots.txt was answered: {entry.url}"
        if allowed is not None and not allowed(entry.host, entry.path):
            yield entry.start, f"disallowed by robots.txt: {entry.url}"


def main() -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mockweb.audit", description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--delay", type=float, required=True, help="seconds between requests")
    parser.add_argument("--graph", type=Graph.parse, help="judge robots.txt and Crawl-delay by it")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE_S, help="seconds")
    args = parser.parse_args()
    graph: Graph | None = args.graph
    delay: float = args.delay
    found = violations(
        read_log(args.log),
        min_delay=delay if graph is None else lambda host: delay_at(graph, host, delay),
        allowed=None if graph is None else lambda host, path: allowed_at(graph, host, path),
        tolerance=args.tolerance,
    )
    print("\n".join([*found, f"{len(found)} violations"]))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
