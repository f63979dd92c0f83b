"""The commands that install extras, in docs and in messages, work as they stand."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from krowlspider.errors import KrowlError, install_with
from krowlspider.node.tree import find_py_spy
from tests.support.crawling import ROOT
from tests.support.tables import table

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def test_a_message_names_a_command_for_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert re.fullmatch(r"\S+/pip install -e '\.\[top\]'", install_with("top"))
    monkeypatch.chdir("/")
    pip, *words = shlex.split(install_with("corpus"))
    assert words == ["install", "-e", f"{ROOT}[corpus]"]
    assert (Path("/") / pip).parent.samefile(Path(sys.executable).parent)


def test_a_program_that_is_missing_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KrowlError, match=r"py-spy is not installed: .*\[profile\]'"):
        find_py_spy(tmp_path)


@table("path", PAGES)
def test_docs_install_extras_from_the_checkout(path: Path) -> None:
    """The project is on no package index."""
    text = path.read_text()
    assert "krowlspider[" not in text
    commands = re.findall(r"pip install [^`\n]*\[\w+\].*?[`\n]", text)
    assert all(re.fullmatch(r"pip install -e '\.\[\w+\]'[`\n]", each) for each in commands)
    assert {re.findall(r"\[(\w+)\]", each)[0] for each in commands} <= EXTRAS.keys()


def test_the_program_asks_for_extras_that_there_are() -> None:
    sources = "".join(path.read_text() for path in ROOT.glob("krowlspider/**/*.py"))
    asked = re.findall(r"""install_with\(["'](\w+)["']\)|need\([^)]*, "(\w+)"\)""", sources)
    assert {one or other for one, other in asked} == EXTRAS.keys() - {"corpus"}
