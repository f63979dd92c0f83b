"""Which domains a node may fetch while the ring changes, so that never two nodes fetch one.

Each live member publishes its *claims*: rings by which it may still be fetching. They lock every domain that one of
them gives to it. A node may fetch a domain when the ring of the live members gives it to it, one of its own claims in
force does, and no claim of another live member gives it to that other. A claim comes into force when it has been stored
and the others' claims were read after that; it is out of force from the moment at which a publish begins that does not
lock its domains. Of two nodes that claim one domain, the one that was stored later has read the other's claim, so at
most one of them finds none. A member that leaves is in nobody's ring any more, but its claims stay until it is gone:
what it had rests while it is handed over.

Pure: what was read of the register is handed in, what to publish is handed back. The lease is the caller's: a node
whose lease has ended fetches nothing, whatever is said here, and its claims are gone for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from krowlspider.cluster.ring.ring import Member, Ring

if TYPE_CHECKING:
    from collections.abc import Mapping

# Rings that a node claims at most: with so many it takes no new domains until it has handed over the old ones.
CLAIMS_MAX = 8
# Answers that a view keeps, about 250 bytes each: as many as `urls.host` keeps domains.
_KEPT = 65_536

Claims = tuple[Ring, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What the register held at one time: ``epoch``, which grows with each change of it, the live members that stay, and
    the claims of each live one by its id."""

    epoch: int
    members: tuple[Member, ...]
    claims: Mapping[str, Claims]


class View:
    """The cluster as a node saw it last: ``ring`` of the members that stay, ``held``, its own claims in force, and the
    others' claims. A view does not change; each change makes a new one.

    ``leaving``: this node does not stay. It fetches nothing, and all it has is others'; when nobody stays, ``ring`` is of
    this node alone: what is here stays here.
    """

    def __init__(self, own: str, reading: Reading, held: Claims) -> None:
        self.own = own
        self.reading = reading
        self.held = held
        self.ring = Ring(reading.members or (Member(own),))
        self.leaving = own not in {member.id for member in reading.members}
        rivals = _rivals(own, self.ring, reading.claims)
        decide = partial(_may_fetch, own, self.ring, () if self.leaving else held, rivals)
        self._owner = lru_cache(maxsize=_KEPT)(self.ring.owner)
        self._may_fetch = lru_cache(maxsize=_KEPT)(decide)

    @property
    def epoch(self) -> int:
        """The register's, at the time of the reading."""
        return self.reading.epoch

    @property
    def behind(self) -> tuple[str, ...]:
        """The live members that do not claim this ring and no other: those that have not read it, that hand over, or that
        leave; empty when all agree."""
        ring = (self.ring,)
        return tuple(sorted(n for n, claims in self.reading.claims.items() if claims != ring))

    @property
    def unaware(self) -> tuple[str, ...]:
        """The others that stay and claim no ring without this node: they may not have read that it leaves, and send to it.

        Those that leave claim no new ring, so nothing tells when they have read it.
        """
        claims, names = self.reading.claims, (member.id for member in self.reading.members)
        others = sorted(name for name in names if name != self.own)
        return tuple(name for name in others if all(map(self._has_own, claims.get(name, ()))))

    def owner(self, domain: str) -> str:
        """The id of the node that a URL of the domain goes to."""
        return self._owner(domain)

    def may_fetch(self, domain: str) -> bool:
        """Whether a host of the domain may be popped, as long as the lease is good."""
        return self._may_fetch(domain)

    def may_take(self, domain: str) -> bool:
        """Whether what another node hands over of the domain is to be taken: it is ours, and a claim in force keeps others
        from fetching it, until it is handed on, should it be another's by then.
        """
        return (
            not self.leaving
            and self.owner(domain) == self.own
            and _gives(self.held, domain, self.own)
        )

    def _has_own(self, ring: Ring) -> bool:
        return any(name == self.own for name, _ in ring.weights)


class Claimant:
    """The claims of one node through time. It gives the order of steps; the caller reads and writes the register.

    At each new reading: `see`, then `wanted`; when that gives claims, `begin` with them, store them in the register, read
    it again, and `confirm` with that reading. When storing fails, or nobody knows whether it did, there is nothing to
    confirm: `wanted` gives them again. Two rules are the register's: a reading is of one moment, and a publish that
    was begun before another is not stored after it (compare and set).
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self.view: View | None = None
        # What the register has of us; None while a publish is begun and not confirmed.
        self._stored: Claims | None = None
        self._begun: Claims | None = None

    def see(self, reading: Reading) -> None:
        """A reading came. One that is older than the last changes nothing; one without us is not full: the ring stays,
        and nothing is claimed any more.
        """
        if self.view is None or reading.epoch >= self.view.epoch:
            self._look(reading, () if self.view is None else self.view.held)

    def wanted(self, moved: str | None) -> Claims | None:
        """The claims to publish now, None when they are in force and the register has no others. ``moved`` is the checksum
        of the ring by which nothing is left here to hand over: no request in flight, no state that is not acknowledged.
        A node that leaves wants none.
        """
        if self.view is None or self.view.leaving:
            return None
        # After a lease has ended the register's claims lock what is still here, as they did before.
        held = self.view.held or self.view.reading.claims.get(self.own, ())
        claims = next_claims(self.own, held, self.view.ring, moved)
        return None if claims == self._stored == self.view.held else claims

    def begin(self, claims: Claims) -> None:
        """A publish of the claims begins. From now on the register may have them or what it had: only what is locked
        by either is in force.
        """
        self._begun, self._stored = claims, None
        if self.view is not None:
            held = self.view.held
            both = (*self._locked(held, claims), *self._locked(claims, held))
            self._hold(self.view.reading, tuple(dict.fromkeys(both)))

    def leave(self) -> Claims:
        """The claims to publish when this node leaves, which `begin` here: they lock all that is still to be handed over.

        After the lease has ended they are what the register has of us, as the next lease begins with that.
        """
        view = self.view
        claims = () if view is None else view.held or view.reading.claims.get(self.own, ())
        self.begin(claims)
        return claims

    def confirm(self, reading: Reading) -> None:
        """The publish last begun was stored, and the register read after that."""
        claims, self._begun = self._begun, None
        if claims is not None and self.view is not None:
            newest = reading if reading.epoch >= self.view.epoch else self.view.reading
            self._look(newest, claims)

    def give_up(self) -> None:
        """The lease has ended, or is a new one: nothing is in force, and the register may count anew. Readings begun
        before are not to be shown after.
        """
        self._begun = self._stored = None
        if self.view is not None:
            last = self.view.reading
            self._hold(Reading(-1, last.members, last.claims), ())

    def _look(self, reading: Reading, held: Claims) -> None:
        if self.own not in reading.claims:
            self.give_up()
            return
        stored = reading.claims.get(self.own, ())
        if self._begun is None:
            self._stored = stored
        # What the register has lost, no other node respects.
        self._hold(reading, self._locked(held, stored))

    def _hold(self, reading: Reading, held: Claims) -> None:
        self.view = View(self.own, reading, held)

    def _locked(self, rings: Claims, claims: Claims) -> Claims:
        """Those of the rings whose domains the claims lock for us."""
        return tuple(
            ring for ring in rings if any(claim.covers(ring, self.own) for claim in claims)
        )


def next_claims(own: str, held: Claims, ring: Ring, moved: str | None) -> Claims:
    """What a node is to publish that holds such claims, when ``ring`` is the ring of the live members.

    The ring alone when nothing is left to hand over by it (``moved`` is its checksum). Until then what it held stays,
    and the ring comes along where it gives the node more. So the others publish once when a node joins, after their
    hand-over, and once when a node leaves, at once.
    """
    if moved == ring.checksum or not held:
        return (ring,)
    if any(claim.covers(ring, own) for claim in held):
        return held
    kept = tuple(claim for claim in held if not ring.covers(claim, own))
    return held if len(kept) >= CLAIMS_MAX else (*kept, ring)


def _rivals(
    own: str, ring: Ring, claims: Mapping[str, Claims]
) -> list[tuple[Ring, frozenset[str]]]:
    """The rings that others claim, each with those who do. By our own ring nobody is a rival."""
    claimants: dict[Ring, set[str]] = {}
    for name, theirs in claims.items():
        for claim in theirs if name != own else ():
            claimants.setdefault(claim, set()).add(name)
    return [(claim, frozenset(ids)) for claim, ids in claimants.items() if claim != ring]


def _may_fetch(
    own: str, ring: Ring, held: Claims, rivals: list[tuple[Ring, frozenset[str]]], domain: str
) -> bool:
    return (
        ring.owner(domain) == own
        and _gives(held, domain, own)
        and not any(rival.owner(domain) in ids for rival, ids in rivals)
    )


def _gives(claims: Claims, domain: str, own: str) -> bool:
    return any(claim.owner(domain) == own for claim in claims)
