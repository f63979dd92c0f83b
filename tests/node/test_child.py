"""A process of a crawl is started again when it dies, but not for ever, nor after a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from krowlspider.node.processes import DEATHS_MAX, GIVEN_UP, SupervisedProcess

if TYPE_CHECKING:
    from pathlib import Path


def child(script: str, starts: list[int], *, backoff: float = 0.0) -> SupervisedProcess:
    """A process that runs a script of the shell; ``starts`` gets the number of each start."""

    def command(restarts: int) -> list[str]:
        starts.append(restarts)
        return ["/bin/sh", "-c", script]

    return SupervisedProcess(
        "p1",
        command,
        environment=os.environ,
        is_end=lambda code: 0 <= code <= 7,
        backoff=backoff,
    )


def test_process_that_dies_again_and_again_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[int] = []
    assert asyncio.run(child("kill -9 $$", starts).run()) == GIVEN_UP
    assert starts == list(range(DEATHS_MAX))
    assert "it is not started again" in caplog.messages[-1]
    assert "signal SIGKILL" in caplog.messages[0]


def test_process_that_ends_is_not_started_again() -> None:
    starts: list[int] = []
    assert asyncio.run(child("exit 7", starts).run()) == 7
    assert starts == [0]


@pytest.mark.parametrize(
    "script",
    # A stop while it runs and has no handler yet; and one while it waits to be started again.
    ["echo >$0/is-there; exec sleep 60", "echo >$0/is-there; exit 9"],
    ids=["running", "dead"],
)
def test_stopped_process_is_not_started_again(tmp_path: Path, script: str) -> None:
    starts: list[int] = []
    process = child(script.replace("$0", str(tmp_path)), starts, backoff=60)

    is_there = (tmp_path / "is-there").exists

    async def stop_later() -> int:
        running = asyncio.create_task(process.run())
        while not is_there() or ("exit" in script and process.is_running):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        process.stop()
        return await running

    assert asyncio.run(stop_later()) == 0
    assert starts == [0]


def test_dead_supervisor_hangs_up_its_processes(tmp_path: Path) -> None:
    """Under nohup too. A process stops once for all SIGHUPs; for a second SIGTERM it would end as
    by a crash."""
    said = tmp_path / "said"
    script = f"trap 'echo hangup >{said}; exit' HUP; echo >{tmp_path}/is-there; while :; do :; done"
    supervisor = dedent(f"""
        import asyncio, os, signal
        from krowlspider.node.processes import SupervisedProcess
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        command = ["/bin/sh", "-c", {script!r}]
        process = SupervisedProcess("p1", lambda _: command, environment=os.environ, is_end=bool)
        asyncio.run(process.run())
    """)
    with subprocess.Popen([sys.executable, "-c", supervisor]) as process:
        wait_for_file(tmp_path / "is-there")
        process.send_signal(signal.SIGKILL)
    wait_for_file(said)


def wait_for_file(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
