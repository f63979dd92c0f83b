"""A cluster whose members join and leave by a register, with heartbeats and the end of its
crawl.

The ring of the members decides which domains each node owns.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from krowlspider.cluster.controller import OwnershipController
from krowlspider.cluster.membership import SEED_SIZE, Signal, Signals, Tasks, UnansweredError
from krowlspider.cluster.register.membership import RegisteredMembership
from krowlspider.cluster.register.port import RegisterKeys
from krowlspider.cluster.register.state import RegisterState, read_register, same_redis
from krowlspider.cluster.registers import open_register, service_in
from krowlspider.cluster.ring.claims import ClusterView, RegisterReading
from krowlspider.cluster.ring.live_members import Heartbeat, TerminationDetector
from krowlspider.cluster.ring.ring import Counters, Member, MemberRecord
from krowlspider.cluster.transport.redis_connection import RedisClients, node_with_same_redis
from krowlspider.job.nodes.leaving import CrawlPort, Leaving, NodeHandover, urls_of
from krowlspider.job.provenance import own_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

# Seconds between two heartbeats. The end of a crawl is found after three of them.
BEAT = 1.0
# Most heartbeats after the end, so that other nodes learn of it and need not find it themselves.
_AFTER_THE_END = 5


class Heartbeats:
    """Sends a heartbeat every second, until the crawl is over on all nodes.

    ``is_idle`` returns whether nothing is left on this node, ``activity`` a number that grows with
    everything done here, ``figures`` other counters for the heartbeat.
    """

    def __init__(
        self,
        members: RegisteredMembership,
        *,
        is_idle: Callable[[], Awaitable[bool]],
        activity: Callable[[], int],
        figures: Callable[[], Counters],
    ):
        self._members = members
        # It tells apart the processes that have had this node's id.
        self._start = secrets.randbits(52)
        self._is_idle = is_idle
        self._activity = activity
        self._figures = figures
        self._detector = TerminationDetector()
        self._beat = 0
        # The `run_number` for which the crawl is over, 0 while it is not.
        self._over = 0
        # Set when the heartbeats of all nodes were read.
        self.heard = asyncio.Event()
        self._missing: tuple[str, ...] = ()
        # The last heartbeat of each node, when it was first seen, and its age at the last look, in
        # seconds of the event loop.
        self._heard: dict[str, tuple[Heartbeat | None, float]] = {}
        self._silences: dict[str, float] = {}
        # The last activity of each node, and when it was first seen.
        self._acted: dict[str, tuple[tuple[int, int] | None, float]] = {}
        self._inactive: dict[str, float] = {}

    def inactive(self, node: str) -> float:
        """Return for how many seconds a node has done nothing, as far as is known here."""
        return self._inactive.get(node, 0.0)

    def silence(self, node: str) -> float:
        """Return for how many seconds a node has sent no heartbeat."""
        return self._silences.get(node, 0.0)

    def _listen(self, now: float) -> None:
        for node, heartbeat in self._latest().items():
            if self._heard.get(node, (None, 0.0))[0] != heartbeat or node not in self._heard:
                self._heard[node] = heartbeat, now
            self._silences[node] = now - self._heard[node][1]
            activity = (heartbeat.start, heartbeat.activity) if heartbeat else None
            if node not in self._acted or self._acted[node][0] != activity:
                self._acted[node] = activity, now
            self._inactive[node] = now - self._acted[node][1]

    @property
    def over(self) -> bool:
        """Return whether no node has anything left to fetch."""
        return bool(self._over)

    async def run(self) -> None:
        """Send heartbeats; return when the crawl is over on all nodes.

        :raises ClusterError: another process conflicts with this node
        """
        while not self._over:
            await asyncio.sleep(BEAT)
            self._listen(asyncio.get_running_loop().time())
            # A node with something left does not look for the end.
            if await self._send():
                self._over = self._detector.update(self._latest(), self._members.pending_nodes)
            self._warn_of_missing(self._detector.waiting_for)
        for _ in range(_AFTER_THE_END):
            await self._send()
            if all(each and each.over for each in self._latest().values()):
                return
            await asyncio.sleep(BEAT)

    async def _send(self) -> bool:
        """Send a heartbeat; return whether nothing is left on this node."""
        heartbeat = await self._next()
        if await self._members.beat({**self._figures(), **heartbeat.counters()}):
            self.heard.set()
        return heartbeat.idle

    async def _next(self) -> Heartbeat:
        # Activity is read first and last: whatever moves between inbox and frontier meanwhile is
        # seen in one of them, or as activity.
        activity = self._activity()
        idle = await self._is_idle() and activity == self._activity()
        self._beat += 1
        return Heartbeat(self._start, self._beat, idle, activity, self._over)

    def _latest(self) -> dict[str, Heartbeat | None]:
        """Return the last heartbeats of the nodes that live or have work on their disks."""
        members, pending = self._members.members, self._members.pending_nodes
        return {
            node: Heartbeat.of(record.counters)
            for node, record in members.items()
            if not record.dead or node in pending
        }

    def _warn_of_missing(self, nodes: tuple[str, ...]) -> None:
        if nodes and nodes != self._missing:
            states = (f"{node} ({self._members.state(node)})" for node in nodes)
            logger.warning(
                "All URLs are done except those on the disks of nodes %s: start them again, or"
                " give them up with scrapy ring --forget NODE",
                ", ".join(states),
            )
        self._missing = nodes


# Part of the TTL that requests in flight may go on without a lease. The lease ends at 0.8 of the
# TTL. Others take over after 1 TTL if Consul ends the session immediately, else after 2.2.
_GRACE = 0.15


class Cluster:
    """This node in KROWL_CLUSTER, by the register of KROWL_CONSUL; its Redis is REDIS_URL.

    A job folder belongs to one ``place``. ``on_answer`` is called with the seconds of each answer
    of Consul.

    :raises ClusterError: REDIS_URL is invalid
    """

    def __init__(
        self,
        settings: BaseSettings,
        node: str,
        on_answer: Callable[[float], None] | None = None,
    ):
        self.name = cluster = settings["KROWL_CLUSTER"]
        self._ttl = settings.getint("KROWL_CONSUL_TTL")
        self._drain_timeout = settings.getfloat("KROWL_DRAIN_TIMEOUT")
        self._register = register = open_register(settings, on_answer)
        redis: str = settings["REDIS_URL"]
        own = Member(node, redis=redis, address=own_address() or "")
        self.place = f"{node} of {cluster}"
        self._clients = RedisClients()
        self.own_client = self._clients.open(redis)
        self.keys = RegisterKeys(register, cluster)
        # The sheets, which may have megabytes, are in no list of the cluster's keys.
        self.policy_keys = RegisterKeys(register, f"{cluster}:policies")
        self.limit_keys = RegisterKeys(register, f"{cluster}:limits")
        self.signals = Signals(self.keys)
        delay = settings.getfloat("KROWL_TAKEOVER_DELAY")
        self._service = service_in(register, cluster, own, self._ttl)
        self.membership = RegisteredMembership(
            register,
            cluster,
            own,
            ttl=self._ttl,
            delay=delay,
            gemini=settings.getbool("KROWL_GEMINI"),
            service=self._service,
        )
        self._controller = OwnershipController(
            self.membership, grace=_GRACE * self._ttl, is_stopping=self._is_stopping
        )

    def prepare(self, own: int | None) -> int:
        """Return the identity seed of all nodes; ``own`` is that of the folder, None for a new one.

        :raises ClusterError: the register does not answer, or the cluster has another seed
        """
        offered = None if own is None else own.to_bytes(SEED_SIZE, "big")
        # A wrong cluster must stop the start, so block here; nothing else runs yet.
        with ThreadPoolExecutor(1) as thread:
            seed = thread.submit(asyncio.run, self.membership.seed.agree(offered)).result()
        return int.from_bytes(seed, "big")

    @property
    def view(self) -> ClusterView | None:
        """The view whose ring decides to which node a URL goes; None before the first one."""
        return self._controller.view

    @property
    def epoch(self) -> int | None:
        """The epoch of the newest reading that the view agrees with; None before the first view.

        A later one than the view's may change nothing, as when a node publishes the same again.
        """
        if (view := self.view) is None:
            return None
        now = RegisterReading.of(self.membership.epoch, self.membership.members)
        agrees = (now.members, now.claims) == (view.reading.members, view.reading.claims)
        return now.epoch if agrees else view.reading.epoch

    @property
    def has_lease(self) -> bool:
        """Return whether no other node may take over what this node has."""
        return self._controller.has_lease

    @property
    def leaving(self) -> bool:
        return self._controller.leaving

    @property
    def shrinking(self) -> bool:
        """Return whether this node gives its domains away, and then leaves."""
        return self._controller.shrinking

    async def _is_stopping(self) -> bool:
        """Return whether a node that is gone may have obeyed the signal STOP before this one."""
        try:
            return await self.signals.read() is Signal.STOP
        except UnansweredError:
            return True

    def serve_metrics(self, host: str, port: int) -> None:
        """Have Consul's service name the port of the metrics at an address of this machine."""
        if self._service is not None:
            self._service.serve_metrics(host, port)

    def client_of(self, node: str) -> Redis | None:
        """Return the Redis client of a node, None if it takes no messages."""
        return self._clients.of_member(self.membership.members.get(node))

    def attach(
        self, crawl: CrawlPort, spider: str, is_inbox_empty: Callable[[], Awaitable[bool]]
    ) -> NodeHandover:
        self._crawl = crawl
        self._is_inbox_empty = is_inbox_empty
        own, controller = self.own_client, self._controller
        self._leaving = Leaving(
            self.membership, controller, crawl, is_inbox_empty, self._drain_timeout
        )
        self._handover = NodeHandover(crawl, controller, own, self.client_of, spider)
        return self._handover

    async def join(self, tasks: Tasks) -> None:
        """Join the cluster; return when the view is known.

        :raises ClusterError: this node cannot be a member
        """
        # Without an answer, the start of the membership fails.
        with suppress(UnansweredError):
            if (state := await read_register(self._register, self.name)) is not None:
                await self._refuse_shared_redis(state)
                self._grow(state)
        await self.membership.start(self._controller.changed)
        await self._wait_for_pending_nodes()
        tasks.start(self._controller.run(self._handover))
        await self._controller.known.wait()

    def _grow(self, state: RegisterState) -> None:
        """Let this node come to its weight in steps if there are others."""
        own = self.membership.own.id
        others = [each for node, each in state.members.items() if node != own]
        weights = sum(each.member.weight for each in others if not each.leaving)
        self._controller.grow(urls_of(others))
        if weights and not self._crawl.departures.has_hosts:
            self._controller.begin_small(weights)

    async def _refuse_shared_redis(self, state: RegisterState) -> None:
        """:raises ClusterError: the Redis of another node is this one's too, by another URL"""
        own = self.membership.own.id
        others = {
            node: self._clients.open(url)
            for node, url in state.redis.items()
            if url and node != own
        }
        if same := await node_with_same_redis(self.own_client, others):
            raise same_redis(same)

    async def _wait_for_pending_nodes(self) -> None:
        """Wait up to two TTLs for the pending nodes to join, as after a restart of all nodes."""
        end = time.monotonic() + 2 * self._ttl
        last: list[str] = []
        members = self.membership
        while time.monotonic() < end:
            # The heartbeat also reads the pending nodes.
            await members.beat({})
            there = {node for node, record in members.members.items() if not self._returns(record)}
            missing = sorted(members.pending_nodes - there)
            if not missing:
                return
            if missing != last:
                logger.info("Waiting up to %d s for nodes %s", 2 * self._ttl, ", ".join(missing))
            last = missing
            # The processes of one machine start together, and their register writes nothing.
            await asyncio.sleep(BEAT / 5 if self._register.is_supervised else BEAT)

    def _returns(self, record: MemberRecord) -> bool:
        """Return whether a node that is away will surely be started again."""
        return record.dead and self._register.is_supervised

    async def shrink(self) -> None:
        """Hand most domains over before `drain`, within the same time; the crawl may go on."""
        await self._leaving.shrink()

    async def drain(self) -> None:
        """Hand over everything within KROWL_DRAIN_TIMEOUT, if there are nodes to take it."""
        await self._leaving.drain()

    @property
    def not_handed_over(self) -> int:
        """The URLs that were not handed over, although other nodes were there to take them."""
        return self._leaving.not_handed_over

    def _is_empty(self, *, over: bool, joined: bool) -> bool:
        """Return whether no node needs to wait for this one to come back."""
        if over:
            # URLs of hosts that do not answer do not count.
            return self._crawl.rests()
        left = self._crawl.left or self._crawl.stays
        return not left and (
            self._leaving.is_drained or not joined or not self._leaving.other_nodes
        )

    async def leave(self, heartbeats: Heartbeats, *, joined: bool) -> None:
        """Leave the cluster; ``joined``: `join` has returned."""
        await self._handover.receiver.close()
        with suppress(UnansweredError):
            if self._is_empty(over=heartbeats.over, joined=joined) and await self._is_inbox_empty():
                await self.membership.dismiss()
        returns = self._register.is_supervised and not self._leaving.is_drained
        await self.membership.leave(returns=returns)

    async def close(self) -> None:
        await self._clients.close()
        self._register.close()
