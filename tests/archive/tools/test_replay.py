"""``scrapy warc replay`` without pywb, and with a port that is taken."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.tools.replay import find_wayback, free_port, replayed
from krowlspider.errors import KrowlError
from tests.archive.captures import capture, written
from tests.archive.command import warc

if TYPE_CHECKING:
    from pathlib import Path


def program(folder: Path, text: str) -> Path:
    """Write a program ``wayback`` of a venv in a folder."""
    path = folder / "replay" / "bin" / "wayback"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


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


def test_pywb_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    wayback = program(tmp_path, "echo first; echo why; exit 1")
    with (
        pytest.raises(KrowlError, match=r"^pywb does not start: why$"),
        replayed(wayback, tmp_path / "index.cdxj", [tmp_path], tmp_path),
    ):
        pass
