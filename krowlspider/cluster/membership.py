"""The members of a cluster, as the controller of one knows them, and errors of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.cluster.ring.record import Claims, Record
    from krowlspider.cluster.ring.ring import Member

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
