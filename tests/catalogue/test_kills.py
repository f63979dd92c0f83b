"""A killed process leaves a catalogue that is readable, and the next one completes it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_kill_leaves_nothing_twice(tmp_path: Path):
    """Each seventh step on disk; `tests.catalogue.kills` alone takes all."""
    command = [sys.executable, "-m", "tests.catalogue.kills", str(tmp_path), "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10
