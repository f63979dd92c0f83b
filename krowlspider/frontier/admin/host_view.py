"""A look at one host of a frontier that no crawl has open, and why it is not being fetched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.entry import Entry, entry_of
from krowlspider.frontier.hosts.holds import Hold, hold_of
from krowlspider.frontier.hosts.host import DEFERRED, Health, Host
from krowlspider.frontier.hosts.record import decode_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entries
from krowlspider.frontier.store.schema import poison_prefix, split_queue_key
from krowlspider.politeness.robots import RobotsRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy


@dataclass(frozen=True, slots=True)
class EntryLine:
    """An entry. ``due_in`` is the seconds until its next try, 0 for at once."""

    url: str
    priority: int
    depth: int
    tries: int
    strikes: int
    due_in: float


@dataclass(frozen=True, slots=True)
class RobotsLine:
    """A robots.txt record: what its answer means, its HTTP status, when it was fetched and when it expires, in
    epoch seconds."""

    authority: str
    ruling: str
    status: int
    fetched: float
    expires: float


@dataclass(frozen=True, slots=True)
class HostView:
    """What `look_at_host` found. Times are seconds: ``delay`` between requests, ``due_in`` until
    the next may be sent, ``crawl_delay`` that its robots.txt asks for. ``throttling`` counts
    doublings of the delay, ``errors`` transport errors in a row, ``holds`` the times that it held
    the event loop, ``retries`` the entries that wait for another try, ``poisoned`` all poison
    entries.
    ``queue`` and ``poison`` are the first entries of each."""

    host: str
    state: str
    why: str
    delay: float
    crawl_delay: float
    throttling: int
    errors: int
    holds: int
    due_in: float
    queued: int
    retries: int
    done: int
    dropped: int
    poisoned: int
    robots: list[RobotsLine]
    queue: list[EntryLine]
    poison: list[EntryLine]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def look_at_host(store: Store, name: str, rule: DelayPolicy, wall: float, most: int) -> HostView:
    """Read all that is known of a host; ``wall`` is now in epoch seconds, ``most`` the entries in each list.

    :raises UnknownHostError: there is no such host
    """
    record = store.get(schema.host_key(name))
    if record is None:
        raise UnknownHostError(name)
    host = decode_host(name, record)
    queued, retries, soonest = 0, 0, 0.0
    queue: list[EntryLine] = []
    for key, value in entries(store, name):
        entry = entry_of(key, value)
        if entry.due > wall:
            soonest = min(soonest, entry.due) if retries else entry.due
            retries += 1
        if queued < most:
            queue.append(entry_line(key, entry, wall))
        queued += 1
    poison = [
        entry_line(key, entry_of(key, value), wall)
        for key, value in store.items(poison_prefix(name))
    ]
    hold = hold_of(store, name)
    # The earliest time of an entry to be sent: all wait for their next try, or one does not.
    entries_due = soonest if queued and retries == queued else 0.0
    return HostView(
        name,
        host.health.words,
        (_why_held(host, hold, wall) or _why(host, queued, entries_due, rule, wall))
        + _set_aside(len(poison)),
        delay=round(rule.delay(host.rate), 3),
        crawl_delay=host.rate.floor,
        throttling=host.rate.throttling,
        errors=host.rate.errors,
        holds=hold.times,
        due_in=_seconds(max(host.due, entries_due), wall),
        queued=queued,
        retries=retries,
        done=host.queue.done,
        dropped=host.queue.dropped,
        poisoned=len(poison),
        robots=list(_robots(store, name)),
        queue=queue,
        poison=poison[:most],
    )


def entry_line(key: bytes, entry: Entry, wall: float) -> EntryLine:
    """An entry as it is shown."""
    priority = split_queue_key(key)[1]
    tries = entry.retries + entry.throttling
    return EntryLine(
        entry.url, priority, entry.depth, tries, entry.strikes, _seconds(entry.due, wall)
    )


def _seconds(due: float, wall: float) -> float:
    return round(max(0.0, due - wall), 3)


def _robots(store: Store, name: str) -> Iterator[RobotsLine]:
    for scheme in ("http", "https"):
        authority = f"{scheme}://{name}"
        if (saved := store.get(schema.robots_key(authority))) is not None:
            known = RobotsRecord.decode(saved)
            yield RobotsLine(authority, known.ruling, known.status, known.fetched, known.expires)


def _why(host: Host, queued: int, entries_due: float, rule: DelayPolicy, wall: float) -> str:
    """Why the host is not being fetched, in one sentence."""
    if host.health is Health.RETIRED:
        return (
            f"It is retired: its robots.txt asks for {host.rate.floor:g} s between two requests,"
            f" and KROWL_CRAWL_DELAY_MAX is {rule.crawl_delay_max:g}."
        )
    if not queued:
        return "Nothing of it is queued."
    if host.state is DEFERRED and rule.parked(host.rate):
        return (
            f"It is parked after {host.rate.errors} errors in a row, or because the DNS does not know its name; it is"
            f" tried again in {_seconds(host.due, wall) / 3600:.1f} hours, or at a start after that."
        )
    if host.has_own_time:
        return (
            f"It is deferred after {host.rate.errors} errors in a row; it is tried again in"
            f" {_seconds(host.due, wall) / 60:.1f} minutes, or at a start after that."
        )
    if host.state is DEFERRED:
        return (
            "It is deferred because its robots.txt cannot be had; that is tried again at the next"
            " start and every hour."
        )
    wait = _seconds(host.due, wall)
    if entries_due > max(host.due, wall):
        return f"All its queued URLs are retries, the first due in {entries_due - wall:.1f} s."
    if wait:
        return f"It is due in {wait:.1f} s, because of {_cause(host, wait, rule)}."
    return "It is due: it will be fetched with the next start."


def _why_held(host: Host, hold: Hold, wall: float) -> str:
    """Why a host that is set aside is not being fetched; empty for others."""
    if not (host.has_own_time and hold.aside):
        return ""
    return (
        f"It is set aside: it has held the event loop for over 5 s {hold.times} times, the last with"
        f" {hold.url or 'its queue'}; it is tried again in {_seconds(host.due, wall) / 3600:.1f} hours, or at a start"
        " after that. --export, --forget and --import queue it again at once."
    )


def _set_aside(poison: int) -> str:
    if not poison:
        return ""
    return f" {poison:,} page{'s are' if poison > 1 else ' is'} set aside as poison."


def _cause(host: Host, wait: float, rule: DelayPolicy) -> str:
    rate = host.rate
    if rate.errors > 1:
        return f"the backoff after {rate.errors} errors in a row"
    if rate.throttling and wait > rule.delay(rate):
        return "the Retry-After of an answer 429 or 503"
    if rate.throttling:
        return f"its delay, doubled {rate.throttling} times after answers 429 or 503"
    if rate.floor and rate.floor >= rule.delay(rate):
        return "the crawl-delay of its robots.txt"
    return "its delay"
