"""The commands of an installed package, in projects with the add-on and in others."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from krowlspider import entry_points
from krowlspider.addon import Krowl
from tests.support.warm import ROOT

_NAME = "settings_of_a_project"
_FILES = {path.stem for path in (ROOT / "krowlspider" / "commands").glob("*.py")}
_COMMANDS = _FILES - {"__init__", "single_page"}


def project(monkeypatch: pytest.MonkeyPatch, addons: Any) -> None:
    module = ModuleType(_NAME)
    vars(module)["ADDONS"] = addons
    monkeypatch.setitem(sys.modules, _NAME, module)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", _NAME)


@pytest.mark.parametrize(
    "addons",
    [
        {"krowlspider.addon.Krowl": 100},
        {Krowl: 100},
        {"other.Addon": 1, Krowl: 0},
        '{"krowlspider.addon.Krowl": 100}',
        [("krowlspider.addon.Krowl", 100)],
    ],
)
def test_project_with_the_add_on_has_its_commands(
    monkeypatch: pytest.MonkeyPatch, addons: Any
) -> None:
    project(monkeypatch, addons)
    for name in ("crawl", "shell", "warc"):
        found = getattr(entry_points, name)
        assert found is import_module(f"krowlspider.commands.{name}").Command


@pytest.mark.parametrize(
    "addons",
    [{}, {"other.Addon": 1}, {"krowlspider.addon.Krowl": None}, '{"other.Addon": 1}', None],
)
def test_other_projects_keep_the_commands_of_scrapy(
    monkeypatch: pytest.MonkeyPatch, addons: Any
) -> None:
    project(monkeypatch, addons)
    for name in entry_points._REPLACED:
        assert getattr(entry_points, name) is import_module(f"scrapy.commands.{name}").Command


def test_each_command_has_an_entry_point() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        named = tomllib.load(file)["project"]["entry-points"]["scrapy.commands"]
    assert named == {name: f"krowlspider.entry_points:{name}" for name in _COMMANDS}
    there = {name for name in _COMMANDS if _is_scrapys(name)}
    assert there == entry_points._REPLACED


def _is_scrapys(name: str) -> bool:
    try:
        import_module(f"scrapy.commands.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_other_projects_load_little_of_the_package() -> None:
    """Each start of Scrapy loads the entry points of all installed packages."""
    program = """
import json, sys
import scrapy.cmdline
before = set(sys.modules)
from krowlspider import entry_points
for name in json.loads(sys.argv[1]):
    getattr(entry_points, name)
print(json.dumps(sorted({each for each in set(sys.modules) - before if "krowl" in each})))
"""
    command = [sys.executable, "-c", program, json.dumps(sorted(_COMMANDS))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    loaded = json.loads(done.stdout)
    shims = {f"krowlspider.commands.{name}" for name in _COMMANDS - entry_points._REPLACED}
    assert {*loaded} <= {
        *("krowlspider", "krowlspider.errors", "krowlspider.entry_points"),
        *("krowlspider.commands", "krowlspider.programs", "krowlspider.programs.deferred"),
        *shims,
    }
