"""One server sees no more of several nodes than of one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.simulated_nodes import SimulatedNodes
from tests.support.simulation import Answer, Web

if TYPE_CHECKING:
    from pathlib import Path


class OneServer(Web):
    """Sites at one address, which take ``latency`` seconds for an answer."""

    def __init__(self, latency: float) -> None:
        super().__init__()
        self._latency = latency

    def answer(self, host: str, path: str, now: float) -> Answer:
        return Answer(self._latency)

    def address(self, host: str) -> str:
        return "192.0.2.1"

    def links(self, host: str, path: str) -> list[str]:
        return []


@pytest.mark.parametrize(("count", "latency"), [(1, 1.5), (2, 1.5), (3, 1.5), (3, 0.3)])
def test_limits_of_an_address_hold_over_all_nodes(
    tmp_path: Path, count: int, latency: float
) -> None:
    web = OneServer(latency)

    async def main() -> None:
        nodes = SimulatedNodes(web, count, tmp_path)
        nodes.seed(f"http://site{number}.test/" for number in range(100))
        nodes.run_for(6)

    asyncio.run(main())
    starts = sorted(entry.start for entry in web.log)
    in_flight = [sum(e.start <= at < e.end for e in web.log) for at in starts]
    in_a_second = [sum(at <= other < at + 1 for other in starts) for at in starts]
    # By KROWL_IP_CONCURRENCY, of which the parts are rounded down, or by KROWL_IP_DELAY_MIN.
    if latency > 1:
        assert 6 <= max(in_flight) <= 8
    else:
        # A node that waits 0.3 s may have four requests within a second.
        assert 8 <= max(in_a_second) <= 4 * count
