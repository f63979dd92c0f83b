"""A venv with the wheel of this checkout, as `pip install` makes it."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

from tests.support.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# What a release holds; never the checkout's other folders.
SOURCE = (
    *("krowlspider", "extensions", "middlewares"),
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
)


def copy_source(target: Path) -> Path:
    """Copy the source: a build leaves files, and reads those of earlier builds."""
    for name in SOURCE:
        path = ROOT / name
        if path.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, target / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(path, target / name)
    return target


def build_wheel(source: Path, target: Path) -> Path:
    _pip("wheel", "--no-build-isolation", "--wheel-dir", str(target), str(source))
    (wheel,) = target.glob("krowlspider-*.whl")
    return wheel


def install(wheel: Path, target: Path) -> Path:
    """Install a wheel into a folder, without what it depends on."""
    _pip("install", "--target", str(target), str(wheel))
    return target


def make_venv(wheel: Path, folder: Path) -> Path:
    """Make a venv that has the wheel, and the packages that it depends on from this Python; return
    its Python."""
    venv.create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    install(wheel, packages)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", *words, "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def environment(**more: str) -> dict[str, str]:
    """Return the environment with nothing of the checkout in it."""
    kept = {n: value for n, value in os.environ.items() if not n.startswith(("PYTHON", "SCRAPY"))}
    return {**kept, **more}
