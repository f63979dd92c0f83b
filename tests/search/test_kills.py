"""A killed builder leaves an index that is readable, and the next one completes it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.crawling import ROOT


@pytest.mark.slow
def test_kills_change_no_document():
    """At random moments; `tests.search.kills` alone takes any number."""
    command = [sys.executable, "-m", "tests.search.kills", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 12
