"""A host on its way from one frontier to another: the chunks that it is cut into, as JSON.

A chunk is an object of ``host``, ``transfer`` (16 hex digits: the same host in the same state has the same),
``number`` from 0, ``last``; the first one has a ``record`` with times as seconds from when it was made. Then, as there are any:
``robots``, of pairs of an authority and its record in base64; ``entries``, each a line as of an export with ``wait``,
the seconds until its next try, and ``strikes``, what is as usual left out; ``done``, the keys of URLs that were
queued and are not any more, one after the other in base64.

No clock crosses over, so that of the other node may be wrong: what was some seconds ahead when it was sent is no less
ahead when it comes.
"""

from __future__ import annotations

import zlib
from base64 import b64decode
from math import isfinite
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.admin.export import as_line, read_entry, whole
from krowlspider.frontier.hosts.host import Health, Host
from krowlspider.frontier.part import Part
from krowlspider.frontier.store.schema import KEY_SIZE, authorities_of, split_keys
from krowlspider.politeness.delay import PARKED, QUIET, THROTTLING_MAX, HostRate
from krowlspider.politeness.robots import BODY_MAX, RobotsRecord
from krowlspider.urls.canonical import normalise
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from krowlspider.frontier.entry import Entry
    from krowlspider.frontier.part import Identify

# Bytes of a chunk: about 1 ms to read as JSON. One entry alone may have more, with the request that is in it.
CHUNK_BYTES = 192 * 1024
# Entries of a chunk, and keys for each of them: 10 ms where it arrives.
CHUNK_ITEMS = 300
KEYS_AN_ITEM = 4
# A robots.txt record of more bytes stays: the other node asks for it.
ROBOTS_MAX = 96 * 1024
# Seconds that anything waits for at most: a parked host for a day, stretched by chance. What is said to be later is not.
WAIT_MAX = 2 * PARKED
_COUNT_MAX = 0xFFFFFFFF
# What reading junk raises: numbers without end and lists within lists without end too.
_JUNK = (
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RecursionError,
    zlib.error,
)


class BadChunk(ValueError):
    """A chunk that cannot be taken; the message says why."""


# --- out ---


def host_line(host: Host, now: float) -> dict[str, Any]:
    """What is known of a host. ``ready`` is null for one that waits for no end of a request."""
    rate = host.rate
    return {
        "state": host.health.name.lower(),
        "due": max(0.0, host.due - now),
        "ready": max(0.0, host.ready - now) if host.ready else None,
        "pace": [rate.ema, rate.floor, rate.quiet, rate.throttling, rate.errors],
        "done": host.queue.done,
        "dropped": host.queue.dropped,
    }


def entry_line(
    priority: int, entry: Entry, state: str, now: float, *, free: bool
) -> dict[str, object]:
    """``free`` is one that is queued beside another of the same identity."""
    line = as_line(priority, entry, state)
    line |= {"strikes": entry.strikes, "free": free}
    if state == "queued":
        del line["state"]
    line = {name: value for name, value in line.items() if value}
    if entry.due:
        # Though its time has come: it goes before what has not been tried.
        line["wait"] = max(0.0, entry.due - now)
    return line


# --- in ---


def read_chunk(said: Any, now: float, identify: Identify, *, url_max: int) -> Part:
    """The part of a host in a chunk; ``now`` is of the job clock that takes it.

    :raises BadChunk: it is none
    """
    try:
        name, transfer = said["host"], bytes.fromhex(said["transfer"])
        if len(transfer) != KEY_SIZE or type(said["last"]) is not bool:
            raise BadChunk("transfer is not of 16 hex digits, or last neither true nor false")
        if normalise(site := f"http://{name}/") != site or host_of(site) != name:
            raise BadChunk(f"{str(name)[:80]!r} is no host")
        part = Part(name, transfer, whole(said, "number", 0, _COUNT_MAX), said["last"], identify)
        if (record := said.get("record")) is not None:
            part.host = _read_host(name, record, now)
        for authority, text in said.get("robots", ()):
            if authority not in authorities_of(name):
                raise BadChunk(f"{str(authority)[:80]!r} is no authority of {name}")
            part.robots.append((authority, _read_robots(b64decode(text, validate=True))))
        for line in said.get("entries", ()):
            _read_entry(part, line, now, url_max)
        keys = b64decode(said.get("done", ""), validate=True)
    except BadChunk:
        raise
    except _JUNK as error:
        raise BadChunk(f"{type(error).__name__}: {error}") from error
    part.done = list(split_keys(keys))
    if len(keys) % KEY_SIZE:
        raise BadChunk("done is not of whole keys")
    return part


def _read_host(name: str, said: dict[str, Any], now: float) -> Host:
    ema, floor, *counts = said["pace"]
    if not (isinstance(said["state"], str) and len(counts) == 3):
        raise BadChunk("not the record of a host")
    rate = dict(zip(("quiet", "throttling", "errors"), counts, strict=True))
    host = Host(
        name,
        rate=HostRate(
            _seconds(ema, 1e6),
            _seconds(floor, 1e6),
            # Each may go up by one before it is looked at: a record has a byte for it.
            min(whole(rate, "quiet", 0, 0xFF), QUIET - 1),
            min(whole(rate, "throttling", 0, 0xFF), THROTTLING_MAX),
            whole(rate, "errors", 0, _COUNT_MAX),
        ),
        due=now + _seconds(said["due"], WAIT_MAX),
        ready=0.0 if said["ready"] is None else now + _seconds(said["ready"], WAIT_MAX),
        health=Health[said["state"].upper()],
    )
    host.queue.done = whole(said, "done", 0, _COUNT_MAX)
    host.queue.dropped = whole(said, "dropped", 0, _COUNT_MAX)
    return host


def _read_robots(data: bytes) -> RobotsRecord:
    """A record, which may not unpack to more than a robots.txt has."""
    body = zlib.decompressobj().decompress(data.partition(b"\n")[2], BODY_MAX + 2)
    if len(body) > BODY_MAX + 1:
        raise BadChunk("a robots.txt that is too long")
    return RobotsRecord.decode(data)


def _seconds(value: object, most: float) -> float:
    if type(value) not in (int, float) or not isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise BadChunk("a time that is no number of seconds")
    return min(float(value), most)  # type: ignore[arg-type]


def _read_entry(part: Part, said: dict[str, Any], now: float, url_max: int) -> None:
    line = dict(said)
    wait = _seconds(line.pop("wait"), WAIT_MAX) if "wait" in line else None
    free = line.pop("free", False) is True
    strikes = whole(line, "strikes", 0, 0xFF)
    line.pop("strikes", None)
    priority, entry = read_entry(line, url_max=url_max)
    if host_of(entry.url) != part.name:
        raise BadChunk(f"a URL of another host than {part.name}")
    entry.strikes = strikes
    entry.due = 0.0 if wait is None else now + wait
    key = part.identify(entry)
    if line.get("state") == "poison":
        part.poison.append((priority, entry))
    else:
        part.entries.append((priority, entry, None if free else key))
