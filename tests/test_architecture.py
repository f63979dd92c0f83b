"""The rooms of the project and who may import whom, kept by reading every import in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGES = ("krowlspider", "extensions", "middlewares")

PURE = {"urls", "politeness"}
# Who may import whom; a room may always import itself and `krowlspider`, which is the version.
LOWER = {"urls", "politeness", "errors"}
SIDES = {"frontier", "fetch", "archive", "cluster"}
FOLDERS = {"spiders", "commands", "extensions", "middlewares"}
FACING = FOLDERS | {
    "scheduler",
    "dupefilter",
    "courier",
    "csvfeed",
    "decoders",
    "downloader",
    "handler",
    "job",
    "jobfolder",
    "listeners",
    "logformatter",
    "looplag",
    "machine",
    "metrics",
    "node",
    "notes",
    "outages",
    "ringview",
    "processing",
    "singlepage",
    "stats",
    "turnstile",
    "codec",
    "consulnode",
    "exchange",
    "governor",
    "staticnode",
    "credentials",
    "watchdog",
    "validation",
    "checkers",
}
MAY_IMPORT: dict[str, set[str]] = {
    "krowlspider": set(),
    "errors": set(),
    "settings": set(),
    "urls": set(),
    "politeness": {"urls"},
    **dict.fromkeys(SIDES, LOWER),
    **dict.fromkeys(FACING, LOWER | SIDES | FACING),
}
# Settings are read from the crawler, where a user's own stand; only their check reads the module.
MAY_IMPORT["validation"] = MAY_IMPORT["validation"] | {"settings"}

# What a pure room does not touch: I/O, clocks, randomness, concurrency, and Scrapy.
# fmt: off
IMPURE_MODULES = {
    "aiodns", "asyncio", "builtins", "concurrent", "ctypes", "fcntl", "glob", "http", "httptools",
    "importlib", "io", "logging", "mmap", "multiprocessing", "os", "pathlib", "plyvel", "queue",
    "random", "requests", "sched", "scrapy", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "twisted",
    "urllib.request", "urllib3", "uuid", "uvloop",
}
# fmt: on
IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "__import__"}
# What of datetime reads a clock.
IMPURE_METHODS = {"now", "utcnow", "today"}


def room_of(module: str) -> str:
    """The room of a module of ours: the first part below krowlspider, or the package itself."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or package if package == "krowlspider" else package


def imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """(line, module) of each import, those inside functions and TYPE_CHECKING too; ``from a import b``
    is a.b, for b may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def breaches(root: Path) -> list[str]:
    """What is against the rules in the packages of ``root``: "path:line what"."""
    found = []
    for path in sorted(path for name in PACKAGES for path in (root / name).rglob("*.py")):
        where = path.relative_to(root)
        parts = where.with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        rooms = {p.stem for p in (root / "krowlspider").iterdir()} | set(PACKAGES)
        room = room_of(module)
        if room not in MAY_IMPORT:
            found.append(f"{where}:1 {room} is not in the map of rooms")
            continue
        for line, name in imports(tree, ".".join(parts[:-1])):
            found += [f"{where}:{line} {what}" for what in _import_breaches(room, name, rooms)]
        if room in PURE:
            found += [f"{where}:{line} {what}" for line, what in _impure_calls(tree)]
    return found


def _import_breaches(room: str, name: str, rooms: set[str]) -> Iterator[str]:
    package = name.partition(".")[0]
    if package in {"tests", "bench"}:
        yield f"{room} imports {package}"
    elif package in PACKAGES:
        other = room_of(name)
        # `from krowlspider import __version__` names no room.
        if other in rooms and other not in {room, "krowlspider"} | MAY_IMPORT[room]:
            yield f"{room} imports {other}"
    elif room in PURE and IMPURE_MODULES & {package, ".".join(name.split(".")[:2])}:
        yield f"{room} is pure, and imports {name}"


def _impure_calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, f"a pure room calls {name}()"
            case ast.Attribute(attr=name) if name in IMPURE_METHODS:
                yield node.lineno, f"a pure room reads a clock: {name}"


def test_the_source_keeps_to_its_rooms():
    assert breaches(ROOT) == []


def test_every_room_of_the_source_is_looked_at():
    assert sum(1 for name in PACKAGES for _ in (ROOT / name).rglob("*.py")) > len(PACKAGES)


def plant(root: Path, path: str, source: str) -> list[str]:
    """The breaches of a small tree of one file of each room, ``source`` added as ``path``."""
    for room in PURE | SIDES | FOLDERS - set(PACKAGES):
        folder = root / "krowlspider" / room
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    for module in ("__init__", "errors", "settings", *FACING - FOLDERS):
        (root / "krowlspider" / f"{module}.py").write_text("")
    for package in PACKAGES[1:]:
        (root / package).mkdir()
        (root / package / "__init__.py").write_text("")
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source)
    return breaches(root)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("krowlspider/urls/a.py", "import re, can_ada\nfrom datetime import datetime, timezone"),
        ("krowlspider/urls/a.py", "from urllib.parse import urlsplit\nfrom .b import c"),
        (
            "krowlspider/politeness/a.py",
            "from krowlspider.urls import host\nimport krowlspider.urls.b",
        ),
        (
            "krowlspider/frontier/a.py",
            "from krowlspider.politeness.pace import Pace\nimport os, time",
        ),
        ("krowlspider/fetch/a.py", "from krowlspider import __version__\nfrom . import b"),
        (
            "krowlspider/scheduler.py",
            "from krowlspider.frontier import a\nfrom krowlspider.job import J",
        ),
        ("krowlspider/settings.py", "from krowlspider import __version__"),
        ("krowlspider/validation.py", "from krowlspider import settings as defaults"),
        (
            "extensions/a.py",
            "from krowlspider.scheduler import S\nfrom extensions.b import c\nimport scrapy",
        ),
        ("middlewares/a.py", "from krowlspider.urls.host import host_of"),
        ("krowlspider/commands/a.py", "from extensions.status import line"),
        ("krowlspider/spiders/a.py", "def f():\n    open('x')\n    datetime.now()"),
    ],
)
def test_what_the_rules_allow_is_not_reported(tmp_path: Path, path: str, source: str):
    assert plant(tmp_path, path, source) == []


@pytest.mark.parametrize(
    ("path", "source", "breach"),
    [
        # Upward.
        ("krowlspider/urls/a.py", "import krowlspider.politeness.pace", "urls imports politeness"),
        (
            "krowlspider/politeness/a.py",
            "from krowlspider.frontier import x",
            "politeness imports frontier",
        ),
        (
            "krowlspider/frontier/a.py",
            "from krowlspider.scheduler import S",
            "frontier imports scheduler",
        ),
        ("krowlspider/fetch/a.py", "from middlewares import robots", "fetch imports middlewares"),
        ("krowlspider/errors.py", "from krowlspider.urls import x", "errors imports urls"),
        (
            "krowlspider/__init__.py",
            "from krowlspider.errors import x",
            "krowlspider imports errors",
        ),
        # Sideways.
        (
            "krowlspider/frontier/a.py",
            "from krowlspider.fetch.client import C",
            "frontier imports fetch",
        ),
        ("krowlspider/archive/a.py", "from krowlspider import fetch", "archive imports fetch"),
        ("krowlspider/archive/sub/a.py", "from ...cluster import ring", "archive imports cluster"),
        ("krowlspider/fetch/a.py", "from ..archive.writer import W", "fetch imports archive"),
        ("krowlspider/fetch/a.py", "from .. import archive", "fetch imports archive"),
        ("krowlspider/fetch/__init__.py", "from ..archive import writer", "fetch imports archive"),
        ("krowlspider/cluster/a.py", "import krowlspider.frontier", "cluster imports frontier"),
        ("krowlspider/archive/a.py", "import extensions.disk", "archive imports extensions"),
        # Where it hides.
        (
            "krowlspider/fetch/a.py",
            "def f():\n    import krowlspider.archive",
            "fetch imports archive",
        ),
        (
            "krowlspider/fetch/a.py",
            "if TYPE_CHECKING:\n    from krowlspider.archive.capture import Capture",
            "fetch imports archive",
        ),
        # The settings module is not the settings.
        ("krowlspider/job.py", "from krowlspider import settings", "job imports settings"),
        ("krowlspider/fetch/a.py", "from krowlspider.settings import X", "fetch imports settings"),
        # Nothing lives on its tests.
        ("extensions/a.py", "from tests.mockweb import MockWeb", "extensions imports tests"),
        ("krowlspider/job.py", "import tests", "job imports tests"),
        ("krowlspider/fetch/a.py", "import bench.load", "fetch imports bench"),
        # A new room has to be given its place.
        ("krowlspider/utils.py", "", "utils is not in the map of rooms"),
        ("krowlspider/storage/a.py", "", "storage is not in the map of rooms"),
        # Pure rooms.
        *(
            ("krowlspider/urls/a.py", f"import {name}", f"urls is pure, and imports {name}")
            for name in sorted(IMPURE_MODULES)
        ),
        ("krowlspider/politeness/a.py", "from time import monotonic", "imports time.monotonic"),
        ("krowlspider/politeness/a.py", "from os.path import join", "imports os.path.join"),
        ("krowlspider/politeness/a.py", "def f():\n    import random", "imports random"),
        ("krowlspider/politeness/a.py", "from urllib import request", "imports urllib.request"),
        ("krowlspider/politeness/a.py", "from scrapy import Request", "imports scrapy.Request"),
        ("krowlspider/politeness/a.py", "x = datetime.now(UTC)", "reads a clock: now"),
        ("krowlspider/politeness/a.py", "x = datetime.datetime.utcnow()", "reads a clock: utcnow"),
        ("krowlspider/urls/a.py", "with open('x') as f: pass", "calls open()"),
        ("krowlspider/urls/a.py", "__import__('os')", "calls __import__()"),
    ],
)
def test_a_breach_is_found_and_told(tmp_path: Path, path: str, source: str, breach: str):
    found = plant(tmp_path, path, source)
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:")
    assert breach in found[0]


def test_commands_load_no_client_of_a_cluster_unless_they_ask_one():
    script = (
        "import sys; from scrapy.cmdline import execute\n"
        "try: execute(['scrapy', 'crawl', '--help'])\n"
        "finally: print(sorted({'redis', 'consul'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"
