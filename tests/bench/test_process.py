"""A benchmark leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from bench.process import exit_on_sigterm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _own_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_own_handler")
def test_sigterm_ends_the_processes_of_a_benchmark() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def measure() -> None:
        with ExitStack() as stack:
            started.append(subprocess.Popen(["sleep", "60"]))
            stack.callback(started[0].kill)
            signal.raise_signal(signal.SIGTERM)

    exit_on_sigterm()
    with pytest.raises(SystemExit) as ended:
        measure()
    assert ended.value.code == 128 + signal.SIGTERM
    assert started[0].wait(10) == -signal.SIGKILL
