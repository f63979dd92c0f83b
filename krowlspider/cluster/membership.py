"""Who is in the ring, and what each member claims: the contract, a ring given by a setting, and one node alone."""

from __future__ import annotations

import re
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Protocol

import xxhash

from krowlspider.cluster.ring.claims import Claims, Reading
from krowlspider.cluster.ring.record import Counters, Record
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_RING_PART = re.compile(r"(?P<id>[^=]+)=(?P<redis>(rediss?|unix)://.+?)(\*(?P<weight>[0-9]{1,9}))?")
# Bytes of the cluster's identity seed.
SEED_SIZE = 8


class ClusterError(KrowlError):
    """The node cannot join the cluster, or not as it is set up."""


class DuplicateNodeError(ClusterError):
    """Another process that lives has this node's id."""


class UnansweredError(Exception):
    """Consul or Redis did not answer, or not in time: what it was asked may have been done or not."""


class Membership(Protocol):
    """This node's place in the cluster; on one event loop.

    ``members`` has every live member by id, this node among them from `start` on: always a full view. A view that lacks
    this node is none, and leaves the last one. ``epoch`` grows with each view; between data lost by Consul and the next
    start it may fall. ``on_change`` is called after ``members`` changed in more than counters, and after the lease
    ended or came back.

    The ``pending_nodes`` has every node with work that may be on its disk, as read with the last heartbeat: each member, and those
    that have ended without `dismiss`.
    """

    own: Member
    on_change: Callable[[], None]

    @property
    def members(self) -> Mapping[str, Record]: ...

    @property
    def epoch(self) -> int: ...

    @property
    def pending_nodes(self) -> frozenset[str]: ...

    @property
    def good_until(self) -> float:
        """By the clock handed in: the node may fetch until then, and no other takes its domains over before."""

    async def start(self) -> None:
        """Join, the crew too, and read the first view.

        :raises DuplicateNodeError: another live process has this id
        :raises ClusterError: nobody can be reached to join
        """

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        """Store this node's claims where all read them, and whether it is leaving, and read the view anew after that.

        Of two nodes that publish at the same time at least one returns with the other's claims in ``members``. An
        outage is waited for.
        """

    async def beat(self, counters: Counters) -> None:
        """Tell the others this node's counters, and read theirs and the crew, as all stood at one moment; in an outage
        nothing happens."""

    async def dismiss(self) -> None:
        """Nothing is left on this node's disk, and nobody need wait for it: it is of the crew no more.

        :raises UnansweredError: it may be or not
        """

    async def leave(self) -> None:
        """Tell the others that this node fetches no more: they take over at once. It has no lease from here on."""

    async def agree_seed(self, seed: bytes | None) -> bytes:
        """The identity seed of all nodes, 8 bytes; the first node's ``seed``, or one made for it if that is None.

        :raises ClusterError: this node's job has another seed; or nobody can be reached
        """


def reading(membership: Membership) -> Reading:
    """What the register held when it was read last, as the claims want it: who is leaving has claims alone."""
    records = membership.members
    return Reading(
        membership.epoch,
        tuple(record.member for record in records.values() if not record.leaving),
        {node: record.claims for node, record in records.items()},
    )


class Board(Protocol):
    """Where the nodes of a static ring show each other their counters."""

    async def exchange(self, node: str, counters: Counters) -> Mapping[str, Counters]:
        """Show ours, and read all.

        :raises UnansweredError:
        """


class StaticMembership:
    """Members by a setting: all are live at all times, and of the crew, with the one ring as their claim.

    A member that is down keeps its domains, and so does one that leaves; what is found for it waits in its inbox.
    """

    epoch = 1
    good_until = inf

    def __init__(
        self,
        node: str,
        members: Iterable[Member],
        cluster: str,
        *,
        board: Board | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """:raises ClusterError: ``node`` is not among the members"""
        given = {member.id: member for member in members}
        if node not in given:
            raise ClusterError(
                f"this node's id {node} is not in KROWL_STATIC_NODES ({', '.join(given)}): set KROWL_NODE_ID to one of them"
            )
        ring = Ring(given.values())
        self.own = given[node]
        self.on_change = on_change
        self.members = {member.id: Record(member, (ring,)) for member in given.values()}
        self.pending_nodes = frozenset(given)
        self._cluster = cluster
        self._board = board

    async def start(self) -> None: ...

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        self._keep(self.own.id, claims=claims)

    async def beat(self, counters: Counters) -> None:
        self._keep(self.own.id, counters=counters)
        if self._board is None:
            return
        try:
            shown = await self._board.exchange(self.own.id, counters)
        except UnansweredError:
            return
        for node in shown.keys() & self.members.keys():
            self._keep(node, counters=shown[node])

    async def dismiss(self) -> None: ...

    async def leave(self) -> None:
        self.good_until = -inf

    async def agree_seed(self, seed: bytes | None) -> bytes:
        return agreed(static_seed(self._cluster), seed, self._cluster)

    def _keep(
        self, node: str, claims: Claims | None = None, counters: Counters | None = None
    ) -> None:
        old = self.members[node]
        self.members[node] = Record(
            old.member,
            old.claims if claims is None else claims,
            old.counters if counters is None else counters,
        )


def static_seed(cluster: str, secret: str = "") -> bytes:
    """The seed that the nodes of a static ring make by themselves. Without a ``secret`` whoever
    knows the name of the cluster can make it too."""
    if not secret:
        return xxhash.xxh3_64_digest(f"krowlspider/{cluster}".encode())
    return blake2b(f"{cluster}\0{secret}".encode(), digest_size=SEED_SIZE).digest()


def seal_of(seed: bytes) -> int:
    """What tells seeds apart and does not tell them: a number that every JSON keeps."""
    return int.from_bytes(blake2b(seed, digest_size=6).digest(), "big")


def agreed(seed: bytes, own: bytes | None, cluster: str) -> bytes:
    """The cluster's seed.

    :raises ClusterError: this node's job has another one
    """
    if own not in {None, seed}:
        raise ClusterError(
            f"this JOBDIR was begun with another identity seed than the cluster {cluster!r} has: its seen marks say"
            " nothing there; give a new JOBDIR, or another KROWL_CLUSTER"
        )
    return seed


def parse_ring(parts: Iterable[str]) -> list[Member]:
    """The members of a static ring, by their ids: each ``id=redis-url``, or ``id=redis-url*weight``.

    :raises ValueError: one of them is not of that form, or an id or a Redis is there twice
    """
    members: dict[str, Member] = {}
    # Told by number: what is wrong may have a password in it.
    for number, part in enumerate(parts, 1):
        found = _RING_PART.fullmatch(part.strip())
        if found is None:
            raise ValueError(
                f"member {number} is not of the form id=redis://host:port/0 or id=redis://host:port/0*weight"
            )
        member = Member(found["id"], int(found["weight"] or 1), found["redis"])
        if member.id in members:
            raise ValueError(f"member {member.id} is there twice")
        if same := [other.id for other in members.values() if other.redis == member.redis]:
            raise ValueError(
                f"members {same[0]} and {member.id} have one Redis: give each its own, or its own database (/0, /1)"
            )
        members[member.id] = member
    # What all share is in the first one's Redis, in whatever order each was given them.
    return [members[name] for name in sorted(members)]
