"""Venvs of their own for tools whose pins do not fit ours, made when one is first asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from filelock import FileLock

from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# Seconds; it takes 20 where the package index is near.
_TIMEOUT = 600


class Venv:
    """The venv ``.cache/NAME-venv`` with the packages of ``tests/NAME-requirements.txt``."""

    def __init__(self, name: str):
        self._requirements = ROOT / "tests" / f"{name}-requirements.txt"
        self._venv = ROOT / ".cache" / f"{name}-venv"
        # Written last: a venv without it, or with another, is made anew.
        self._stamp = self._venv / "requirements.txt"

    def tool(self, name: str) -> Path:
        """Return a program of the venv, such as ``python``.

        Several processes may ask at once: one makes the venv, the others wait.

        :raises RuntimeError: pip cannot install the packages; the message is pip's
        """
        self._venv.parent.mkdir(exist_ok=True)
        with FileLock(self._venv.with_suffix(".lock")):
            wanted = self._requirements.read_bytes()
            if not self._stamp.exists() or self._stamp.read_bytes() != wanted:
                self._make()
        return self._venv / "bin" / name

    def _make(self) -> None:
        shutil.rmtree(self._venv, ignore_errors=True)
        self._run(sys.executable, "-m", "venv", self._venv)
        pip = (self._venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
        self._run(*pip, "install", "--quiet", "-r", self._requirements)
        shutil.copyfile(self._requirements, self._stamp)

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT
        )
        if done.returncode:
            raise RuntimeError(
                f"no venv for the tests of {self._requirements.name}:\n{done.stdout}{done.stderr}"
            )
