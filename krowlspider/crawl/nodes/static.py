"""A cluster of a static list of nodes: a setting names the members for the whole crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.cluster.membership import ClusterError, parse_ring, seal_of, static_seed
from krowlspider.cluster.ring.claims import Reading, View
from krowlspider.cluster.signals import Signals
from krowlspider.cluster.static_membership import StaticMembership
from krowlspider.cluster.transport.redis_connection import RedisClients
from krowlspider.cluster.transport.redis_keys import RedisBoard, RedisKeys
from krowlspider.crawl.nodes.handover import rebucket

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from scrapy.settings import BaseSettings

    from krowlspider.cluster.ring.ring import Ring
    from krowlspider.cluster.tasks import Tasks
    from krowlspider.crawl.nodes.handover import CrawlPort
    from krowlspider.crawl.nodes.heartbeats import Heartbeats

# The KROWL_STATIC_NODES_SECRET of a cluster that was started before it had a secret.
_NO_SECRET = "none"  # noqa: S105 - it says that there is none


def place_of(node: str, ring: Ring) -> str:
    """Return the place to which a job folder of a node belongs."""
    return f"{node} of {ring.checksum}"


class StaticCluster:
    """This node among the members of KROWL_STATIC_NODES. Its members are those of `Cluster`.

    :raises ClusterError: it is not among them, or the Redis URL of a member is invalid
    """

    has_lease = True
    leaving = shrinking = False
    left_behind = 0
    # The members do not change, so there are no readings of them.
    epoch = None

    def __init__(self, settings: BaseSettings, node: str):
        self.name = cluster = settings["KROWL_CLUSTER"]
        secret: str = settings["KROWL_STATIC_NODES_SECRET"]
        members = parse_ring(settings.getlist("KROWL_STATIC_NODES"))
        self._seed = static_seed(cluster, "" if secret == _NO_SECRET else secret)
        self.may_begin = bool(secret)
        self._clients = RedisClients()
        try:
            clients = [self._clients.open(member.redis) for member in members]
        except ClusterError as error:
            raise ClusterError(f"KROWL_STATIC_NODES: {error}") from error
        boards = [RedisBoard(client, cluster) for client in clients]
        self.membership = StaticMembership(
            node, members, boards, cluster=cluster, seal=seal_of(self._seed)
        )
        self.own_client = self._clients.open(self.membership.own.redis)
        # All nodes share the Redis of the first member.
        self.keys = RedisKeys(clients[0], cluster)
        self.signals = Signals(self.keys)
        ring = self.membership.ring
        self.place = place_of(node, ring)
        self.view = View(node, Reading.of(1, self.membership.members), (ring,))

    def prepare(self, _: int | None) -> int:
        return int.from_bytes(self._seed, "big")

    def serve_metrics(self, host: str, port: int) -> None:
        """Do nothing: no register has this node."""

    def client_of(self, node: str) -> Redis | None:
        return self._clients.of_member(self.membership.members.get(node))

    def attach(self, crawl: CrawlPort, *_: object) -> None:
        """Return None: no host changes its owner."""
        self._crawl = crawl

    async def join(self, tasks: Tasks) -> None:
        await self.membership.start()
        # The outbox may be from before a start with another list.
        tasks.start(rebucket(self._crawl, self._other_owner))

    def _other_owner(self, domain: str) -> str | None:
        owner = self.view.ring.owner(domain)
        return None if owner == self.membership.own.id else owner

    async def shrink(self) -> None: ...

    async def drain(self) -> None: ...

    async def leave(self, heartbeats: Heartbeats, *, joined: bool) -> None:
        if joined:
            await heartbeats.send_last()

    async def close(self) -> None:
        await self._clients.close()
