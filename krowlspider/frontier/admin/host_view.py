"""A view of one host, and why it is not being fetched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.frontier.admin.coverage import hosts_named
from krowlspider.frontier.admin.edit import UnknownHostError
from krowlspider.frontier.admin.view import EntryRow, HostRow, seconds_until
from krowlspider.frontier.admin.words import counted, duration
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.hosts.holds import hold_of
from krowlspider.frontier.hosts.host import DEFERRED, Health, Host
from krowlspider.frontier.schedule.orders import rules_in
from krowlspider.frontier.schedule.standing import BLOCK, DELAY, PAUSE, read_orders
from krowlspider.frontier.stopped import read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.queues import entries, entry_keys
from krowlspider.frontier.store.schema import authorities_of, poison_prefix
from krowlspider.politeness.delay import JITTER
from krowlspider.politeness.robots import RobotsRecord
from krowlspider.urls.host import orders_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.frontier.store.store import Store
    from krowlspider.politeness.delay import DelayPolicy

# Entries of a host's queue that are looked at: about 20 ms.
LOOKED_AT = 5000


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
    """Read all that is known of a host of a stopped crawl, with lists as in `view_frontier`.

    :raises UnknownHostError: there is no such host
    """
    host = read_host(store, name)
    if host is None:
        raise UnknownHostError(name, hosts_named(store, name))
    # A host's record may count fewer than are on disk after a crash.
    host.queue.queued = sum(1 for _ in entry_keys(store, name))
    why = why_host_of_stopped_crawl_waits(store, host, policy, wall)
    return view_of(store, host, policy, why, wall=wall, most=most)


def view_of(
    store: Store, host: Host, policy: DelayPolicy, why: Reason, *, wall: float, most: int
) -> HostView:
    """Return all that is known of a host, with lists as in `view_frontier`; ``why`` is why it is
    not being fetched."""
    found = islice(entries(store, host.name), LOOKED_AT)
    queue = [EntryRow.of(key, value, wall) for key, value in found]
    # 0 if one of them is not a retry.
    wait = min((row.due_in for row in queue), default=0.0)
    poison = [EntryRow.of(key, value, wall) for key, value in store.items(poison_prefix(host.name))]
    hold = hold_of(store, host.name)
    row = HostRow.of(host, policy, wall)
    if row.due_in is not None:
        row = replace(row, due_in=max(row.due_in, wait))
    return HostView(
        host=row,
        state=host.health.words,
        why=why.words + _poison_words(len(poison)),
        crawl_delay=host.rate.floor,
        throttling=host.rate.throttling,
        holds=hold.times,
        retries=sum(row.due_in > 0 for row in queue),
        poisoned=len(poison),
        robots=list(_robots(store, host.name)),
        queue=queue[:most],
        poison=poison[:most],
    )


def retry_wait(store: Store, host: Host, wall: float) -> float:
    """Return how many seconds all entries of a host wait for another try; 0 if one need not
    wait."""
    first = inf
    for key, value in islice(entries(store, host.name), LOOKED_AT):
        if not (wait := seconds_until(entry_of(key, value).due, wall)):
            return 0.0
        first = min(first, wait)
    return 0.0 if first == inf else first


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


class Reason(NamedTuple):
    """Why a host waits, as a sentence, and the setting that decides it; "" for none."""

    words: str
    setting: str = ""


def hold_reason(kind: str, rule: str, note: str) -> Reason:
    """Return the order that holds a host back as the reason why it waits."""
    held, end = ("blocked", "unblock") if kind == BLOCK else ("paused", "resume")
    return Reason(f"It is {held} by {rule} ({note}): krowl.{end}({rule!r}) lets it go on.")


def _hold_in(store: Store, host: str) -> Reason | None:
    for kind in (BLOCK, PAUSE):
        rules = rules_in(read_orders(store, kind))
        if (rule := rules.rule_of(host)) is not None:
            return hold_reason(kind, rule, rules.rules[rule])
    return None


def why_host_of_stopped_crawl_waits(
    store: Store, host: Host, policy: DelayPolicy, wall: float
) -> Reason:
    """Return why a host of a stopped crawl is not being fetched, as `why_host_waits`."""
    if (held := _hold_in(store, host.name)) is not None:
        return held
    return why_host_waits(store, host, policy.of(host.name), wall)


def why_host_waits(
    store: Store,
    host: Host,
    policy: DelayPolicy,
    wall: float,
    *,
    due: str = "It is due: it will be fetched with the next start.",
) -> Reason:
    """Return why a host is not being fetched. ``policy`` is its own, ``due`` is what to say of a
    host that is due."""
    rate, hold = host.rate, hold_of(store, host.name)
    due_in = seconds_until(host.due, wall)
    if host.has_own_time and hold.aside:
        return Reason(
            "It is set aside: it has held the event loop for over 5 s"
            f" {counted(hold.times, 'time')}, the last with {hold.url or 'its queue'}; it is tried"
            f" again in {duration(due_in)}, or at a start after that. --export, --forget and"
            " --import queue it again immediately."
        )
    if host.health is Health.RETIRED:
        return Reason(
            f"It is retired: its robots.txt asks for {rate.floor:g} s between two requests,"
            f" and KROWL_CRAWL_DELAY_MAX is {policy.crawl_delay_max:g}.",
            "KROWL_CRAWL_DELAY_MAX",
        )
    if not host.queue.queued:
        return Reason("Nothing of it is queued.")
    is_deferred = host.state is DEFERRED
    is_parked = is_deferred and policy.parked(rate)
    if is_parked or host.has_own_time:
        after = f"after {counted(rate.errors, 'error')} in a row"
        if rate.has_no_name:
            after = "because the DNS does not know its name"
        return Reason(
            f"It is deferred {after}; it is tried again in {duration(due_in)}, or at a start after"
            " that."
        )
    if is_deferred:
        return Reason(
            "It is deferred because its robots.txt cannot be fetched; that is tried again at the"
            " next start and every hour."
        )
    # The host is due with the first of its retries, unless it must wait for longer itself.
    if (wait := retry_wait(store, host, wall)) and wait >= due_in - 0.001:
        return Reason(
            f"All its queued URLs are retries, the first due in {duration(wait)}.",
            "KROWL_RETRY_DELAY",
        )
    if host.is_put_off:
        return Reason(
            "It was paused by a person; the live page and the telnet console of a running crawl"
            " resume it."
        )
    if due_in:
        delays = read_orders(store, DELAY)
        is_ordered = any(each in delays for each in orders_for(host.name))
        cause = _cause(host, due_in, policy, is_ordered=is_ordered)
        return Reason(f"It is due in {duration(due_in)}, because of {cause.words}.", cause.setting)
    return Reason(due)


def _cause(host: Host, due_in: float, policy: DelayPolicy, *, is_ordered: bool) -> Reason:
    rate = host.rate
    if rate.errors > 1:
        return Reason(f"the backoff after {rate.errors} errors in a row", "KROWL_DELAY_MAX")
    if rate.throttling and due_in > policy.delay(rate) * (1 + JITTER):
        return Reason("the Retry-After of an answer 429 or 503")
    if rate.throttling:
        times = counted(rate.throttling, "time")
        return Reason(f"its delay, doubled {times} after answers 429 or 503", "KROWL_DELAY_MAX")
    if rate.floor and rate.floor >= policy.delay(rate):
        return Reason("the crawl-delay of its robots.txt", "KROWL_CRAWL_DELAY_MAX")
    wanted = rate.ema * policy.factor
    if wanted <= policy.minimum:
        least = f"its least delay of {policy.minimum:g} s"
        return Reason(f"{least}, which a person set" if is_ordered else least, "KROWL_DELAY_MIN")
    return Reason("its delay", f"KROWL_DELAY_{'MAX' if wanted > policy.maximum else 'FACTOR'}")
