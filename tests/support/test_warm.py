"""A warm process is as one that was started from nothing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mockweb import MockWeb
from tests.support import warm
from tests.support.crawling import ROOT

COMMAND = [sys.executable, "-m", "scrapy", "settings", "--get"]


@pytest.mark.parametrize(
    "words", [pytest.param(["JOBDIR", "-s", "JOBDIR=a b"], marks=pytest.mark.slow), ["--nonsense"]]
)
def test_output_errors_and_exit_code_are_those_of_a_cold_one(words: list[str]) -> None:
    command = [*COMMAND, *words]
    cold = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    done = warm.run(command)
    assert (done.returncode, done.stdout, done.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )


def test_it_holds_no_file_of_another_open() -> None:
    with MockWeb(spec=[]) as first, MockWeb(spec=[]) as second:
        assert isinstance(second._process, warm.WarmProcess)

        def files(web: MockWeb) -> set[Path]:
            return {file.readlink() for file in Path(f"/proc/{web.pid}/fd").iterdir()}

        shared = {file for file in files(first) & files(second) if "anon_inode" not in str(file)}
        assert shared <= {Path("/dev/null")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_signal_ends_it_and_is_told(number: signal.Signals) -> None:
    with MockWeb(spec=[]) as web:
        process = web._process
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(20) == -number == process.returncode
        process.kill()


ORPHAN = """
import os
from tests.support import warm
from tests.mockweb import MockWeb
warm.enabled = True
with MockWeb(spec=[]) as web:
    print(web.pid, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_none_outlives_the_process_that_wanted_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], cwd=ROOT, stdout=subprocess.PIPE, check=False
    )
    with suppress(ProcessLookupError):
        gone = os.pidfd_open(int(done.stdout))
        assert select.select([gone], [], [], 20)[0]
        os.close(gone)


def test_other_programs_are_started_cold(
    tmp_path: Path,
) -> None:
    """Those that are no module of ours, or have another interpreter."""
    out = (tmp_path / "out").open("wb")
    for command, environment in (
        ([sys.executable, "-c", ""], None),
        (["env", sys.executable, "-c", ""], None),
        ([*COMMAND, "BOT_NAME"], {**os.environ, "PYTHON_OTHER": "1"}),
    ):
        process = warm.start(command, environment=environment, stdout=out)
        assert isinstance(process, subprocess.Popen)
        process.kill()
        process.wait(60)
    out.close()
