"""The JSON that a member of a cluster publishes: its record and its counters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Annotated, Any, TypeAlias

import msgspec

from krowlspider.cluster.ring.ring import Member, Ring, Weight, Weights

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
class Record:
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
    def loads(cls, node: str, text: bytes) -> Record:
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
