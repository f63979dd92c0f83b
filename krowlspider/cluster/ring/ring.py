"""Which node owns a domain: a consistent-hash ring of weighted virtual nodes. Pure.

Two nodes that have read the same ids and weights build the same ring. When a node joins or leaves,
no domain moves between two others.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, TypeAlias

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from krowlspider.urls.host import position_of

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
