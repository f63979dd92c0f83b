"""What a member of a cluster publishes: its record and its counters, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from krowlspider.cluster.ring.ring import Member, Ring

if TYPE_CHECKING:
    from krowlspider.cluster.ring.claims import Claims

Counters: TypeAlias = Mapping[str, int | float]

# Where a Redis is. Without a query: one could undo the bounds of every call.
REDIS_URL = re.compile(r"(rediss?|unix)://[^?\s]+")
# No counter comes near it; an integer in JSON may have more digits than a float has.
_NUMBER_MAX = 2**63
# Of the form of a record, the first in which nodes of one cluster may differ.
_VERSION = 1


class BadRecordError(Exception):
    """What a member has published cannot be read."""


@dataclass(frozen=True, slots=True)
class Record:
    """A live member: what it is, what it claims, the counters of its last heartbeat, and whether it is ``leaving``: no ring
    has it any more, and its claims lock its domains until it has handed them over."""

    member: Member
    claims: Claims = ()
    counters: Counters = field(default_factory=dict)
    leaving: bool = False

    def dumps(self) -> str:
        """JSON of all but the id, which its key has, and the counters, which have a place of their own."""
        member = self.member
        return json.dumps(
            {
                "version": _VERSION,
                "weight": member.weight,
                "redis": member.redis,
                "address": member.address,
                "leaving": self.leaving,
                "claims": [ring.to_json() for ring in self.claims],
            }
        )

    @classmethod
    def loads(cls, node: str, text: bytes) -> Record:
        """:raises BadRecordError: not what :meth:`dumps` writes, or of another version"""
        try:
            said = json.loads(text)
            if said["version"] != _VERSION:
                raise ValueError(f"it is of version {said['version']!r:.20}, not {_VERSION}")
            member = Member(node, said["weight"], _redis(said["redis"]), _text(said["address"]))
            claims = tuple(map(Ring.from_json, said["claims"]))
            return cls(member, claims, leaving=_flag(said["leaving"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadRecordError(f"the record of {node} cannot be read: {error}") from error


def load_counters(text: bytes | str) -> Counters:
    """Counters as they came over the network.

    :raises BadRecordError: not an object of names and numbers
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"counters cannot be read: {error}") from error
    if not isinstance(said, dict) or not all(
        type(number) in {int, float} and -_NUMBER_MAX < number < _NUMBER_MAX
        for number in said.values()
    ):
        raise BadRecordError("counters are not names and numbers")
    return said


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _redis(value: Any) -> str:
    # It is not told: it may have a password in it.
    if (url := _text(value)) and not REDIS_URL.fullmatch(url):
        raise ValueError("its redis is not the URL of a Redis")
    return url


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
