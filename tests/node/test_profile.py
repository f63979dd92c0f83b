"""`scrapy node --profile`: py-spy is asked for each running process, and its errors have a way out.

A script stands in for py-spy, which needs a right that not every machine gives.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from krowlspider.errors import KrowlError
from krowlspider.node.tree import find_py_spy, record
from tests.node.test_start import refused

if TYPE_CHECKING:
    from pathlib import Path

# What py-spy 0.4.3 writes.
REFUSED = "Permission Denied: Try running again with elevated permissions by going 'sudo env"
GONE = "Error: Failed to get process executable name. Check that the process is running.\n\nCaused"


def spy(folder: Path, script: str) -> Path:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def job(folder: Path, pid: int, stack: ExitStack | None) -> None:
    """A folder of a process, which runs if there is a ``stack``."""
    folder.mkdir(parents=True)
    (folder / "lock").write_text(f"{pid}\n")
    if stack is not None:
        lock = stack.enter_context((folder / "lock").open())
        fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.fixture
def jobdir(tmp_path: Path):
    """A crawl whose processes p1 and p10 run, and p2 of an earlier start does not."""
    with ExitStack() as stack:
        for name, pid, holder in (("p1", 11, stack), ("p2", 12, None), ("p10", 13, stack)):
            job(tmp_path / "job" / name, pid, holder)
        # This one starts: it has its lock, and has not written its id yet.
        job(tmp_path / "job" / "p3", 14, stack)
        (tmp_path / "job" / "p3" / "lock").write_text("")
        yield tmp_path / "job"


def test_each_running_process_has_a_flame_graph(jobdir: Path, tmp_path: Path) -> None:
    """The script that stands for py-spy writes its arguments to the file of the graph."""
    program = spy(tmp_path, 'for last; do :; done; echo "$@" > "$last"')
    graphs = asyncio.run(record(jobdir, 30, program))
    assert graphs == [jobdir / "p1" / "profile.svg", jobdir / "p10" / "profile.svg"]
    for graph, pid in zip(graphs, (11, 13), strict=True):
        assert f"record --pid {pid} --duration 30 " in graph.read_text()


def test_crawl_of_one_process_has_one_too(tmp_path: Path) -> None:
    with ExitStack() as stack:
        job(tmp_path / "job", 11, stack)
        (tmp_path / "job" / "job.json").write_text(json.dumps({}))
        graphs = asyncio.run(record(tmp_path / "job", 1, spy(tmp_path, "exit 0")))
    assert graphs == [tmp_path / "job" / "profile.svg"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REFUSED, "py-spy may not read process 11: run the command as root.*SYS_PTRACE"),
        (GONE, "could not sample process 11: Error: Failed to get .* is running.$"),
        ("", "could not sample process 11: it gave no reason"),
    ],
)
def test_errors_of_py_spy_say_what_to_do(
    jobdir: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "said").write_text(text)
    program = spy(tmp_path, f"cat {tmp_path}/said >&2; exit 1")
    with pytest.raises(KrowlError, match=said):
        asyncio.run(record(jobdir, 1, program))


def test_missing_py_spy_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KrowlError, match=r"install -e '\S*\[profile\]'"):
        find_py_spy(tmp_path)
    # That of this Python comes first.
    (tmp_path / "bin").mkdir()
    mine, _ = spy(tmp_path / "bin", ""), spy(tmp_path, "")
    assert find_py_spy(tmp_path / "bin") == mine
    assert find_py_spy(tmp_path / "none") == tmp_path / "py-spy"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [("0", "--profile 0 is not a number from 1 to 3600"), ("2", "no crawl runs in ")],
)
def test_bad_input_of_a_profile_is_refused(tmp_path: Path, seconds: str, said: str) -> None:
    """A profile starts nothing, so it asks for no contact."""
    spy(tmp_path, "")
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    words = ("--profile", seconds, "-s", f"JOBDIR={tmp_path}", "-s", "KROWL_CONTACT=")
    assert refused(*words, environment=environment).startswith(said)
    assert not (tmp_path / "register").exists()
