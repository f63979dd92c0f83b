"""Views of a frontier and of one host, and why the host is not being fetched."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import nlargest, nsmallest
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Self

from krowlspider.errors import counted, duration
from krowlspider.frontier.admin.edit import UnknownHostError, hosts_named
from krowlspider.frontier.entry import entry_of
from krowlspider.frontier.header_terms import terms_of
from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    CALLED,
    DEFERRED,
    HELD,
    IN_FLIGHT,
    SEALED,
    WAITING,
    Health,
    Host,
)
from krowlspider.frontier.hosts.host_record import decode_host, holds_of
from krowlspider.frontier.outcomes import read_prices
from krowlspider.frontier.schedule.orders import BLOCK, DELAY, PAUSE, read_orders, rules_in
from krowlspider.frontier.shares import CROWD, address_in
from krowlspider.frontier.stopped import dropped_in, fetched_in, read_counters, read_host
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.schema import authorities_of, poison_prefix, split_queue_key
from krowlspider.frontier.store.store import Store, entries, entry_keys, records
from krowlspider.politeness.delay import JITTER, DelayPolicy, SiteDelay
from krowlspider.politeness.robots import RobotsRecord, Ruling
from krowlspider.urls.canonical import orders_for
from krowlspider.urls.gemini import PORT as GEMINI_PORT
from krowlspider.urls.gemini import accepts_gemini
from krowlspider.urls.robots_groups import terms_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from krowlspider.frontier.frontier import Frontier
    from krowlspider.policies.sheets import Policies

# Hosts compared with the best so far at a time.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host: entries queued, pages done, entries dropped, seconds of delay and until it is due,
    transport errors in a row, and whether it is deferred. ``due_in`` is None for one that a pause
    or a block covers."""

    host: str
    queued: int
    done: int
    dropped: int
    delay: float
    due_in: float | None
    errors: int
    deferred: bool

    @classmethod
    def of(cls, host: Host, policy: DelayPolicy, wall: float) -> Self:
        return cls(
            host.name,
            host.queue.queued,
            host.queue.pages,
            host.queue.dropped,
            round(policy.of(host.name).delay(host.rate), 3),
            None if host.is_put_off else seconds_until(host.due, wall),
            host.rate.errors,
            host.health is Health.DEFERRED,
        )


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry; ``due_in`` is the time until its next try in seconds, 0 for immediately."""

    url: str
    priority: int
    depth: int
    tries: int
    strikes: int
    due_in: float

    @classmethod
    def of(cls, key: bytes, value: bytes, wall: float) -> Self:
        entry = entry_of(key, value)
        return cls(
            entry.url,
            split_queue_key(key)[0],
            entry.depth,
            entry.retries + entry.throttling,
            entry.strikes,
            seconds_until(entry.due, wall),
        )


@dataclass(frozen=True, slots=True)
class FrontierView:
    """Totals of a frontier, and the first of some lists.

    ``done`` are pages. ``fetched`` has them and all else by kind, ``dropped`` by reason.
    """

    hosts: int
    deferred: int
    queued: int
    done: int
    fetched: dict[str, int]
    dropped: dict[str, int]
    poison: int
    biggest: list[HostRow]
    slowest: list[HostRow]
    next_due: list[HostRow]
    poisoned: list[EntryRow]


def seconds_until(due: float, wall: float) -> float:
    return round(max(0.0, due - wall), 3)


def view_frontier(
    stores: Sequence[Store], policy: DelayPolicy, wall: float, most: int
) -> FrontierView:
    """Read all host records of the stores of a crawl, one for each of its processes.

    ``wall`` is now in epoch seconds, ``most`` the length of the lists.
    """
    biggest: list[Host] = []
    slowest: list[Host] = []
    soonest: list[Host] = []
    count = deferred = queued = 0
    found = chain.from_iterable(records(store) for store in stores)
    hosts = (decode_host(name, record) for name, record in found)
    while some := list(islice(hosts, _CHUNK)):
        waiting = [host for host in some if host.queue.queued]
        due = [host for host in waiting if host.health is not Health.DEFERRED]
        biggest = nlargest(most, biggest + waiting, key=lambda host: host.queue.queued)
        slowest = nlargest(
            most, slowest + some, key=lambda host: policy.of(host.name).delay(host.rate)
        )
        soonest = nsmallest(most, soonest + due, key=lambda host: host.due)
        count += len(some)
        deferred += sum(host.health is Health.DEFERRED for host in some)
        queued += sum(host.queue.queued for host in waiting)
    counters = sum((read_counters(store) for store in stores), Counter[str]())
    poison = chain.from_iterable(store.items(schema.POISON) for store in stores)
    return FrontierView(
        hosts=count,
        deferred=deferred,
        queued=queued,
        done=counters["done"],
        fetched=fetched_in(counters),
        dropped=dropped_in(counters),
        poison=sum(1 for store in stores for _ in store.keys(schema.POISON)),
        biggest=[HostRow.of(host, policy, wall) for host in biggest],
        slowest=[HostRow.of(host, policy, wall) for host in slowest],
        next_due=[HostRow.of(host, policy, wall) for host in soonest],
        poisoned=[EntryRow.of(key, value, wall) for key, value in islice(poison, most)],
    )


# Entries of a host's queue that are looked at: about 20 ms.
LOOKED_AT = 5000


@dataclass(frozen=True, slots=True)
class RobotsRow:
    """A robots.txt record; ``fetched`` and ``expires`` are epoch seconds. ``terms`` are its lines
    about the use of the pages, each with the user agents of its group."""

    authority: str
    ruling: str
    status: int
    fetched: float
    expires: float
    terms: list[str]


@dataclass(frozen=True, slots=True)
class HostView:
    """What is known of a host.

    ``crawl_delay`` is in seconds. ``throttling`` counts doublings of the delay, ``holds`` the times
    that it held the event loop, ``retries`` the entries that wait for another try. ``price`` is the
    last one that it has asked for, in ``priced`` answers 402. ``terms`` are what headers of its
    pages say about their use, each with the first such page. ``queue`` and ``poison`` have the
    first entries; ``poisoned`` counts all poison. ``sheets`` has a line for each key that a sheet
    decides, as in `Policies.explained`.
    """

    host: HostRow
    state: str
    why: str
    crawl_delay: float
    throttling: int
    holds: int
    retries: int
    poisoned: int
    price: str
    priced: int
    terms: list[str]
    robots: list[RobotsRow]
    queue: list[EntryRow]
    poison: list[EntryRow]
    sheets: list[str]


def view_host(
    store: Store,
    name: str,
    policy: DelayPolicy,
    wall: float,
    *,
    most: int,
    policies: Policies | None = None,
) -> HostView:
    """Read all that is known of a host of a stopped crawl, with lists as in `view_frontier`.
    ``policies`` are the sheets; None without KROWL_POLICIES.

    :raises UnknownHostError: there is no such host
    """
    host = read_host(store, name)
    if host is None:
        raise UnknownHostError(name, hosts_named(store, name))
    # A host's record may count fewer than are on disk after a crash.
    host.queue.queued = sum(1 for _ in entry_keys(store, name))
    why = why_host_of_stopped_crawl_waits(store, host, policy, wall)
    return view_of(store, host, policy, why, wall=wall, most=most, policies=policies)


def view_of(
    store: Store,
    host: Host,
    policy: DelayPolicy,
    why: Reason,
    *,
    wall: float,
    most: int,
    policies: Policies | None = None,
) -> HostView:
    """Return all that is known of a host, with lists as in `view_frontier`; ``why`` is why it is
    not being fetched. ``policies`` are the sheets; None without KROWL_POLICIES."""
    found = islice(entries(store, host.name), LOOKED_AT)
    queue = [EntryRow.of(key, value, wall) for key, value in found]
    # 0 if one of them is not a retry.
    wait = min((row.due_in for row in queue), default=0.0)
    poison = [EntryRow.of(key, value, wall) for key, value in store.items(poison_prefix(host.name))]
    hold = holds_of(store, host.name)
    price, priced = read_prices(store).get(host.name, ("", 0))
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
        price=price,
        priced=priced,
        terms=terms_of(store, host.name),
        robots=list(_robots(store, host.name)),
        queue=queue[:most],
        poison=poison[:most],
        sheets=[] if policies is None else _sheets(policies, host),
    )


def _sheets(policies: Policies, host: Host) -> list[str]:
    """Return what sheets decide for a host as a whole."""
    address = address_in(host.shares.address)
    lines = policies.explained(f"http://{host.name}/", address)
    found = policies.of_host(host.name, address)
    if found is not None and found.has_paths:
        lines.append("some of its paths have sheets of their own: --explain URL names them")
    return lines


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
            terms = [
                f"{term.line} (for {term.agents or 'all'})"
                for term in (terms_in(known.body) if known.ruling == Ruling.RULES.value else ())
            ]
            yield RobotsRow(
                authority, known.ruling, known.status, known.fetched, known.expires, terms
            )


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
    rate, hold = host.rate, holds_of(store, host.name)
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


def _throttles(host: Host) -> str:
    """Return the statuses by which a host asks for fewer requests."""
    is_gemini = accepts_gemini() or host.name.endswith(f":{GEMINI_PORT}")
    return "429, 503 or 44" if is_gemini else "429 or 503"


def _cause(host: Host, due_in: float, policy: DelayPolicy, *, is_ordered: bool) -> Reason:
    rate = host.rate
    if rate.errors > 1:
        return Reason(f"the backoff after {rate.errors} errors in a row", "KROWL_DELAY_MAX")
    if rate.throttling and due_in > policy.delay(rate) * (1 + JITTER):
        return Reason(f"the Retry-After of an answer {_throttles(host)}")
    if rate.throttling:
        times = counted(rate.throttling, "time")
        return Reason(
            f"its delay, doubled {times} after answers {_throttles(host)}", "KROWL_DELAY_MAX"
        )
    if rate.floor and rate.floor >= policy.delay(rate):
        return Reason("the crawl-delay of its robots.txt", "KROWL_CRAWL_DELAY_MAX")
    wanted = rate.ema * policy.factor
    if wanted <= policy.minimum:
        least = f"its least delay of {policy.minimum:g} s"
        if isinstance(policy, SiteDelay):
            return Reason(f"{least}, which a sheet gives", "KROWL_POLICIES")
        return Reason(f"{least}, which a person set" if is_ordered else least, "KROWL_DELAY_MIN")
    return Reason("its delay", f"KROWL_DELAY_{'MAX' if wanted > policy.maximum else 'FACTOR'}")


_STATES = {
    IN_FLIGHT: "A request to it is under way.",
    CALLED: "It is the next to be fetched: there is room at its domain and address.",
    AWAITING_ROBOTS: "Its robots.txt redirects to another host, which is asked for it first.",
    HELD: "This node does not own its domain at the moment, or is waiting to know.",
    SEALED: "It is being handed over to another node.",
}


def host_now(frontier: Frontier, name: str) -> Host | None:
    """Return a host as it is in memory, or else on disk; None if it is unknown."""
    return frontier.schedule.cache.hosts.get(name) or read_host(frontier.store, name)


def why_host_waits_now(frontier: Frontier, host: Host) -> Reason:
    """Return why a host of an open frontier is not being fetched at this moment."""
    holder = frontier.schedule.orders.holder_of(host.name)
    if holder is not None and host.state is not IN_FLIGHT:
        return hold_reason(*holder)
    if host.state is WAITING:
        return _for_room(frontier, host)
    if (words := _STATES.get(host.state)) is not None:
        return Reason(words)
    if host.is_put_off:
        return Reason(
            f"It was paused or blocked at another node: krowl.resume({host.name!r}) lets it go on."
        )
    policy = frontier.schedule.rule.of(host.name)
    return why_host_waits(frontier.store, host, policy, frontier.now(), due="It is due.")


def _for_room(frontier: Frontier, host: Host) -> Reason:
    shares = frontier.schedule.shares
    full = shares.full(shares.of(host))
    if full is None:
        return Reason("It waits in line for room that it is about to get.")
    most = shares.most(full)
    name, kind = full[1:], full[0]
    if kind == "@" and shares.addresses.open_at(full) > frontier.now():
        return Reason(f"Its address {name} may not be asked again yet.", "KROWL_IP_DELAY_MIN")
    what, setting = {
        "@": (f"its address {name}", "KROWL_IP_CONCURRENCY"),
        "#": (f"its block of addresses {name}", "CONCURRENT_REQUESTS"),
        "^": ("the hosts that were found by the same domain", "CONCURRENT_REQUESTS"),
        CROWD: ("the hosts that are not known to answer soon", "CONCURRENT_REQUESTS"),
    }.get(kind, (f"its domain {full}", "KROWL_DOMAIN_CONCURRENCY"))
    requests = counted(int(most), "request")
    return Reason(f"It waits for room: at most {requests} to {what} may be in flight.", setting)
