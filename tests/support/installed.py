"""The commands of this checkout in other projects, as if it were installed there."""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING

from tests.support.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def installed(folder: Path) -> dict[str, str]:
    """Return an environment in which Python finds this checkout, and Scrapy its entry points.

    The metadata are written to ``folder``, as pip writes them from pyproject.toml.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name']}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {point}" for name, point in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
