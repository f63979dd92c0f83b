"""The politeness audit of a request log: violations that a site owner could complain about.

`python -m tests.mockweb.audit LOG --delay 0.25 [--graph TEXT]` prints the violations, one a line,
and exits with 1 when there are any.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mockweb.graph import Graph
from tests.mockweb.log import Entry, read_log
from tests.mockweb.robots import allowed_at, delay_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Rules = Callable[[str], bool]
    """Returns whether a path, with its query, may be fetched."""

TOLERANCE_S = 0.005
"""How late the server may notice that a client gave up, on a busy machine."""

RETRY_AFTER_MAX = 3600.0
"""Cap in seconds on Retry-After, and on any other wait for a host in throttling."""

LOST_S = 1.5
"""A kill loses what a crawler learned in these last seconds: a commit interval, and a commit."""

_THROTTLING = (429, 503)
_NEWEST = 0.3
"""Weight of the newest latency in the average from which the delay is computed."""


def by_host(entry: Entry) -> str:
    """Return the Host header, port included: the default unit of politeness."""
    return entry.host


def by_address(entry: Entry) -> str:
    """Return the address of the server that was asked."""
    return entry.address


def by_last_labels(entry: Entry) -> str:
    """Return the last two labels of a host name, or the whole host if it is an address."""
    name = entry.host.rpartition(":")[0] or entry.host
    labels = name.split(".")
    return name if labels[-1].isdigit() else ".".join(labels[-2:])


@dataclass(frozen=True, slots=True)
class Crowd:
    """Allow at most `most` requests at a time with the same `by`. `of` is its name in messages."""

    of: str
    by: Callable[[Entry], str]
    most: float


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Require a delay of `factor` times the host's average latency, at most `most` seconds."""

    factor: float
    most: float


def violations(
    entries: Iterable[Entry],
    *,
    min_delay: float | Callable[[str], float],
    by: Callable[[Entry], str] = by_host,
    allowed: Callable[[str, str], bool] | None = None,
    stated: Callable[[Entry], Rules | None] | None = None,
    crowds: Sequence[Crowd] = (),
    adaptive: Adaptive | None = None,
    deaths: Sequence[float] = (),
    tolerance: float = TOLERANCE_S,
) -> list[str]:
    """Return the violations of politeness in a log, in the order of time, one line each.

    - `by`: the unit of politeness (host, domain or address). It gets one request at a time. From
      the end of one to the start of the next at least `min_delay` seconds pass (a number, or a
      function of the host). Each answer 429 or 503 doubles this delay, each other one halves it
      again. Retry-After of such an answer is obeyed.
    - A host's robots.txt is answered, without a server error, before its first page is requested.
    - `allowed(host, path)`: no request is made that it denies.
    - `stated(entry)`: the rules in an answered robots.txt. They hold until its next answer; None
      keeps the rules before.
    - `deaths`: the times at which the crawler was killed. It may forget what it learned just
      before.
    - `tolerance`: seconds of tolerance for delays and for aborted answers. The end of a complete
      answer is exact.
    """
    ordered = sorted(entries, key=lambda entry: entry.start)
    groups: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in ordered:
        groups[by(entry)].append(entry)
    found: list[tuple[float, str]] = []
    delay_of = min_delay if callable(min_delay) else lambda _: min_delay
    for group in groups.values():
        found.extend(_haste(group, Slowness(delay_of, adaptive, deaths), tolerance))
    for crowd in crowds:
        found.extend(_crowding(ordered, crowd, tolerance))
    found.extend(_robots(ordered, allowed, stated))
    return [text for _, text in sorted(found)]


class Slowness:
    """Computes the delay that a host's answers demand from a crawler."""

    def __init__(
        self,
        delay_of: Callable[[str], float],
        adaptive: Adaptive | None = None,
        deaths: Sequence[float] = (),
    ):
        self._delay_of, self._adaptive, self._deaths = delay_of, adaptive, deaths
        self._average = 0.0
        self._doublings = 0

    def learn(self, entry: Entry) -> None:
        """Take one more answer, in the order in which they ended."""
        if not (entry.status and entry.complete):
            return
        lost = any(entry.end <= death < entry.end + LOST_S for death in self._deaths)
        latency = entry.end - entry.start
        before = self._average
        average = before + _NEWEST * (latency - before) if before else latency
        self._average = min(before, average) if lost else average
        if entry.status not in _THROTTLING:
            self._doublings = max(0, self._doublings - 1)
        elif not lost:
            self._doublings += 1

    def gap(self, host: str) -> float:
        """Return the least seconds to the next request."""
        delay = self._delay_of(host)
        if self._adaptive is not None:
            delay = max(delay, min(self._average * self._adaptive.factor, self._adaptive.most))
        # After 32 doublings any delay is at the cap.
        return max(delay, min(delay * 2.0 ** min(self._doublings, 32), RETRY_AFTER_MAX))


def _haste(group: list[Entry], slowness: Slowness, tolerance: float) -> Iterator[tuple[float, str]]:
    last = group[0]
    slowness.learn(last)
    free_at = 0.0
    for entry in group[1:]:
        if last.status in _THROTTLING:
            free_at = max(free_at, last.end + min(last.retry_after, RETRY_AFTER_MAX))
        delay = slowness.gap(last.host)
        gap = entry.start - last.end
        named = f"{entry.url}, after {last.url}"
        if gap < (0 if last.complete else -tolerance):
            yield entry.start, f"overlap of {-gap * 1e3:.1f} ms: {named}"
        elif gap < delay - tolerance:
            yield entry.start, f"gap of {gap:.3f} s instead of {delay:.3f} s: {named}"
        elif entry.start < free_at - tolerance:
            yield entry.start, f"{free_at - entry.start:.3f} s before Retry-After is over: {named}"
        slowness.learn(entry)
        if entry.end >= last.end:
            last = entry


def _crowding(ordered: list[Entry], crowd: Crowd, tolerance: float) -> Iterator[tuple[float, str]]:
    """Yield each request that starts while the most allowed are in flight already."""
    ends: defaultdict[str, list[float]] = defaultdict(list)
    for entry in ordered:
        unit = crowd.by(entry)
        busy = [end for end in ends[unit] if end > entry.start]
        if len(busy) >= crowd.most:
            what = f"{len(busy) + 1} in flight instead of {crowd.most}"
            yield entry.start, f"{what} for the {crowd.of} {unit}: {entry.url}"
        ends[unit] = [*busy, entry.end if entry.complete else entry.end - tolerance]


def _robots(
    ordered: list[Entry],
    allowed: Callable[[str, str], bool] | None,
    stated: Callable[[Entry], Rules | None] | None,
) -> Iterator[tuple[float, str]]:
    # Rules apply from the end of their answer; a request is judged by its start.
    order = count()
    answers = [
        (e.end, next(order), e) for e in ordered if e.path == "/robots.txt" and _sets_rules(e)
    ]
    asked = [(e.start, next(order), e) for e in ordered if e.path != "/robots.txt"]
    known: dict[tuple[str, bool], Rules | None] = {}
    for when, _, entry in sorted([*answers, *asked]):
        authority = (entry.host, entry.tls)
        if entry.path == "/robots.txt":
            rules = stated(entry) if stated is not None else None
            known[authority] = rules or known.get(authority)
            continue
        rules = known.get(authority)
        if authority not in known:
            yield when, f"before robots.txt was answered: {entry.url}"
        if (rules and not rules(entry.path)) or (allowed and not allowed(entry.host, entry.path)):
            yield when, f"disallowed by robots.txt: {entry.url}"


def _sets_rules(entry: Entry) -> bool:
    """Return whether the answer for a robots.txt sets rules: RFC 9309, section 2.3.1.4."""
    return 0 < entry.status < 500 and entry.status != 429


def main() -> int:
    """Run the command. Return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mockweb.audit", description=__doc__)
    parser.add_argument("log", type=Path, nargs="+", help="logs of successive servers")
    parser.add_argument("--delay", type=float, required=True, help="seconds between requests")
    parser.add_argument("--graph", type=Graph.parse, help="judge robots.txt and Crawl-delay by it")
    parser.add_argument("--per-domain", type=int, default=2, help="requests at a time; 0: any")
    parser.add_argument("--per-address", type=int, default=8, help="requests at a time; 0: any")
    parser.add_argument("--factor", type=float, default=0.0, help="delay by the average latency")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE_S, help="seconds")
    args = parser.parse_args()
    graph: Graph | None = args.graph
    delay: float = args.delay
    crowds = [
        Crowd("domain", by_last_labels, args.per_domain or math.inf),
        Crowd("address", by_address, args.per_address or math.inf),
    ]
    found = violations(
        [entry for log in args.log for entry in read_log(log)],
        min_delay=delay if graph is None else lambda host: delay_at(graph, host, delay),
        allowed=None if graph is None else lambda host, path: allowed_at(graph, host, path),
        crowds=crowds,
        adaptive=Adaptive(args.factor, 30.0),
        tolerance=args.tolerance,
    )
    print("\n".join([*found, f"{len(found)} violations"]))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
