"""The notebook of the docs runs in Jupyter's own kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.library.test_examples import program, reaching
from tests.library.webs import small_web, urls_of
from tests.support.crawling import CONTACT, ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOK = ROOT / "docs" / "library.ipynb"
PAGES = 8
# The cell that is interrupted, of those with code.
INTERRUPTED = 3


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has Jupyter."""
    target = tmp_path_factory.mktemp("jupyter") / "library"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    wanted = str(ROOT / "tests" / "notebook-requirements.txt")
    subprocess.run([*pip, "--target", str(target), "-r", wanted], check=True)
    return target


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_notebook_runs_and_can_be_interrupted(tmp_path: Path, library: Path) -> None:
    with small_web(PAGES) as web:
        text = NOTEBOOK.read_text().replace("https://example.org/", web.url("example.org"))
        (tmp_path / "library.ipynb").write_text(text.replace("you@example.org", CONTACT))
        done = program(
            tmp_path,
            str(ROOT / "tests" / "library" / "execute_notebook.py"),
            "library.ipynb",
            str(INTERRUPTED),
            **{**reaching(), "PYTHONPATH": os.pathsep.join([str(ROOT), str(library)])},
            IPYTHONDIR=str(tmp_path / "ipython"),
        )
        first, reason, number, interrupted, rest = json.loads(done.stdout.splitlines()[-1])
        urls = urls_of(web, "example.org", PAGES)
    assert [line[:4] for line in first.splitlines()] == ["200 "] * 3
    assert (reason, number) == ("'max_pages'", f"{PAGES}\n")
    *before, at_hand, error = interrupted.splitlines()
    assert error in {"KeyboardInterrupt", "CancelledError"}
    # Each page comes once, and that at hand again.
    assert sorted([*before, *rest.splitlines()]) == urls
    assert at_hand in rest.splitlines()
