"""Simulate a cluster of up to a thousand nodes without sockets: the balance of its ring, the share
that a new node moves, and the traffic of forwarding and of Consul.

- Ring: the real one. Domains are those of Chromium's list of sites that demand https. A hundred
  million domains are random 64-bit numbers, like the hashes of names. Shares and moves are exact:
  they are lengths on the ring.
- Forwarding: messages have the URLs that are found on this machine, encoded by the real encoder.
  Sending them each second, in calls of 500 at most, is simulated second by second.
- Consul: the traffic is computed from the calls of a member and the size of the answers. Records
  are encoded by the real encoder.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.realurls import real_urls
from krowlspider.cluster.ring import ring
from krowlspider.cluster.ring.ring import Member, MemberRecord, Ring
from krowlspider.cluster.transport import message
from krowlspider.cluster.transport.forwarder import BATCH
from krowlspider.job.nodes.cluster import BEAT
from tests.support.domains import real_domains

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES = (2, 3, 5, 8, 16, 32, 64, 128, 256, 500, 1000)
DOMAINS = 100_000_000
# Least real domains per node: with fewer, chance spreads them more than the ring does.
ENOUGH = 350
# Domains computed at a time: 40 MB.
_CHUNK = 5_000_000
# Pages a second of a node whose core is busy, and of one that waits for its hosts.
PAGES = (479, 50)
# New links of a page to other domains, of its 77 links.
FOREIGN = 7
# Seconds of forwarding that are simulated; seconds after which an idle connection is closed.
SECONDS, IDLE = 20, 60
# Bytes of a call: LPUSH and its key in RESP, the reply, and three TCP/IP headers (call, reply,
# acknowledgement). Bytes of the length of each message in RESP.
_CALL, _REPLY, _HEADERS, _LENGTH = 44, 8, 3 * 66, 7
# Seconds between two renewals; seconds of a blocking query.
RENEWAL, WAIT = 5, 5
# Bytes of Consul's answer for a key without key and value (indexes, flags, session); bytes of a
# request with its HTTP head.
_ENTRY, _REQUEST = 165, 250
_COUNTERS = {f"a counter of a dozen {number}": 12_345_678 for number in range(12)}


def measure() -> dict[str, Any]:
    """Return all figures, by table."""
    urls = real_urls()
    named = real_domains()
    size = np.mean([len(message.encode(message.Message(url, depth=3))) for url in urls])
    return {
        "urls": len(urls),
        "message_bytes": round(float(size)),
        "real_domains": len(named),
        "points": ring.POINTS,
        "ring": [_ring(count, named) for count in NODES],
        "forwarding": [_forwarding(count, rate, float(size)) for rate in PAGES for count in NODES],
        "consul": [_consul(count) for count in NODES],
    }


def members(count: int) -> list[Member]:
    return [
        Member(f"crawl-{number}", 1, f"redis://crawl-{number}:6379/0", f"crawl-{number}:6023")
        for number in range(count)
    ]


def _ring(count: int, named: Sequence[str]) -> dict[str, Any]:
    made = Ring(members(count))
    begun = time.process_time()
    made.owner("example.org")
    built = time.process_time() - begun
    points, owners = _arrays(made)
    owned = Counter(map(made.owner, named))
    begun = time.process_time()
    for name in named:
        made.owner(name)
    asked = (time.process_time() - begun) / len(named)
    joined = Ring([*members(count), Member("new")])
    moved, astray = _moved(made, joined, "new")
    return {
        "nodes": count,
        "build_ms": round(built * 1000, 1),
        "points_MB": round((points.nbytes + owners.nbytes) / 1e6, 2),
        "owner_us": round(asked * 1e6, 2),
        "max_of_mean": round(count * max(made.share(name) for name, _ in made.weights), 3),
        "min_of_mean": round(count * min(made.share(name) for name, _ in made.weights), 3),
        "real_max_of_mean": round(max(owned.values()) * count / len(named), 3)
        if len(named) > ENOUGH * count
        else None,
        "hundred_million": _hundred_million(points, owners) if count in {64, 1000} else None,
        "join_moves": round(moved, 5),
        "of_1_in_n": round(moved * (count + 1), 3),
        "astray": astray,
    }


def _arrays(made: Ring) -> tuple[Any, Any]:
    points, owners = made._points
    return np.array(points, dtype=np.uint64), np.array(owners, dtype=np.uint16)


def _hundred_million(points: Any, owners: Any) -> float:
    """Domains of the busiest node to the mean, when as many random numbers as `DOMAINS` are put on
    the ring."""
    chance = np.random.default_rng(2026)
    arcs = np.zeros(len(points), dtype=np.int64)
    for _ in range(DOMAINS // _CHUNK):
        some = np.sort(chance.integers(0, 2**64, _CHUNK, dtype=np.uint64))
        below = np.searchsorted(some, points, side="right")
        arcs += np.diff(below, prepend=0)
        arcs[0] += _CHUNK - below[-1]
    counts = np.bincount(owners, weights=arcs)
    return round(float(counts.max() / counts.mean()), 3)


def _moved(before: Ring, after: Ring, new: str) -> tuple[float, float]:
    """Return the share of all domains that change their owner when ``new`` joins or leaves, and of
    these the share that moves between other nodes."""
    names = [name for name, _ in after.weights]
    (old, was), (points, now) = _arrays(before), _arrays(after)
    index = np.array([names.index(name) for name, _ in before.weights], dtype=np.uint16)
    place = np.searchsorted(old, points, side="left") % len(old)
    # All points of the smaller ring are points of the larger.
    lengths = np.diff(points, prepend=points[-1]).astype(float)
    differs = index[was[place]] != now
    moved = lengths[differs].sum()
    return float(moved / 2**64), float(lengths[differs & (now != names.index(new))].sum() / moved)


def _forwarding(count: int, rate: int, size: float) -> dict[str, Any]:
    """Simulate what a node of ``rate`` pages a second sends to its peers, all equally likely."""
    chance = np.random.default_rng(count)
    peers = count - 1
    waiting = chance.poisson(rate * FOREIGN / count, (SECONDS, peers))
    calls = int(np.ceil(waiting / BATCH).sum())
    messages = int(waiting.sum())
    pages = rate * SECONDS
    carried = messages * (size + _LENGTH) + calls * (_CALL + _REPLY + _HEADERS)
    return {
        "pages_s": rate,
        "nodes": count,
        "messages_a_page": round(messages / pages, 2),
        "messages_a_call": round(messages / calls, 1),
        "calls_a_page": round(calls / pages, 3),
        "calls_s": round(calls / SECONDS),
        "bytes_a_page": round(carried / pages),
        "connections": round(2 * peers * (1 - np.exp(-rate * FOREIGN / count * IDLE))),
    }


def _consul(count: int) -> dict[str, Any]:
    """Compute the traffic with Consul: per second at rest, and while a node joins."""
    made = Ring(members(count))
    records = {member.id: MemberRecord(made.members[0], (made,)).dumps() for member in made.members}
    begun = time.process_time()
    for name, record in records.items():
        MemberRecord.loads(name, record)
    read = time.process_time() - begun
    view = sum(_ENTRY + 30 + len(b64encode(record)) for record in records.values())
    short = sum(_ENTRY + 30 + len(b64encode(_by_checksum(r, made))) for r in records.values())
    beat = _ENTRY + 30 + len(b64encode(json.dumps(_COUNTERS).encode()))
    # A renewal and a pass of the check; a blocking query; a heartbeat, whose answer has all beats.
    requests = 2 / RENEWAL + 1 / WAIT + 1 / BEAT
    answers = count * 30 / WAIT + count * beat / BEAT
    return {
        "nodes": count,
        "requests_s": round(count * requests),
        "rest_kB_s": round(count * (requests * _REQUEST + answers) / 1000, 1),
        "record_kB": round(max(map(len, records.values())) / 1000, 1),
        "view_kB": round(view / 1000, 1),
        "view_ms": round(read * 1000, 1),
        # Each node publishes once, at its own time, and every node reads the view after each.
        "join_reads": count * (count + 2),
        "join_MB": round(count * (count + 2) * view / 1e6, 1),
        "join_MB_by_checksum": round(count * (count + 2) * short / 1e6, 1),
    }


def _by_checksum(record: bytes, made: Ring) -> bytes:
    fields = json.loads(record)
    return json.dumps({**fields, "claims": [made.checksum for _ in fields["claims"]]}).encode()


def table(figures: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    head = (
        f"{figures['points']} points a node; {figures['real_domains']:,} real domains; a message"
        f" has {figures['message_bytes']} bytes, the mean of {figures['urls']:,} real URLs"
    )
    parts = [head]
    for name in ("ring", "forwarding", "consul"):
        rows = figures[name]
        lines = [
            "| " + " | ".join(rows[0]) + " |",
            "| " + " | ".join("---" for _ in rows[0]) + " |",
            *(
                "| " + " | ".join("" if v is None else str(v) for v in row.values()) + " |"
                for row in rows
            ),
        ]
        parts.append(f"{name}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)
