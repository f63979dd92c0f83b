"""A view of one host, and why it is not being fetched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.admin.view import EntryRow, HostRow, seconds_until
from krowlspider.frontier.admin.words import counted, duration
from krowlspider.frontier.hosts.holds import Hold, hold_of
from krowlspider.frontier.hosts.host import DEFERRED, Health, Host
from krowlspider.frontier.stopped import read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entries
from krowlspider.frontier.store.schema import authorities_of, poison_prefix
from krowlspider.politeness.robots import RobotsRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy


@dataclass(frozen=True, slots=True)
class RobotsRow:
    """A robots.txt record; ``fetched`` and ``expires`` are epoch seconds."""

    authority: str
    ruling: str
    status: int
    fetched: float
    expires: float


@dataclass(frozen=True, slots=True)
class HostView:
    """What is known of a host.

    ``crawl_delay`` is in seconds. ``throttling`` counts doublings of the delay, ``holds`` the times
    that it held the event loop, ``retries`` the entries that wait for another try. ``queue`` and
    ``poison`` have the first entries; ``poisoned`` counts all poison.
    """

    host: HostRow
    state: str
    why: str
    crawl_delay: float
    throttling: int
    holds: int
    retries: int
    poisoned: int
    robots: list[RobotsRow]
    queue: list[EntryRow]
    poison: list[EntryRow]


def view_host(store: Store, name: str, policy: DelayPolicy, wall: float, most: int) -> HostView:
    """Read all that is known of a host, with lists as in `view_frontier`.

    :raises UnknownHostError: there is no such host
    """
    host = read_host(store, name)
    if host is None:
        raise UnknownHostError(name)
    queue = []
    queued = retries = 0
    first_retry = 0.0
    for key, value in entries(store, name):
        row = EntryRow.of(key, value, wall)
        if row.due_in:
            first_retry = min(first_retry, row.due_in) if retries else row.due_in
            retries += 1
        if queued < most:
            queue.append(row)
        queued += 1
    # How long all entries wait for another try; 0 if one need not wait.
    wait = first_retry if retries == queued else 0.0
    poison = [EntryRow.of(key, value, wall) for key, value in store.items(poison_prefix(name))]
    hold = hold_of(store, name)
    host.queue.queued = queued
    row_of_host = HostRow.of(host, policy, wall)
    return HostView(
        host=replace(row_of_host, due_in=max(row_of_host.due_in, wait)),
        state=host.health.words,
        why=_why(host, hold, wait, policy.of(name), wall) + _poison_words(len(poison)),
        crawl_delay=host.rate.floor,
        throttling=host.rate.throttling,
        holds=hold.times,
        retries=retries,
        poisoned=len(poison),
        robots=list(_robots(store, name)),
        queue=queue,
        poison=poison[:most],
    )


def _robots(store: Store, name: str) -> Iterator[RobotsRow]:
    for authority in authorities_of(name):
        if (saved := store.get(schema.robots_key(authority))) is not None:
            known = RobotsRecord.decode(saved)
            yield RobotsRow(authority, known.ruling, known.status, known.fetched, known.expires)


def _poison_words(count: int) -> str:
    if not count:
        return ""
    if count == 1:
        return " 1 page is set aside: it killed the process three times."
    return f" {count:,} pages are set aside: each killed the process three times."


def _why(host: Host, hold: Hold, wait: float, policy: DelayPolicy, wall: float) -> str:
    """Return why a host is not being fetched; ``wait`` is that of its entries, in seconds."""
    rate = host.rate
    due_in = seconds_until(host.due, wall)
    if host.has_own_time and hold.aside:
        return (
            "It is set aside: it has held the event loop for over 5 s"
            f" {counted(hold.times, 'time')}, the last with {hold.url or 'its queue'}; it is tried"
            f" again in {duration(due_in)}, or at a start after that. --export, --forget and"
            " --import queue it again immediately."
        )
    if host.health is Health.RETIRED:
        return (
            f"It is retired: its robots.txt asks for {rate.floor:g} s between two requests,"
            f" and KROWL_CRAWL_DELAY_MAX is {policy.crawl_delay_max:g}."
        )
    if not host.queue.queued:
        return "Nothing of it is queued."
    is_deferred = host.state is DEFERRED
    if is_deferred and policy.parked(rate):
        return (
            f"It is deferred after {counted(rate.errors, 'error')} in a row, or because the DNS"
            f" does not know its name; it is tried again in {duration(due_in)}, or at a start"
            " after that."
        )
    if host.has_own_time:
        return (
            f"It is deferred after {counted(rate.errors, 'error')} in a row; it is tried again in"
            f" {duration(due_in)}, or at a start after that."
        )
    if is_deferred:
        return (
            "It is deferred because its robots.txt cannot be fetched; that is tried again at the"
            " next start and every hour."
        )
    if wait > due_in:
        return f"All its queued URLs are retries, the first due in {duration(wait)}."
    if due_in:
        return f"It is due in {duration(due_in)}, because of {_cause(host, due_in, policy)}."
    return "It is due: it will be fetched with the next start."


def _cause(host: Host, due_in: float, policy: DelayPolicy) -> str:
    rate = host.rate
    if rate.errors > 1:
        return f"the backoff after {rate.errors} errors in a row"
    if rate.throttling and due_in > policy.delay(rate):
        return "the Retry-After of an answer 429 or 503"
    if rate.throttling:
        return f"its delay, doubled {counted(rate.throttling, 'time')} after answers 429 or 503"
    if rate.floor and rate.floor >= policy.delay(rate):
        return "the crawl-delay of its robots.txt"
    return "its delay"
