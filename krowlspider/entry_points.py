"""The commands by which an installed package extends ``scrapy``, chosen for the project at hand.

Scrapy loads them in each of its commands, in projects without the add-on too, after it has read the
project's settings. There Scrapy's own commands stay, and nothing else is imported.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.settings import BaseSettings
from scrapy.utils.conf import closest_scrapy_cfg

from krowlspider.errors import prepare_command

if TYPE_CHECKING:
    import argparse

# Scrapy's commands that a project with the add-on has others for.
_REPLACED = frozenset(
    {
        *("bench", "check", "crawl", "fetch", "list", "parse", "runspider"),
        *("settings", "shell", "view"),
    }
)
# They start crawls of the add-on.
_OF_THE_ADD_ON = frozenset({"node"})
_CRAWLING = frozenset({"crawl", "node", "runspider"})
_ADD_ON = "krowlspider.addon."
_WITHOUT_FRONTIER = "KrowlArchive"


def __getattr__(name: str) -> type[ScrapyCommand]:
    """Return the class of the command ``name``."""
    if name.startswith("_"):
        raise AttributeError(name)
    profile = _profile()
    # Without a frontier, a crawl is Scrapy's own.
    if profile and not (profile == _WITHOUT_FRONTIER and name in _CRAWLING):
        prepare_command()
    elif name in _REPLACED:
        return _scrapys(name)
    elif name in _OF_THE_ADD_ON:
        return _refusing(
            "krowlspider: this project has no add-on that crawls: set ADDONS ="
            ' {"krowlspider.addon.Krowl": 100} in its settings',
            "Needs the add-on of krowlspider",
        )
    return _command_in(f"krowlspider.commands.{name}")


def _command_in(module: str) -> type[ScrapyCommand]:
    command: type[ScrapyCommand] = import_module(module).Command
    return command


def _profile() -> str:
    """Return the class of the add-on that the settings module of the project names; "" for none.

    Nothing is imported, so a subclass must stand there as a class, not as its path.
    """
    module = sys.modules.get(os.environ.get("SCRAPY_SETTINGS_MODULE", ""))
    # JSON and pairs are valid too.
    addons: BaseSettings = BaseSettings(getattr(module, "ADDONS", None))
    for addon, order in addons.items():
        if isinstance(addon, str):
            paths = [addon]
        else:
            paths = [f"{base.__module__}.{base.__name__}" for base in getattr(addon, "__mro__", ())]
        for path in paths:
            if order is not None and path.startswith(_ADD_ON):
                return path.removeprefix(_ADD_ON)
    return ""


def _scrapys(name: str) -> type[ScrapyCommand]:
    """Return Scrapy's command; outside of a project, one that needs a project says so."""
    command = _command_in(f"scrapy.commands.{name}")
    is_inside = os.environ.get("SCRAPY_SETTINGS_MODULE") in sys.modules or closest_scrapy_cfg()
    if is_inside or not command.requires_project:
        return command

    said = f"The {name} command is not available from this location: it needs a project"
    return _refusing(said, "Needs a project")


def _refusing(said: str, why: str) -> type[ScrapyCommand]:
    """Return a command that only says why it cannot be used. ``why`` is its description."""

    class Refusing(ScrapyCommand):
        def short_desc(self) -> str:
            return why

        def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
            print(said, file=sys.stderr)
            sys.exit(2)

        def run(self, args: list[str], opts: argparse.Namespace) -> None: ...

    return Refusing
