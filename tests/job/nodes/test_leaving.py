"""How long a node hands over what it has when it leaves."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from krowlspider.job.nodes.leaving import Leaving
from tests.support.simulated_cluster import ProcessLoop, simulated_time


async def _nothing() -> bool:
    return True


def _record() -> SimpleNamespace:
    return SimpleNamespace(dead=False, gives_away=False, counters={"epoch": 9})


@pytest.mark.parametrize("most", [30.0, 300.0])
def test_last_step_has_time_after_a_long_request(most: float) -> None:
    membership: Any = SimpleNamespace(
        own=SimpleNamespace(id="a"), members={"a": _record(), "b": _record()}
    )
    controller: Any = SimpleNamespace(
        shrinking=False, at_last_step=True, is_gone=True, left_at=5, shrink=id, leave=tuple
    )
    crawl: Any = SimpleNamespace(commit=_nothing, left=0, stays=0)

    async def main() -> bool:
        leaving = Leaving(membership, controller, crawl, _nothing, most)
        await leaving.shrink()
        # Until then, requests were in flight.
        await asyncio.sleep(most + 1)
        await leaving.drain()
        return leaving.is_drained

    with simulated_time(), asyncio.Runner(loop_factory=partial(ProcessLoop, 0.0)) as runner:
        assert runner.run(main())
