"""The log of a capsule server, and what in it is impolite."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TOLERANCE_S = 0.005
"""How late the server may notice a connection on a busy machine."""


@dataclass(slots=True, eq=False)
class Visit:
    """One connection. Times are seconds of `time.monotonic()`.

    - `host`: `name:port` of the URL that was asked; that of TLS without a request.
    - `opened`: when the connection was accepted; `ended`: before the last bytes were sent, or when
      it was lost.
    - `url`: "" if none was asked, as after a refused certificate.
    - `status`: the first two bytes of the answer; "" without one.
    - `server_name`: the name in the TLS handshake, "" without one.
    - `is_whole`: whether the whole answer was sent.
    """

    host: str
    url: str
    status: str
    opened: float
    ended: float
    server_name: str = ""
    is_whole: bool = True


def read_visits(path: Path) -> list[Visit]:
    """Return the visits of a log, without a last line that a kill cut short."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [Visit(**json.loads(line)) for line in lines]


def line_of(visit: Visit) -> str:
    return json.dumps(asdict(visit)) + "\n"


def counts(visits: Iterable[Visit]) -> Counter[str]:
    """Return how often each URL was asked for."""
    return Counter(visit.url for visit in visits if visit.url)


def hasty(visits: Iterable[Visit], delay: float, tolerance: float = TOLERANCE_S) -> list[str]:
    """Return each connection that began less than ``delay`` seconds after the end of the last one
    of its host, or before that end. A host is `name:port`."""
    by_host: defaultdict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        by_host[visit.host].append(visit)
    found = []
    for host, of_host in by_host.items():
        of_host.sort(key=lambda visit: visit.opened)
        for before, after in pairwise(of_host):
            gap = after.opened - before.ended
            if gap < delay - tolerance:
                found.append(f"{host}: {gap:.3f} s before {after.url or 'a connection'}")
    return found


def unasked(visits: Iterable[Visit]) -> list[str]:
    """Return the hosts of which a page was asked before the robots.txt was answered."""
    asked: dict[str, float] = {}
    found = []
    for visit in sorted(visits, key=lambda visit: visit.opened):
        if visit.url.endswith("/robots.txt"):
            asked.setdefault(visit.host, visit.ended)
        elif visit.url and not asked.get(visit.host, float("inf")) <= visit.opened:
            found.append(visit.host)
    return sorted(set(found))
