"""The members of a cluster: the port to their register, its errors, and static lists of nodes."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import xxhash

from krowlspider.cluster.ring.ring import Member
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krowlspider.cluster.ring.record import Claims, Record

_STATIC_NODE = re.compile(
    r"(?P<id>[^=]+)=(?P<redis>(rediss?|unix)://.+?)(\*(?P<weight>[0-9]{1,9}))?"
)
# Bytes of the cluster's identity seed.
SEED_SIZE = 8


class ClusterError(KrowlError):
    """This node cannot join the cluster, or not with these settings."""


class UnansweredError(Exception):
    """The register or a Redis did not answer in time. The call may have had its effect."""


class Membership(Protocol):
    """A node's place in the register of a cluster whose members join and leave.

    ``members`` has every live member by id, this node included. ``epoch`` grows with each reading
    of them; it may fall when the register has lost its data. The next `publish` stores ``own``.
    """

    own: Member

    @property
    def members(self) -> Mapping[str, Record]: ...

    @property
    def epoch(self) -> int: ...

    @property
    def good_until(self) -> float:
        """The end of the lease by the membership's clock.

        Before it, no other node takes over the domains of this node.
        """

    async def publish(self, claims: Claims, *, leaving: bool = False) -> None:
        """Store this node's claims for all to read, then read the members again.

        Of two nodes that publish at the same time, at least one returns with the other's claims in
        ``members``. An outage is waited for.
        """


def static_seed(cluster: str, secret: str = "") -> bytes:
    """Return the identity seed of the nodes of a static list.

    Without a ``secret``, anyone who knows the name of the cluster can compute it.
    """
    if not secret:
        return xxhash.xxh3_64_digest(f"krowlspider/{cluster}".encode())
    return blake2b(f"{cluster}\0{secret}".encode(), digest_size=SEED_SIZE).digest()


def seal_of(seed: bytes) -> int:
    """Return a number that tells seeds apart without revealing them."""
    return int.from_bytes(blake2b(seed, digest_size=6).digest(), "big")


def parse_ring(parts: Iterable[str]) -> list[Member]:
    """Return the members of a static list: each is ``id=redis-url`` or ``id=redis-url*weight``.

    :raises ValueError: one is not of that form, or an id or a Redis is listed twice
    """
    members: dict[str, Member] = {}
    # Errors name the number of a member, because its text may have a password.
    for number, part in enumerate(parts, 1):
        found = _STATIC_NODE.fullmatch(part.strip())
        if found is None:
            raise ValueError(
                f"member {number} is not of the form id=redis://host:port/0 or"
                " id=redis://host:port/0*weight"
            )
        member = Member(found["id"], int(found["weight"] or 1), found["redis"])
        if member.id in members:
            raise ValueError(f"member {member.id} is listed twice")
        if same := [other.id for other in members.values() if other.redis == member.redis]:
            raise ValueError(
                f"members {same[0]} and {member.id} have one Redis: give each its own, or its own"
                " database (/0, /1)"
            )
        members[member.id] = member
    # All nodes share the Redis of the first member, so the order in the setting must not matter.
    return [members[name] for name in sorted(members)]
