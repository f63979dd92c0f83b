"""When a node's lease in Consul ends, by its own clock."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.cluster.register.lease import IdentitySeed, MemberLease, PendingNodes
from krowlspider.cluster.registers import Agent
from krowlspider.cluster.ring.live_members import RegisterEntry
from krowlspider.cluster.ring.ring import Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from krowlspider.cluster.register.port import Step

TTL = 10
# The part of the TTL in which a lease is good: four fifths.
GOOD = TTL * (1 - 1 / 5)


class Register(Agent):
    """A register of an old cluster, which does what it is asked for. ``called`` is the monotonic
    time of the last call that makes or renews a session."""

    called = 0.0

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")

    async def call(self, ask: Callable[..., Any], *, wait: float = 0.0) -> Any:
        self.called = time.monotonic()
        return "a session"

    async def get(self, key: str) -> RegisterEntry | None:
        return RegisterEntry(key, b"1", None, 1) if key.endswith("/founded") else None

    async def change(self, *steps: Step) -> bool:
        return True


@pytest.mark.parametrize("renewals", [0, 1])
def test_lease_ends_early_and_counts_from_the_request(renewals: int) -> None:
    """Other nodes wait for a whole TTL, and Consul may count from a time before its answer."""

    async def main() -> None:
        register, own = Register(), Member("a")
        lease = MemberLease(
            register,
            "root",
            own,
            TTL,
            pending_nodes=PendingNodes(register, "root", own),
            seed=IdentitySeed(register, "root", TTL),
        )
        begun = time.monotonic()
        assert await lease.take() is None
        for _ in range(renewals):
            await lease.renew()
        lease.confirmed = True
        assert begun + GOOD <= lease.good_until <= register.called + GOOD
        register.close()

    asyncio.run(main())
