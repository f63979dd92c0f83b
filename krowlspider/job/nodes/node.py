"""This process as one node of a cluster: it sends URLs to their owners and takes in its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.membership import Signal, Tasks, UnansweredError
from krowlspider.cluster.register.port import Allowance
from krowlspider.cluster.ring.live_members import Heartbeat
from krowlspider.cluster.transport.forwarder import Forwarder, Streams
from krowlspider.cluster.transport.inbox import (
    INBOX_MAX,
    Inbox,
    orders_key,
    requests_key,
    robots_key,
    waiting,
)
from krowlspider.cluster.transport.posts import (
    ORDERS_INBOX_MAX,
    ROBOTS_INBOX_MAX,
    OrderPost,
    RobotsPost,
)
from krowlspider.job.nodes.cluster import Cluster, Heartbeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.ring import Counters
    from krowlspider.cluster.transport.posts import Plain
    from krowlspider.job.meters import Meters
    from krowlspider.job.nodes.leaving import CrawlPort
    from krowlspider.job.nodes.sheet_limits import SheetLimits
    from krowlspider.job.site_policies import SitePolicies

logger = logging.getLogger(__name__)

# Seconds between two looks for messages in memory, and for answers that did not come.
_FLUSH = 0.2
_ASK_AGAIN = 1.0
# Seconds for which a node that has joined waits for standing orders. The others send them within
# two.
_ORDERS_WAIT = 20.0
# Seconds after which standing orders are sent again to a node that lacks the last one, as its
# heartbeats show.
_TELL_AGAIN = 5.0
# Seconds for which a node that fetches nothing may hold up the links of the others by its seeds. It
# is longer than a node waits for a seed in flight.
_SEEDS_WAIT = 40.0


class Node:
    """This process as a member of a cluster; ``own`` is its name. Pop nothing from the frontier
    while it is not `ready`."""

    def __init__(
        self,
        settings: BaseSettings,
        spider: str,
        make_cluster: Callable[[BaseSettings, str], Cluster],
        meters: Meters | None = None,
    ):
        self.own: str = settings["KROWL_NODE_ID"] or socket.gethostname()
        self.cluster = cluster = make_cluster(settings, self.own)
        self._spider = spider
        self._meters = meters
        pages = settings.getint("KROWL_CLUSTER_PAGES")
        # The part of the page limit of all nodes that this node may use; None without a limit.
        self.allowance = Allowance(cluster.keys, pages) if pages else None
        # Messages in the inbox at the last look; -1 while it is not known.
        self.inbox_length = -1
        # What sheets allow all nodes together; None without sheets.
        self._limits: SheetLimits | None = None
        self._heartbeats = Heartbeats(
            cluster.membership,
            is_idle=self._is_idle,
            activity=self._activity,
            figures=self._figures,
        )

        def reaches(node: str) -> bool:
            return cluster.client_of(node) is not None

        self.robots_post = RobotsPost(self.own, self.foreign_owner, reaches)
        self.orders = OrderPost(self.own, reaches)
        # The process of each node that was sent the standing orders, by its ``Heartbeat.start``,
        # and when, in seconds of the event loop.
        self._sent_orders: dict[str, tuple[int, float]] = {}
        # Whether this node has the standing orders that others had when it joined.
        self._has_orders = False
        # ``running``: `run` was called. ``joined``: this node is a member of the cluster.
        self.running = self.joined = False
        # Set once this node has joined and so knows the owner of each URL, or has failed to join.
        self.owners_settled = asyncio.Event()

    def foreign_owner(self, host: str) -> str | None:
        """Return the other node that owns a host; None if this one does."""
        return self.foreign_owners([host])[0]

    def foreign_owners(self, hosts: list[str]) -> list[str | None]:
        """Return the owner of each host, in the order given, None for a host of this node."""
        view, own = self.cluster.view, self.own
        assert view is not None
        # Most links of a page lead to one host.
        owners = {host: view.host_owner(host) for host in set(hosts)}
        return [None if (owner := owners[host]) == own else owner for host in hosts]

    @property
    def node_count(self) -> int:
        """The number of nodes that may fetch, this one included."""
        view = self.cluster.view
        return 1 if view is None else len(view.reading.claims)

    def may_fetch(self, domain: str) -> bool:
        """Return whether a host of the domain may be fetched, its robots.txt too."""
        view = self.cluster.view
        return view is not None and view.may_fetch(domain)

    @property
    def knows_owners(self) -> bool:
        return self.cluster.view is not None

    @property
    def over(self) -> bool:
        return self._heartbeats.over

    @property
    def not_handed_over(self) -> int:
        """Return how many URLs this node could not hand over although other nodes were there."""
        return self.cluster.not_handed_over if self.running else 0

    def silence(self, name: str) -> float:
        """Return for how many seconds a node has sent no heartbeat."""
        return self._heartbeats.silence(name)

    @property
    def stopped_nodes(self) -> list[str]:
        """Return the nodes that have ended with work left, and are not waited for."""
        return sorted(self.cluster.membership.stopped)

    @property
    def dead_nodes(self) -> frozenset[str]:
        """Return the nodes that have died with work on their disks, as far as is known."""
        members = self.cluster.membership
        away = members.pending_nodes - members.members.keys()
        return frozenset(node for node in away if members.state(node) == "dead")

    @property
    def other_nodes(self) -> list[str]:
        """Return the other nodes, those with work on their disks that are away included."""
        members = self.cluster.membership
        return sorted((members.members.keys() | members.pending_nodes) - {self.own})

    def without_orders(self) -> dict[str, int]:
        """Return the nodes to which `send_orders` has to send the standing orders, each with the
        start of its process.

        That process was not sent them yet, or its heartbeats show that it lacks the last one.
        """
        now, last = asyncio.get_running_loop().time(), self._crawl.figures()["orders"]
        found = {}
        for name in self._live_others():
            counters = self.cluster.membership.members[name].counters
            beat = Heartbeat.of(counters)
            sent_to, at = self._sent_orders.get(name, (None, 0.0))
            # A Redis may have lost them.
            is_behind = counters.get("orders", 0) < last and now >= at + _TELL_AGAIN
            if beat is not None and (sent_to != beat.start or is_behind):
                found[name] = beat.start
        return found

    def send_orders(self, name: str, start: int, messages: Iterable[Plain]) -> None:
        """Send a node messages with all standing orders."""
        who = "standing orders"
        if all(self.orders.send(name, who, "take_orders", each) for each in messages):
            self._sent_orders[name] = start, asyncio.get_running_loop().time()

    def forget_sent_orders(self, name: str) -> None:
        """Have `without_orders` return a node again, as it has not answered."""
        self._sent_orders.pop(name, None)

    @property
    def ready(self) -> bool:
        return (
            self.joined
            and (self.allowance is None or self.allowance.pages_left > 0)
            and self.cluster.signals.signal is Signal.RUNNING
            and self.cluster.has_lease
            and self._has_orders
        )

    def _live_others(self) -> list[str]:
        members = self.cluster.membership.members
        return [name for name, record in members.items() if name != self.own and not record.dead]

    def others_have_seeds(self) -> bool:
        """Return whether another node has seeds to fetch, or has not said yet that it has none."""
        members = self.cluster.membership.members
        return any(
            self._heartbeats.inactive(name) < _SEEDS_WAIT
            and _may_have_seeds(members[name].counters)
            for name in self._live_others()
        )

    @property
    def is_paused(self) -> bool:
        """Return whether the signal of the cluster is PAUSED."""
        return self.cluster.signals.signal is Signal.PAUSED

    async def set_paused(self, *, paused: bool) -> None:
        """Send the signal PAUSED or RUNNING, which all nodes obey within seconds.

        :raises UnansweredError: it may be sent or not
        """
        await self.cluster.signals.send(Signal.PAUSED if paused else Signal.RUNNING)
        if self.running:
            self._crawl.wake()

    @property
    def spent(self) -> bool:
        """Return whether the page limit of the whole cluster is used up."""
        return self.allowance is not None and self.allowance.spent

    @property
    def waits_for(self) -> str:
        """Why nothing is fetched now, as the end of a sentence; empty if this node may fetch."""
        if not self.joined:
            return "to be a member of the cluster"
        if not self.cluster.has_lease:
            return "for a lease from Consul"
        if self.cluster.leaving:
            return "for other nodes to take over its hosts"
        if self.cluster.signals.signal is not Signal.RUNNING:
            return "because of the cluster signal"
        if not self._has_orders:
            return "for the standing orders of the other nodes"
        if self._crawl.is_out_of_work():
            return "for the other nodes"
        if self._crawl.waits_for_seeds():
            return "for the seeds of the other nodes"
        is_spent = self.allowance is not None and not self.allowance.pages_left
        return "for a share of the cluster's page limit" if is_spent else ""

    def run(
        self,
        crawl: CrawlPort,
        *,
        on_over: Callable[[], None],
        on_stop: Callable[[], None],
        policies: SitePolicies | None = None,
    ) -> None:
        """Start to join, to forward the outbox and to take in messages; return immediately.

        ``policies`` become those of all nodes, see `SharedPolicies`; None without sheets.
        ``on_over`` is called at the end of the crawl on all nodes, ``on_stop`` at the signal STOP.
        """
        self._crawl = crawl
        self._handover = handover = self.cluster.attach(crawl, self._spider, self._is_inbox_empty)
        self._streams = Streams(crawl.outbox, self.own, self._spider)
        self._url_forwarder = Forwarder(
            self._streams,
            self.cluster.client_of,
            requests_key(self._spider),
            inbox_max=INBOX_MAX,
            # By an outdated ring, a URL could go to a node that has left.
            paused=lambda: not self.cluster.has_lease,
        )
        self._forwarders = (
            self._url_forwarder,
            Forwarder(
                self.robots_post,
                self.cluster.client_of,
                robots_key(self._spider),
                inbox_max=ROBOTS_INBOX_MAX,
                paused=lambda: not self.cluster.has_lease,
                flush=_FLUSH,
                what="messages about robots.txt",
            ),
            Forwarder(
                self.orders,
                self.cluster.client_of,
                orders_key(self._spider),
                inbox_max=ORDERS_INBOX_MAX,
                flush=_FLUSH,
                what="orders",
            ),
        )
        self._inbox = Inbox(
            self.cluster.own_client,
            self._spider,
            crawl.take_in,
            make_durable=crawl.make_durable,
            paused=crawl.is_full,
            turn=crawl.turn,
            take_hosts=handover.receiver.take,
            take_robots=crawl.take_robots,
            take_orders=crawl.take_orders,
            # Not the frontier's cap: the former owner of a host has queued it already.
            hosts_paused=crawl.lacks_room,
            on_batch=None if self._meters is None else self._meters.inbox.observe,
        )
        self._tasks = Tasks(self._fail)
        self._tasks.start(self._work(on_over, on_stop, policies))
        self.running = True

    def _fail(self, error: Exception) -> None:
        self._crawl.fail(error)
        self.owners_settled.set()

    async def _work(
        self,
        on_over: Callable[[], None],
        on_stop: Callable[[], None],
        policies: SitePolicies | None,
    ) -> None:
        crawl, tasks, signals = self._crawl, self._tasks, self.cluster.signals

        def on_signal() -> None:
            if signals.signal is Signal.STOP:
                on_stop()
            crawl.wake()

        async def ask_again() -> None:
            while True:
                await asyncio.sleep(_ASK_AGAIN)
                crawl.ask_again()

        async def beat() -> None:
            await self._heartbeats.run()
            on_over()

        await signals.refuse_stop(self.cluster.name)
        tasks.start(signals.run(on_signal))
        if policies is not None:
            await self._share(policies, crawl)
        await self.cluster.join(tasks)
        self.joined = True
        self.owners_settled.set()
        for each in self._forwarders:
            tasks.start(each.run())
        for work in (self._inbox.run(), ask_again(), beat()):
            tasks.start(work)
        if self.allowance is not None:
            tasks.start(self.allowance.run(crawl.wake, wanted=self._wants_pages))
        tasks.start(self._await_orders())

    async def _share(self, policies: SitePolicies, crawl: CrawlPort) -> None:
        """Use the newest sheets of the cluster before anything is fetched, and from then on."""
        # Crawls without sheets do not load it.
        from krowlspider.job.nodes.shared_policies import SharedPolicies  # noqa: PLC0415
        from krowlspider.job.nodes.sheet_limits import SheetLimits  # noqa: PLC0415

        shared = SharedPolicies(self.cluster.policy_keys, policies, self.own, time.time)
        with suppress(UnansweredError):
            await shared.agree()
        self._tasks.start(shared.run())
        if policies.limits.grants is not None:
            self._limits = SheetLimits(self.cluster.limit_keys, policies.limits)
            self._tasks.start(self._limits.run(crawl.wake))

    def _wants_pages(self) -> bool:
        # While this node waits for the seeds of others, they may need its part of the page limit.
        return not (self._crawl.is_out_of_work() or self._crawl.waits_for_seeds())

    async def _await_orders(self) -> None:
        """Wait for the standing orders of the other nodes, then let this node fetch."""
        now = asyncio.get_running_loop().time
        end = now() + _ORDERS_WAIT
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heartbeats.heard.wait(), _ORDERS_WAIT)
        while self._crawl.figures()["orders"] < self._last_order():
            if now() >= end:
                logger.warning(
                    "The standing orders of the other nodes have not come within %g s: until they"
                    " come, hosts may be fetched that a person has blocked or paused",
                    _ORDERS_WAIT,
                )
                break
            await asyncio.sleep(_FLUSH)
        self._has_orders = True
        self._crawl.wake()

    def _last_order(self) -> float:
        """Return the stamp of the last standing order that another node has."""
        members = self.cluster.membership.members
        return max(
            (members[name].counters.get("orders", 0) for name in self._live_others()), default=0
        )

    async def _is_inbox_empty(self) -> bool:
        begun = time.monotonic()
        self.inbox_length = await waiting(self.cluster.own_client, self._spider)
        if self._meters is not None:
            self._meters.redis.observe(time.monotonic() - begun)
        return not self.inbox_length

    async def _is_idle(self) -> bool:
        # The inbox comes first: what leaves it meanwhile is seen in the frontier.
        return await self._is_inbox_empty() and self._crawl.rests() and self._handover.is_idle

    def _activity(self) -> int:
        return self._crawl.activity() + self._handover.activity()

    def _figures(self) -> Counters:
        """Return the counters that are shown to people and read by nodes that leave."""
        epoch = self.cluster.epoch
        shown = {} if epoch is None else {"epoch": epoch}
        if self.cluster.shrinking:
            shown["leaving"] = 1
        own = {"inbox": self.inbox_length, "time": round(time.time())}
        if not self.spent and self._crawl.has_seeds():
            own["seeds"] = 1
        return {**self._crawl.figures(), **own, **shown}

    def counts(self) -> dict[str, int]:
        """Return counts since this start, by the names of the stats below ``krowl/cluster/``."""
        sent, taken = self._url_forwarder.stats, self._inbox.stats
        counts = {
            "sent_count": sent.sent,
            "again_count": self._streams.again,
            "taken_count": taken.taken,
            "held_count": sent.inbox_full,
            "dead_count": taken.dead,
            "dead_lost_count": taken.dead_lost,
        }
        failed = sum((each.stats.failed for each in self._forwarders), taken.failed)
        failed += self._handover.failed()
        live = sum(not record.dead for record in self.cluster.membership.members.values())
        counts |= {"members": live, **self._handover.counts()}
        return counts | {f"failed_count/{kind}": count for kind, count in failed.items()}

    async def shrink(self) -> None:
        """Hand most hosts over while the crawl goes on, before the node leaves."""
        if self.joined:
            await self.cluster.shrink()

    async def drain(self) -> None:
        """Hand over everything to the other nodes, before the node leaves."""
        if self.joined:
            await self.cluster.drain()

    async def stop(self) -> None:
        """Leave the cluster. Messages that are not acknowledged stay in the outbox."""
        self.owners_settled.set()
        if self.running:
            await self._tasks.end()
            if self.allowance is not None:
                await self.allowance.close(over=self.over)
            if self._limits is not None:
                await self._limits.close()
            await self.cluster.leave(self._heartbeats, joined=self.joined)
        await self.cluster.close()


def _may_have_seeds(counters: Counters) -> bool:
    heartbeat = Heartbeat.of(counters)
    return heartbeat is None or bool(counters.get("seeds"))
