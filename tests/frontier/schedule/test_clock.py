"""The job clock never goes back, and ignores changes of the wall clock."""

from __future__ import annotations

import pytest

from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen import SeenSet
from tests.frontier.conftest import RULE, World


def restarted(world: World, boot: bytes) -> Frontier:
    """Reopen the frontier as another process of the same job."""
    world.store.close()
    world.store = world.open_store()
    seen = SeenSet(world.store, 1000)
    clocks = world.clocks
    world.frontier = Frontier(
        world.store,
        seen,
        world.limits,
        RULE,
        monotonic=lambda: clocks.monotonic,
        wall=lambda: clocks.wall,
        boot=boot,
    )
    return world.frontier


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 86_400.0 * 365])
def test_the_job_clock_ignores_changes_of_the_wall_clock(world: World, jump: float) -> None:
    restarted(world, b"one run")
    world.commit()
    before = world.frontier.now()
    world.clocks.monotonic += 7.0
    world.clocks.wall += jump
    assert restarted(world, b"one run").now() == pytest.approx(before + 7.0)


def test_the_job_clock_never_goes_back_after_a_reboot(
    world: World,
) -> None:
    restarted(world, b"one run")
    world.commit()
    before = world.frontier.now()
    world.clocks.monotonic = 3.0
    world.clocks.wall -= 3600.0
    assert restarted(world, b"another").now() == pytest.approx(before)
    world.clocks.wall += 7200.0
    assert restarted(world, b"a third").now() == pytest.approx(world.clocks.wall)
