"""The rooms of the source and who may import whom. Imports for types alone count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("krowlspider", "extensions", "middlewares")

# What each room may import besides itself and `errors`.
BASE = {"urls", "politeness"}
SIDES = {"frontier", "fetch", "archive", "cluster"}
ENGINE = {"engine", "crawl", *SIDES, *BASE}
MAY_IMPORT: dict[str, set[str]] = {
    "krowlspider": set(),
    "errors": set(),
    "internals.engine": set(),
    "internals.frostwork": set(),
    "internals.redis": set(),
    "settings": {"krowlspider"},
    "urls": {"internals.frostwork"},
    "politeness": {"urls"},
    **dict.fromkeys(SIDES, BASE),
    "cluster": {"internals.redis", *BASE},
    "crawl": {"krowlspider", "config", *SIDES, *BASE},
    "engine": {"internals.engine", *ENGINE},
    "config": {"settings", *SIDES, *BASE},
    "spiders": ENGINE,
    "middlewares": {"spiders", *ENGINE},
    "extensions": {"krowlspider", "config", *ENGINE},
    "views": {"krowlspider", "config", *ENGINE},
    "commands": {"krowlspider", "config", "views", *ENGINE},
}
PURE = (
    *("krowlspider.urls", "krowlspider.politeness", "krowlspider.cluster.ring"),
    "krowlspider.internals.frostwork",
)
# I/O, clocks, randomness, concurrency, and Scrapy.
# fmt: off
IMPURE = {
    "aiodns", "asyncio", "concurrent", "ctypes", "glob", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "plyvel", "random", "requests", "sched", "scrapy", "secrets", "select",
    "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
    "twisted", "urllib3", "uuid",
}
# fmt: on


def modules_of(root: Path) -> dict[str, ast.Module]:
    """Return the syntax tree of every module of ours, by its dotted name."""
    found = {}
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports_of(tree: ast.Module) -> set[str]:
    """Return every name that a module imports, those inside functions included."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide where a name comes from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room_of(module: str) -> str:
    package, _, rest = module.partition(".")
    if rest.startswith("internals."):
        return rest
    return (rest.partition(".")[0] or package) if package == "krowlspider" else package


def part_of(module: str) -> str:
    """Return the room or sub-room of a module, or the module itself if it lies flat in a room."""
    return ".".join(module.split(".")[:3]) if module.count(".") >= 3 else module


def breaches(root: Path) -> list[str]:
    """Return every import that is against the rules, and every cycle."""
    trees = modules_of(root)
    found, graph, parts = [], {}, {}
    for module, tree in trees.items():
        names = imports_of(tree)
        ours = {name if name in trees else name.rpartition(".")[0] for name in names} & trees.keys()
        graph[module] = ours - {module}
        parts.setdefault(part_of(module), set()).update(
            part_of(name) for name in ours if part_of(name) != part_of(module)
        )
        allowed = MAY_IMPORT.get(room_of(module), set()) | {room_of(module), "errors"}
        found += [f"{module} imports {name}" for name in ours if room_of(name) not in allowed]
        found += [f"{module} imports {n}" for n in names if n.startswith(("tests.", "bench."))]
        if room_of(module) in {"extensions", "middlewares"}:
            found += [
                f"{module} imports {n}" for n in ours if room_of(n) in PACKAGES[1:] and n != module
            ]
        if module.startswith(PURE):
            found += [f"{module} imports {n}" for n in names if n.partition(".")[0] in IMPURE]
    for dependencies in (graph, parts):
        try:
            TopologicalSorter(dependencies).prepare()
        except CycleError as error:
            found.append(f"cycle: {' -> '.join(error.args[1])}")
    return found


def test_the_source_keeps_to_its_rooms():
    assert breaches(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source", "breach"),
    [
        ("krowlspider/urls/a.py", "from krowlspider.frontier import b", "a imports"),
        ("krowlspider/fetch/a.py", "def f():\n    from krowlspider.archive import b", "a imports"),
        (
            "krowlspider/crawl/a.py",
            "if TYPE_CHECKING:\n    import krowlspider.engine.b",
            "a imports",
        ),
        ("krowlspider/cluster/ring/a.py", "from time import monotonic", "a imports time"),
        ("krowlspider/engine/a.py", "import tests.mockweb", "a imports tests"),
        ("extensions/a.py", "from extensions.b import c", "a imports extensions.b"),
        ("krowlspider/engine/a.py", "import krowlspider.engine.b", "cycle"),
    ],
)
def test_a_breach_is_named(tmp_path: Path, path: str, source: str, breach: str):
    rooms = ("urls", "frontier", "fetch", "archive", "crawl", "engine", "cluster/ring")
    for folder in (*(f"krowlspider/{room}" for room in rooms), *PACKAGES):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "b.py").touch()
    (tmp_path / "krowlspider/engine/b.py").write_text("import krowlspider.engine.a")
    (tmp_path / path).write_text(source)
    assert any(breach in each for each in breaches(tmp_path))


def test_crawl_command_loads_no_cluster_client():
    script = (
        "import sys; from scrapy.cmdline import execute\n"
        "try: execute(['scrapy', 'crawl', '--help'])\n"
        "finally: print(sorted({'redis', 'consul'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"
