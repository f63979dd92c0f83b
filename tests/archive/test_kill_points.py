"""SIGKILL at every step of write, rename, index and acknowledge: the archive is whole and contains
all acknowledged pages.

A step is a system call that changes a file of the job or makes a change durable. It is named by the
call and its object, as in ``rename open file``. The process is killed before each step of a whole
run, and in the middle of each write. The run continues a job that was killed within a record, so it
also has the steps of mending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .faultpoints import EachCall, EachName, outcomes
from .syscalls import Act, Call

if TYPE_CHECKING:
    from pathlib import Path

    from .faultpoints import Archiving

# Those without which a run would not be one. What else a run does is found in it.
STEPS = {
    "create open file",
    "write open file",
    "fsync open file",
    "ftruncate open file",
    "rename open file",
    "create index",
    "write index",
    "fsync index",
    "rename index",
    "fsync archive",
    "write frontier log",
    "fsync frontier log",
}


def kill_at(archiving: Archiving, dead: Path, chosen: EachName | EachCall, act: Act) -> None:
    """Kill one process at each chosen step; each process continues the same dead job."""

    def kill(_: Call, first: bool) -> Act:
        return act if first else Act.PASS

    for each in outcomes(archiving, dead, chosen, lambda: kill):
        assert each.code == -9, each.plan.point


def is_step(name: str) -> bool:
    return not name.startswith(("openat", "lseek", "close"))


def is_write(name: str) -> bool:
    return name.startswith(("write ", "pwrite64 "))


@pytest.mark.parametrize(
    ("act", "few"),
    [
        (Act.KILL, {"fsync open file", "rename open file", "rename index", "fsync frontier log"}),
        (Act.KILL_HALF, {"write open file", "write index"}),
    ],
)
def test_kill_at_a_step_loses_nothing(
    archiving: Archiving, dead: Path, act: Act, few: set[str]
) -> None:
    steps = EachName(few.__contains__)
    kill_at(archiving, dead, steps, act)
    assert set(steps.done) == few


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_before_any_step_loses_nothing(archiving: Archiving, dead: Path) -> None:
    steps = EachCall(is_step)
    kill_at(archiving, dead, steps, Act.KILL)
    assert len(steps.done) > 50
    assert set(steps.done) >= STEPS


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_in_any_write_loses_nothing(archiving: Archiving, dead: Path) -> None:
    steps = EachCall(is_write)
    kill_at(archiving, dead, steps, Act.KILL_HALF)
    assert len(steps.done) > 20
    assert set(steps.done) >= {step for step in STEPS if is_write(step)}
