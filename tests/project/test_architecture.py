"""The rooms of the source and who may import whom. Imports for types alone count too."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOORS = {"extensions", "middlewares"}
# What each room may import besides itself and `errors`. A room that is not named: nothing.
BASE = {"urls", "politeness"}
SIDES = {"frontier", "fetch", "archive", "cluster"}
ENGINE = {"engine", "crawl", *SIDES, *BASE}
MAY_IMPORT: dict[str, set[str]] = {
    "settings": {"krowlspider"},
    "urls": {"internals.frostwork"},
    "politeness": {"urls"},
    **dict.fromkeys(SIDES, BASE),
    "cluster": {"internals.redis", *BASE},
    "crawl": {"krowlspider", "config", *SIDES, *BASE},
    "engine": {"internals.cookies", "internals.engine", "internals.middlewares", *ENGINE},
    "config": {"settings", "internals.log", *SIDES, *BASE},
    "corpus": {"krowlspider", "archive", "urls"},
    "spiders": ENGINE,
    "middlewares": {"spiders", *ENGINE},
    "views": {"krowlspider", "config", *ENGINE},
    "extensions": {"krowlspider", "config", "views", *ENGINE},
    "node": {"config", "spiders", "views", *ENGINE},
    "commands": {"krowlspider", "config", "node", "programs", *ENGINE},
    "programs": {"krowlspider", "commands", "config", "corpus", "views", *ENGINE},
}
PURE = (
    *("urls", "politeness", "cluster.ring", "internals.frostwork"),
    *("corpus.quality.measures", "corpus.quality.sequences", "corpus.fingerprints"),
    *("corpus.quality.bad_words", "corpus.quality.boilerplate", "corpus.quality.masks"),
    *("corpus.minhash", "corpus.signals", "corpus.tallies", "corpus.sites.answers"),
)
# I/O, clocks, randomness, concurrency, and Scrapy.
IMPURE = {
    "aiodns", "asyncio", "concurrent", "ctypes", "glob", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "plyvel", "random", "requests", "sched", "scrapy", "secrets", "select",
    "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
    "twisted", "urllib3", "uuid",
}  # fmt: skip


def modules_of(root: Path) -> dict[str, ast.Module]:
    """Return the syntax tree of every module of ours, by its dotted name."""
    found = {}
    for path in (each for room in ("krowlspider", *DOORS) for each in (root / room).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports_of(tree: ast.Module) -> set[str]:
    """Return every name that a module imports, those inside functions included."""
    names = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide where a name comes from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node; to walk its expressions too takes five times as long."""
    for blocks in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(node, blocks, ())
        for each in inner if isinstance(inner, list) else ():
            yield each
            yield from _statements(each)


def room_of(module: str) -> str:
    package, _, rest = module.partition(".")
    if package in DOORS or not rest:
        return package
    return rest if rest.startswith("internals.") else rest.partition(".")[0]


def part_of(module: str) -> str:
    """Return the sub-room of a module, or the module itself if it lies flat in its room."""
    return ".".join(module.split(".")[:3]) if module.count(".") >= 3 else module


def breaches(root: Path) -> list[str]:
    """Return every import that is against the rules, and every cycle."""
    trees = modules_of(root)
    found, graph, parts = [], {}, {}
    for module, tree in trees.items():
        names = imports_of(tree)
        ours = {name if name in trees else name.rpartition(".")[0] for name in names} & trees.keys()
        graph[module] = ours - {module}
        part = part_of(module)
        parts.setdefault(part, set()).update({part_of(name) for name in ours} - {part})
        allowed = MAY_IMPORT.get(room_of(module), set()) | {room_of(module), "errors"}
        found += [f"{module} imports {name}" for name in ours if room_of(name) not in allowed]
        doors = [name for name in ours - {module} if {room_of(name), room_of(module)} <= DOORS]
        found += [f"{module} imports {name}" for name in doors]
        is_pure = module.removeprefix("krowlspider.").startswith(PURE)
        banned = {"tests", "bench"} | (IMPURE if is_pure else set())
        found += [f"{module} imports {n}" for n in names if n.partition(".")[0] in banned]
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
        ("krowlspider/crawl/a.py", "if False:\n    import krowlspider.engine.b", "a imports"),
        ("krowlspider/cluster/ring/a.py", "from time import monotonic", "a imports time"),
        ("krowlspider/engine/a.py", "import tests.mockweb", "a imports tests"),
        ("extensions/a.py", "from extensions.b import c", "a imports extensions.b"),
        ("krowlspider/engine/a.py", "import krowlspider.engine.b", "cycle"),
    ],
)
def test_a_breach_is_named(tmp_path: Path, path: str, source: str, breach: str):
    rooms = ("urls", "frontier", "fetch", "archive", "crawl", "engine", "cluster/ring")
    for folder in (*(f"krowlspider/{room}" for room in rooms), "extensions"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "b.py").write_text("import krowlspider.engine.a")
    (tmp_path / path).write_text(source)
    assert any(breach in each for each in breaches(tmp_path))
