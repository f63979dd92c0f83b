"""``make crawl`` hands over what the user typed."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("more", "command"),
    [([], ["crawl"]), (["PROCESSES=3"], ["node", "--processes", "3"])],
    ids=["one", "three"],
)
def test_make_keeps_quotes_blanks_and_dollars(
    tmp_path: Path, more: list[str], command: list[str]
) -> None:
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    (tmp_path / "requirements.txt").touch()
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    scrapy = binaries / "scrapy"
    scrapy.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    scrapy.chmod(0o755)
    (tmp_path / ".venv" / "requirements.stamp").touch()
    given = ["SEEDS=my seeds.txt", "CONTACT=me@a.test", """ARGS=-s "X=a b" -a deny='x$ y$(z)'"""]
    # Without the variables of a make that runs the tests.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "-s", "crawl", *given, *more],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        *(*command, "broad", "-a", "seeds=my seeds.txt", "-s", "KROWL_CONTACT=me@a.test"),
        *("-s", "JOBDIR=jobs/default", "-s", "X=a b", "-a", "deny=x$ y$(z)"),
    ]
