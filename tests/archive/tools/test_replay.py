"""``scrapy warc replay`` without pywb, and with a port that is taken."""

from __future__ import annotations

import re
import socket
import sys
import time
from pathlib import Path

import pytest

from krowlspider.archive.tools.replay import find_wayback, free_port, replayed
from krowlspider.errors import KrowlError
from tests.archive.captures import capture, written
from tests.archive.command import warc


def program(folder: Path, text: str) -> Path:
    """Write a program ``wayback`` of a venv in a folder."""
    path = folder / "replay" / "bin" / "wayback"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def runs(process: int) -> bool:
    """Return whether a process lives; a dead one may wait for its new parent to notice."""
    try:
        return Path("/proc", str(process), "stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_without_pywb_a_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    written(tmp_path, [capture()])
    _, errors = warc("replay", tmp_path, code=2)
    venv = tmp_path / "replay"
    assert errors == (
        f"krowlspider: pywb is not installed: python3 -m venv {venv} &&"
        f" {venv}/bin/pip install pywb\n"
    )


def test_pywb_of_the_folder_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = program(tmp_path / "path", "")
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_wayback([tmp_path / "job"]) == other
    own = program(tmp_path / "job", "")
    assert find_wayback([tmp_path / "job"]) == own


def test_taken_port_takes_another() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken = server.getsockname()[1]
        assert free_port(taken) not in {0, taken}
    assert free_port(taken) == taken


def test_pywb_and_its_children_end_with_the_command(tmp_path: Path) -> None:
    server = f"exec {sys.executable} -m http.server $4 --bind $2"
    wayback = program(tmp_path, f"sleep 300 & echo $! > {tmp_path}/child; {server}")
    with replayed(wayback, tmp_path / "index.cdxj", [tmp_path], tmp_path) as (url, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/crawl/", url)
        child = int((tmp_path / "child").read_text())
        assert runs(child)
    assert process.returncode is not None
    end = time.monotonic() + 20
    while runs(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not runs(child)


def test_pywb_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    wayback = program(tmp_path, "echo first; echo why; exit 1")
    with (
        pytest.raises(KrowlError, match=r"^pywb does not start: why$"),
        replayed(wayback, tmp_path / "index.cdxj", [tmp_path], tmp_path),
    ):
        pass
