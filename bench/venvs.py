"""Venvs for crawlers whose pins conflict with ours, made on first use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from filelock import FileLock

from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CACHE = ROOT / ".cache" / "bench"
# Seconds; it takes 30 where the package index is near.
_TIMEOUT = 600


def python_of(name: str) -> Path:
    """Return the interpreter of the venv with the packages of ``bench/NAME-requirements.txt``.

    :raises RuntimeError: pip cannot install it; the message is pip's
    """
    pinned = ROOT / "bench" / f"{name}-requirements.txt"
    venv = CACHE / name
    # Written last: a venv without it, or with other pins in it, is made again.
    stamp = venv / pinned.name
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / f"{name}.lock"):
        if not stamp.exists() or stamp.read_bytes() != pinned.read_bytes():
            shutil.rmtree(venv, ignore_errors=True)
            _run(sys.executable, "-m", "venv", venv)
            pip = (venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
            _run(*pip, "install", "--quiet", "-r", pinned)
            shutil.copyfile(pinned, stamp)
    return venv / "bin" / "python"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"no venv for a crawler: {done.stdout}{done.stderr}")
