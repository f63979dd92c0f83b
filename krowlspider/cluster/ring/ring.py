"""Which node owns a domain, and the JSON that a member publishes. Pure.

Which node owns a domain: a consistent-hash ring of weighted virtual nodes. Two nodes that have read
the same ids and weights build the same ring. When a node joins or leaves, no domain moves between
two others.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice, pairwise, repeat, starmap
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from krowlspider.urls.canonical import position_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# Points of a node for each unit of its weight. The share of a node strays by 1/sqrt(POINTS), 3 %.
POINTS = 1024
WEIGHT_MAX = 64
MEMBERS_MAX = 4096
# Bound on the time to build a ring, because members come from the register.
POINTS_MAX = MEMBERS_MAX * POINTS
# Rings whose points are cached, 10 bytes a point: those in use together while members change.
_RINGS_KEPT = 16

_SPACE = 2**64
# An id stands in keys of Consul and Redis and in file names: no separator, no leading dot.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

# An int, or a float with a part of a unit: both are a whole number of points.
Weight: TypeAlias = int | float
# Ids and weights of the members of a ring, ordered by id.
Weights = tuple[tuple[str, Weight], ...]
_Points = tuple["array[int]", "array[int]"]


@dataclass(frozen=True, slots=True)
class Member:
    """A node: ``weight`` is its relative share, ``redis`` has its inbox, people find ``address``.

    While it joins or leaves, the weight may have a part of a unit (`Steps`).

    :raises ValueError: the id or the weight is invalid
    """

    id: str
    weight: Weight = 1
    redis: str = ""
    address: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ValueError(
                f"not a node id: {str(self.id)[:100]!r} (1 to 63 ASCII letters, digits, dots,"
                " dashes and underscores, a letter or digit first)"
            )
        if not _is_weight(self.weight):
            raise ValueError(
                f"not a weight for node {self.id}: {str(self.weight)[:100]!r} (1 to {WEIGHT_MAX})"
            )


class Ring:
    """The owner of each domain among ``members``. Rings are equal if their ids and weights are.

    :raises ValueError: there are no members, too many, or two with one id
    """

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(sorted(members, key=lambda member: member.id))
        self.weights: Weights = tuple((member.id, member.weight) for member in self.members)
        _check(self.weights)

    @cached_property
    def checksum(self) -> str:
        lines = [f"ring 1 {POINTS}", *(f"{name} {weight}" for name, weight in self.weights)]
        return xxh3_128_hexdigest("\n".join(lines).encode())

    @property
    def number(self) -> int:
        """The first 52 bits of the checksum, which every JSON reader keeps as a number."""
        return int(self.checksum[:13], 16)

    def owner(self, domain: str) -> str:
        points, owners = self._points
        place = bisect_left(points, position_of(domain))
        return self.weights[owners[place] if place < len(points) else owners[0]][0]

    def ranges_of_others(self, node: str) -> list[tuple[int, int]]:
        """Return the ranges of positions that other members own, in order.

        A range is its first and its last position. Two ranges never touch. If ``node`` is no
        member, the one range is all positions.
        """
        points, owners = self._points
        # Positions after the last point belong to the owner of the first one.
        ends = zip((*points, _SPACE - 1), (*owners, owners[0]), strict=True)
        found: list[tuple[int, int]] = []
        first = 0
        for last, owner in ends:
            if last >= first and self.weights[owner][0] != node:
                if found and found[-1][1] == first - 1:
                    first = found.pop()[0]
                found.append((first, last))
            first = last + 1
        return found

    def share(self, node: str) -> float:
        """Return the part of all domains that a member owns, from 0 to 1."""
        return self._shares[node]

    def covers(self, other: Ring, node: str) -> bool:
        """Return whether this ring gives ``node`` every domain that ``other`` gives to it.

        It does if it has all points of the node there, and no other points of others: a weight has
        those of all lower weights.
        """
        mine, theirs = dict(self.weights), dict(other.weights)
        return mine.pop(node, 0) >= theirs.get(node, 0) and all(
            weight <= theirs.get(name, 0) for name, weight in mine.items()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.weights == other.weights

    def __hash__(self) -> int:
        return hash(self.weights)

    def __repr__(self) -> str:
        return f"Ring({', '.join(f'{name}*{weight}' for name, weight in self.weights)})"

    @cached_property
    def _points(self) -> _Points:
        return _points_of(self.weights)

    @cached_property
    def _shares(self) -> dict[str, float]:
        points, owners = self._points
        arcs = [0] * len(self.weights)
        last = points[-1] - _SPACE
        for point, owner in zip(points, owners, strict=True):
            arcs[owner] += point - last
            last = point
        return {name: arc / _SPACE for (name, _), arc in zip(self.weights, arcs, strict=True)}


def _is_weight(weight: object) -> bool:
    if type(weight) is float:
        # Never a whole number: one weight must have one checksum.
        points = weight * POINTS
        return 0 < weight < WEIGHT_MAX and points.is_integer() and not weight.is_integer()
    return type(weight) is int and 1 <= weight <= WEIGHT_MAX


def _check(weights: Weights) -> None:
    if not weights:
        raise ValueError("a ring without members")
    twice = [name for (name, _), (other, _) in pairwise(weights) if name == other]
    if twice:
        raise ValueError(f"two nodes with one id: {twice[0]}")
    if len(weights) > MEMBERS_MAX or sum(weight for _, weight in weights) * POINTS > POINTS_MAX:
        raise ValueError(f"a ring of more than {POINTS_MAX:,} points, {POINTS} for each weight")


@lru_cache(maxsize=1)
def _counters() -> list[bytes]:
    return [number.to_bytes(8, "little") for number in range(WEIGHT_MAX * POINTS)]


@lru_cache(maxsize=_RINGS_KEPT)
def _points_of(weights: Weights) -> _Points:
    """Return the points in order, and the number of the member of each.

    A point is the hash of a counter, seeded with the hash of the id; the first member wins a tie.
    """
    owners: dict[int, int] = {}
    for number in reversed(range(len(weights))):
        name, weight = weights[number]
        counters = islice(_counters(), int(weight * POINTS))
        points = map(xxh3_64_intdigest, counters, repeat(xxh3_64_intdigest(name.encode())))
        owners.update(dict.fromkeys(points, number))
    ordered = sorted(owners)
    return array("Q", ordered), array("H", map(owners.__getitem__, ordered))


Claims: TypeAlias = tuple[Ring, ...]
Counters: TypeAlias = Mapping[str, int | float]

# The URL of a Redis. No query but the number of a socket's database: it could override the time
# limit of every call.
REDIS_URL = re.compile(r"(rediss?://[^?\s]+|unix://[^?\s]+(\?db=[0-9]{1,5})?)")
# Version of the record's JSON; nodes of one cluster must have the same.
_VERSION = 1
_COUNTER_MAX = 2**63


class BadRecordError(Exception):
    """What a member has published cannot be read."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member, what it claims, and the counters of its last heartbeat.

    A member that is ``leaving`` is in no ring; its claims lock what it has. A ``dead`` one has lost
    its lease; its place in the ring and its claims stay while it is waited for.
    """

    member: Member
    claims: Claims = ()
    counters: Counters = field(default_factory=dict)
    leaving: bool = False
    dead: bool = False

    @property
    def gives_away(self) -> bool:
        """Whether the member leaves, now or after some more steps, and takes no more hosts."""
        return self.leaving or bool(self.counters.get("leaving"))

    def dumps(self) -> bytes:
        """Return the record as JSON, without the id, the counters, and whether it is dead."""
        member, rings = self.member, [ring.weights for ring in self.claims]
        stored = _Stored(_VERSION, member.weight, member.redis, member.address, self.leaving, rings)
        return msgspec.json.encode(stored)

    @classmethod
    def loads(cls, node: str, text: bytes) -> MemberRecord:
        """Return the record of ``node``.

        :raises BadRecordError: ``text`` is not from `dumps`, or of another version
        """
        try:
            # First: a record of another version may have other fields.
            version = msgspec.json.decode(text, type=_Versioned).version
            if version != _VERSION:
                raise ValueError(f"it is of version {version!r:.20}, not {_VERSION}")
            stored = msgspec.json.decode(text, type=_Stored)
            member = Member(node, stored.weight, stored.redis, stored.address)
            claims = tuple(Ring(starmap(Member, weights)) for weights in stored.claims)
        except (ValueError, RecursionError) as error:
            raise BadRecordError(f"the record of {node} cannot be read: {error}") from error
        return cls(member, claims, leaving=stored.leaving)


class _Versioned(msgspec.Struct):
    version: Any


class _Stored(_Versioned):
    weight: Weight
    redis: Annotated[str, msgspec.Meta(pattern=rf"^({REDIS_URL.pattern})?\Z")]
    address: str
    leaving: bool
    claims: list[Weights]


def load_counters(text: bytes) -> Counters:
    """Return counters that came over the network.

    :raises BadRecordError: they are not an object of names and numbers
    """
    try:
        counters = msgspec.json.decode(text, type=dict[str, int | float])
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"counters cannot be read: {error}") from error
    if any(abs(number) >= _COUNTER_MAX for number in counters.values()):
        raise BadRecordError("a counter is out of range")
    return counters
