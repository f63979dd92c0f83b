"""Which domains a node may fetch while the ring changes, so that two nodes never fetch one. Pure.

Each live member publishes its *claims*: the rings by which it may still be fetching. A claim locks
every domain that it gives to its node. A node may fetch a domain if all of these hold:

- The ring of the live members gives the domain to the node.
- One of the node's own claims in force gives the domain to it.
- No claim of another live member gives the domain to that other member.

A claim is in force once it is stored and the others' claims were read after that, until a publish
begins that does not lock its domains. Of two nodes that claim one domain, the one that stored later
has read the other's claim, so at most one of them fetches.

A member that leaves is in no ring. Its claims stay until it is gone, so nobody fetches its domains
while they are handed over. A dead member keeps its place in the ring and its claims while it is
waited for. A node without a lease fetches nothing, whatever is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.ring import Claims, Member, MemberRecord, Ring
from krowlspider.urls.canonical import domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# Most rings that a node claims. With so many, it takes no new domains before a hand-over is done.
CLAIMS_MAX = 8
# Answers that a view caches, about 250 bytes each.
_CACHED = 65_536


@dataclass(frozen=True, slots=True)
class RegisterReading:
    """The register at one moment: ``members`` are not leaving, ``claims`` are of all members.

    ``epoch`` grows with each change. The ``dead`` have no lease and are waited for.
    """

    epoch: int
    members: tuple[Member, ...]
    claims: Mapping[str, Claims]
    dead: frozenset[str] = frozenset()

    @classmethod
    def of(cls, epoch: int, records: Mapping[str, MemberRecord]) -> RegisterReading:
        staying = tuple(record.member for record in records.values() if not record.leaving)
        claims = {node: record.claims for node, record in records.items()}
        dead = frozenset(node for node, record in records.items() if record.dead)
        return cls(epoch, staying, claims, dead)

    def ring(self, own: str) -> Ring:
        """Return the ring of the members; of ``own`` alone if there are none."""
        return Ring(self.members or (Member(own),))


class ClusterView:
    """The cluster as node ``own`` saw it last; immutable.

    ``ring`` has the members that are not leaving, or this node alone if all leave, so that what it
    has stays there. ``in_force`` are its claims in force. A node that is ``leaving`` owns nothing.
    """

    def __init__(self, own: str, reading: RegisterReading, in_force: Claims) -> None:
        self.own = own
        self.reading = reading
        self.in_force = in_force
        self.ring = reading.ring(own)
        self.leaving = own not in {member.id for member in reading.members}
        rivals = _rivals(own, self.ring, reading.claims)
        # No bound method: a cycle would keep the caches until the next full garbage collection.
        decide = partial(_may_fetch, own, self.ring, () if self.leaving else in_force, rivals)
        # The owner of a host.
        self.host_owner: Callable[[str], str] = lru_cache(_CACHED)(partial(_host_owner, self.ring))
        # Whether the hosts of a domain may be popped while the lease is valid.
        self.may_fetch: Callable[[str], bool] = lru_cache(_CACHED)(decide)

    @property
    def settled(self) -> bool:
        """Whether every live member claims this ring and no other."""
        reading = self.reading
        return all(
            claims == (self.ring,)
            for node, claims in reading.claims.items()
            if node not in reading.dead
        )

    @property
    def agreed(self) -> bool:
        """Whether every member lives, and claims this ring and no other."""
        return not self.reading.dead and self.settled

    @property
    def unaware(self) -> tuple[str, ...]:
        """Return the staying members that claim no ring without this node: they may send to it.

        The dead send nothing before they have read the register.
        """
        claims, names = self.reading.claims, {member.id for member in self.reading.members}
        others = sorted(names - self.reading.dead - {self.own})
        return tuple(
            name
            for name in others
            if all(self.own in dict(ring.weights) for ring in claims.get(name, ()))
        )

    def may_take(self, domain: str) -> bool:
        """Return whether the domain is ours and locked, so that a host may be handed over to us."""
        return (
            not self.leaving
            and self.ring.owner(domain) == self.own
            and _gives(self.in_force, domain, self.own)
        )


class Claimant:
    """The claims of one node over time. It decides the steps; the caller accesses the register.

    For each reading, call `update`, then `wanted`. If that returns claims, call `begin`, store
    them, read the register again and call `confirm` with that reading. If it is unknown whether
    they were stored, `wanted` returns them again. A reading must be of one moment, and a publish
    that began before another must not be stored after it.
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self.view: ClusterView | None = None
        # Our claims in the register; None between the begin and the confirmation of a publish.
        self._stored: Claims | None = None
        self._begun: Claims | None = None

    def update(self, reading: RegisterReading) -> None:
        """Take a reading, unless it is older. Without this node, no claim is in force."""
        if self.view is None or reading.epoch >= self.view.reading.epoch:
            self._apply(reading, () if self.view is None else self.view.in_force)

    def wanted(self, handed_over: str | None) -> Claims | None:
        """Return the claims to publish; None if they are stored and in force, or the node leaves.

        ``handed_over`` is the checksum of the ring by which nothing is left here to hand over.
        """
        if self.view is None or self.view.leaving:
            return None
        claims = next_claims(self.own, self._locks(), self.view.ring, handed_over)
        return None if claims == self._stored == self.view.in_force else claims

    def begin(self, claims: Claims) -> None:
        """Begin a publish: only what both the old and the new claims lock stays in force."""
        self._begun, self._stored = claims, None
        if self.view is not None:
            old = self.view.in_force
            both = (*self._locked(old, claims), *self._locked(claims, old))
            self.view = ClusterView(self.own, self.view.reading, tuple(dict.fromkeys(both)))

    def leave(self) -> Claims:
        """Begin to leave. Return the claims to publish: they lock what is to be handed over."""
        claims = self._locks()
        self.begin(claims)
        return claims

    def confirm(self, reading: RegisterReading) -> None:
        """Take a reading that was made after the last begun publish was stored."""
        claims, self._begun = self._begun, None
        if claims is not None and self.view is not None:
            last = self.view.reading
            self._apply(reading if reading.epoch >= last.epoch else last, claims)

    def give_up(self) -> None:
        """Let no claim be in force, because the lease has ended. The epochs may start anew."""
        self._begun = self._stored = None
        if self.view is not None:
            last = self.view.reading
            self.view = ClusterView(self.own, replace(last, epoch=-1), ())

    def _locks(self) -> Claims:
        """Return the claims that lock what this node has; without a lease, the stored ones."""
        if self.view is None:
            return ()
        return self.view.in_force or self.view.reading.claims.get(self.own, ())

    def _apply(self, reading: RegisterReading, claims: Claims) -> None:
        stored = reading.claims.get(self.own)
        if stored is None:
            self.give_up()
            return
        if self._begun is None:
            self._stored = stored
        # Other nodes do not respect what the register has lost.
        self.view = ClusterView(self.own, reading, self._locked(claims, stored))

    def _locked(self, rings: Claims, claims: Claims) -> Claims:
        """Return the rings whose domains of ours are all locked by one of the claims."""
        return tuple(
            ring for ring in rings if any(claim.covers(ring, self.own) for claim in claims)
        )


def next_claims(own: str, locks: Claims, ring: Ring, handed_over: str | None) -> Claims:
    """Return what a node with these claims is to publish when ``ring`` has the live members.

    That is the ring alone when nothing is left to hand over (``handed_over`` is its checksum).
    Until then the old claims stay, and the ring is added if it gives the node more. So the others
    publish once when a node joins, after their hand-over, and immediately when one leaves.
    """
    if handed_over == ring.checksum or not locks:
        return (ring,)
    if any(claim.covers(ring, own) for claim in locks):
        return locks
    kept = tuple(claim for claim in locks if not ring.covers(claim, own))
    return locks if len(kept) >= CLAIMS_MAX else (*kept, ring)


def _host_owner(ring: Ring, host: str) -> str:
    return ring.owner(domain_of(host))


def _rivals(own: str, ring: Ring, claims: Mapping[str, Claims]) -> dict[Ring, set[str]]:
    """Return the rings that other nodes claim, each with those nodes, except our own ring."""
    rivals: dict[Ring, set[str]] = {}
    for name, theirs in claims.items():
        for claim in theirs:
            if name != own and claim != ring:
                rivals.setdefault(claim, set()).add(name)
    return rivals


def _may_fetch(
    own: str, ring: Ring, in_force: Claims, rivals: dict[Ring, set[str]], domain: str
) -> bool:
    return (
        ring.owner(domain) == own
        and _gives(in_force, domain, own)
        and not any(rival.owner(domain) in nodes for rival, nodes in rivals.items())
    )


def _gives(claims: Claims, domain: str, own: str) -> bool:
    return any(claim.owner(domain) == own for claim in claims)
