"""Why a host of a running crawl is not being fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.admin.host_view import Reason, hold_reason, why_host_waits
from krowlspider.frontier.admin.words import counted
from krowlspider.frontier.hosts.host import (
    AWAITING_ROBOTS,
    CALLED,
    HELD,
    IN_FLIGHT,
    SEALED,
    WAITING,
)
from krowlspider.frontier.shares.names import CROWD
from krowlspider.frontier.stopped import read_host

if TYPE_CHECKING:
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import Host

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
