"""Which node owns a domain: a consistent-hash ring of weighted virtual nodes.

Pure: two nodes that have read the same ids and weights have the same ring, and a node more or less moves no domain
between two others.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

# Points that a node has on the ring for each unit of its weight. The share of a node strays by 1/sqrt(POINTS), 3 %:
# the busiest of 64 has 1.07 of the mean, and 1.09 in the worst of twelve sets of names. With 512 points that was 1.135,
# with 256 it was 1.21.
POINTS = 1024
# A thousand nodes make a ring in a second: what the register says is not to keep this one busy for much longer.
WEIGHT_MAX = 64
MEMBERS_MAX = 4096
POINTS_MAX = MEMBERS_MAX * POINTS
# Rings whose points are kept, 10 bytes each: those that a change of members has in use at once.
_RINGS_KEPT = 16

_SPACE = 2**64
# It stands in keys of Consul and Redis and in names of files: no separator, no pattern, no dot in front.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

# Ids and weights of a ring's members, by id.
Weights = tuple[tuple[str, int], ...]
_Points = tuple["array[int]", "array[int]"]


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster. ``weight`` is its share of the domains beside the others', ``redis`` the URL of the server
    that holds its inbox, ``address`` where a person finds it.

    ValueError when the id or the weight is none.
    """

    id: str
    weight: int = 1
    redis: str = ""
    address: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ValueError(
                f"not a node id: {str(self.id)[:100]!r} (1 to 63 ASCII letters, digits, dots, dashes and underscores, "
                "a letter or digit first)"
            )
        if type(self.weight) is not int or not 1 <= self.weight <= WEIGHT_MAX:
            raise ValueError(
                f"not a weight for node {self.id}: {str(self.weight)[:100]!r} (1 to {WEIGHT_MAX})"
            )


class Ring:
    """The owner of each domain among ``members``. ValueError when there is none, one twice, or too many.

    Rings are equal when their ids and weights are. The points are made at the first question for an owner, in 0.5 to
    0.9 ms for each node, so that a ring that is only compared costs little.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(sorted(members, key=lambda member: member.id))
        self.weights: Weights = tuple((member.id, member.weight) for member in self.members)
        _check(self.weights)

    @classmethod
    def from_json(cls, value: Any) -> Ring:
        """The ring of a list of ``[id, weight]``, as read from the register. ValueError when it is anything else."""
        if not isinstance(value, list) or len(value) > MEMBERS_MAX:
            raise ValueError(f"not a ring: {str(value)[:100]!r}")
        return cls(_member(entry) for entry in value)

    def to_json(self) -> list[list[str | int]]:
        """The ids and weights, for the register."""
        return [[name, weight] for name, weight in self.weights]

    @cached_property
    def checksum(self) -> str:
        """32 hex digits; two nodes agree on every owner if and only if they have the same."""
        lines = [f"ring 1 {POINTS}", *(f"{name} {weight}" for name, weight in self.weights)]
        return xxh3_128_hexdigest("\n".join(lines).encode())

    @property
    def number(self) -> int:
        """The first 52 bits of the checksum, which every JSON keeps as a number."""
        return int(self.checksum[:13], 16)

    def owner(self, domain: str) -> str:
        """The id of the node that owns a domain. It keeps no answers: 0.6 to 1 µs each."""
        points, owners = self._points
        place = bisect_left(points, xxh3_64_intdigest(domain.encode()))
        return self.weights[owners[place] if place < len(points) else owners[0]][0]

    def share(self, node: str) -> float:
        """The part of all domains, of 1, that a node owns. KeyError when it is no member."""
        return self._shares[node]

    def covers(self, other: Ring, node: str) -> bool:
        """Whether this ring gives ``node`` each domain that ``other`` does.

        It does when ``other`` has the same points and more: fewer rivals take nothing from a node. Each weight has the
        points of the lower ones.
        """
        mine, theirs = dict(self.weights), dict(other.weights)
        return mine.get(node) == theirs.get(node) and all(
            weight <= theirs.get(name, 0) for name, weight in self.weights
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


def _check(weights: Weights) -> None:
    if not weights:
        raise ValueError("a ring without members")
    twice = [name for (name, _), (other, _) in pairwise(weights) if name == other]
    if twice:
        raise ValueError(f"two nodes with one id: {twice[0]}")
    if len(weights) > MEMBERS_MAX or sum(weight for _, weight in weights) * POINTS > POINTS_MAX:
        raise ValueError(f"a ring of more than {POINTS_MAX:,} points, {POINTS} for each weight")


def _member(entry: Any) -> Member:
    if not isinstance(entry, list) or len(entry) != 2:
        raise ValueError(f"not a member of a ring: {str(entry)[:100]!r}")
    return Member(entry[0], entry[1])


@lru_cache(maxsize=1)
def _counters() -> list[bytes]:
    return [number.to_bytes(8, "little") for number in range(WEIGHT_MAX * POINTS)]


@lru_cache(maxsize=_RINGS_KEPT)
def _points_of(weights: Weights) -> _Points:
    """The points in order, and for each the number of its member.

    A point is the hash of a counter, seeded with the hash of the id. Of two members that meet in one point, it is the
    first one's.
    """
    owners: dict[int, int] = {}
    for number in reversed(range(len(weights))):
        name, weight = weights[number]
        counters = islice(_counters(), weight * POINTS)
        points = map(xxh3_64_intdigest, counters, repeat(xxh3_64_intdigest(name.encode())))
        owners.update(dict.fromkeys(points, number))
    ordered = sorted(owners)
    return array("Q", ordered), array("H", map(owners.__getitem__, ordered))
