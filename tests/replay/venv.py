"""A venv of its own for the tools whose pins do not fit ours, made when one of them is first asked
for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from filelock import FileLock

from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

REQUIREMENTS = ROOT / "tests" / "replay-requirements.txt"
VENV = ROOT / ".cache" / "replay-venv"
# Written last: a venv without it, or with another, is made anew.
_STAMP = VENV / "requirements.txt"
# Seconds; it takes 20 where the package index is near.
_TIMEOUT = 600


def tool(name: str) -> Path:
    """A program of the venv: ``python``, ``wb-manager``, ``cdxj-indexer``, ``wacz`` ...

    Several processes may ask at once: one makes the venv, the others wait.

    :raises RuntimeError: pip cannot install the packages; the message is pip's
    """
    VENV.parent.mkdir(exist_ok=True)
    with FileLock(VENV.with_name("replay-venv.lock")):
        if not _STAMP.exists() or _STAMP.read_bytes() != REQUIREMENTS.read_bytes():
            _make()
    return VENV / "bin" / name


def _make() -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    _run(sys.executable, "-m", "venv", VENV)
    pip = (VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    _run(*pip, "install", "--quiet", "-r", REQUIREMENTS)
    shutil.copyfile(REQUIREMENTS, _STAMP)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    if done.returncode:
        raise RuntimeError(
            f"no venv for the tests of {REQUIREMENTS.name}:\n{done.stdout}{done.stderr}"
        )
