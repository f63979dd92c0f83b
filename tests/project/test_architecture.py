"""The rooms of the source and who may import whom. Imports for types alone count too."""

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.sources import imports_of, sources_of

ROOT = Path(__file__).parents[2]
# Folders beside the package, and links in it: `krowlspider.extensions` is `extensions`.
DOORS = {"extensions", "middlewares"}
# What each room may import besides itself and `errors`. A room that is not named: nothing.
BASE = {"urls", "politeness", "policies", "recrawl"}
SIDES = {"frontier", "fetch", "archive", "cluster"}
ENGINE = {"engine", "hooks", "job", *SIDES, *BASE}
ENTRY = {"krowlspider", "addon", "config"}
MAY_IMPORT: dict[str, set[str]] = {
    "settings": {"krowlspider", "config", "project"},
    "addon": {"config", "settings"},
    "urls": {"internals.frostwork", "internals.suffix_list"},
    "politeness": {"urls"},
    "recrawl": {"urls"},
    "policies": {"internals.patterns", "urls"},
    "hooks": BASE,
    **dict.fromkeys(SIDES, BASE),
    "cluster": {"internals.redis", *BASE},
    "job": {"krowlspider", "config", "hooks", *SIDES, *BASE},
    "engine": {"internals.cookies", "internals.engine", *ENGINE},
    "config": {"settings", "internals.log", *SIDES, *BASE},
    "browser": {"internals.engine", *ENGINE},
    "catalogue": {
        *("archive", "changes", "corpus", "fetch", "gemini", "recrawl", "urls"),
        *("internals.frostwork", "internals.suffix_list"),
    },
    "cdx": {"archive", "internals.patterns", "job", "urls"},
    "changes": {"archive", "corpus", "urls"},
    "corpus": {"krowlspider", "archive", "gemini", "urls"},
    "rpc": {"krowlspider", "archive", "config", "views", *ENGINE},
    "graph": {"archive", "catalogue", "corpus", "fetch", "gemini", "urls", "internals.frostwork"},
    "search": {
        *("archive", "catalogue", "cdx", "corpus", "fetch", "frontier", "gemini", "graph", "job"),
        *("internals.frostwork", *BASE),
    },
    "sql": {"archive", "catalogue", "frontier", *BASE},
    "spiders": ENGINE,
    "middlewares": {"spiders", *ENGINE},
    "views": {"krowlspider", "changes", "config", *ENGINE},
    "extensions": {"krowlspider", "cdx", "config", "rpc", "search", "views", *ENGINE},
    "gemini": ENGINE,
    "node": {"cdx", "config", "rpc", "search", "spiders", "views", *ENGINE},
    "library": {"commands", "spiders", *ENTRY, *ENGINE},
    "commands": {"node", "programs", *ENTRY, *ENGINE},
    "programs": {
        *("catalogue", "cdx", "changes", "commands", "corpus", "graph", "rpc", "search", "sql"),
        "views",
        *(*ENTRY, *ENGINE),
    },
}
PURE = (
    *("urls", "politeness", "policies", "recrawl", "cluster.ring"),
    *("internals.frostwork", "internals.patterns"),
    *("catalogue.columns", "catalogue.records.hosts", "catalogue.records.content"),
    *("cdx.capture", "cdx.choosing", "cdx.filters", "cdx.forms", "cdx.keys", "cdx.query"),
    "cdx.xml_form",
    *("changes.comparison", "corpus.copies.fingerprints"),
    *("corpus.quality.measures", "corpus.quality.personal_data"),
    *("corpus.text.part", "corpus.tallies"),
    *("graph.hosts", "graph.salsa"),
    *("gemini.ascii_art", "gemini.feeds", "gemini.gemtext", "gemini.mirrors", "gemini.robots"),
    *("corpus.optouts", "corpus.sites.answers"),
    "gemini.protocol",
    *("search.filters", "search.query", "search.ranking", "search.snippets", "search.spelling"),
)
# I/O, clocks, randomness, concurrency, and Scrapy.
IMPURE = {
    "aiodns", "asyncio", "concurrent", "ctypes", "glob", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "plyvel", "random", "requests", "sched", "scrapy", "secrets", "select",
    "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
    "twisted", "urllib3", "uuid",
}  # fmt: skip


def room_of(module: str) -> str:
    """Return the room of a module. Each door and each module of `internals` is one of its own."""
    rest = module.partition(".")[2]
    room = rest.partition(".")[0]
    return rest if room in {"internals", *DOORS} else room or module


def breaches(root: Path) -> list[str]:
    """Return every forbidden import, and every cycle."""
    sources, found = sources_of(root, "krowlspider"), []
    for door in DOORS:
        sources |= {f"krowlspider.{name}": text for name, text in sources_of(root, door).items()}
    # The nodes are modules, and sub-rooms too: a module that lies flat in its room is both.
    graph: dict[str, set[str]] = defaultdict(set)
    for module, source in sources.items():
        names, room = imports_of(source), room_of(module)
        package = room.partition(".")[0]
        ours = {name if name in sources else name.rpartition(".")[0] for name in names}
        ours = (ours & sources.keys()) - {module}
        part, *others = (".".join(name.split(".")[:3]) for name in (module, *ours))
        graph[module] |= ours
        graph[part] |= {*others} - {part}
        allowed = MAY_IMPORT.get(package, set()) | {room, "errors"}
        is_pure = module.removeprefix("krowlspider.").startswith(PURE)
        banned = {"tests", "bench", *DOORS} | (IMPURE if is_pure else set())
        wrong = {name for name in ours if room_of(name) not in allowed}
        wrong |= {name for name in names if name.partition(".")[0] in banned}
        found += [f"{module} imports {name}" for name in wrong]
    try:
        TopologicalSorter(graph).prepare()
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
        ("krowlspider/job/a.py", "if False:\n    import krowlspider.engine.b", "a imports"),
        ("krowlspider/cluster/ring/a.py", "from time import monotonic", "a imports time"),
        ("krowlspider/engine/a.py", "import tests.mockweb", "a imports tests"),
        ("extensions/a.py", "from krowlspider.extensions.b import c", "a imports"),
        ("krowlspider/job/a.py", "from extensions.b import c", "a imports extensions.b"),
        ("krowlspider/engine/a.py", "import krowlspider.engine.b", "cycle"),
    ],
)
def test_a_breach_is_named(tmp_path: Path, path: str, source: str, breach: str):
    rooms = ("urls", "frontier", "fetch", "archive", "job", "engine", "cluster/ring")
    for folder in (*(f"krowlspider/{room}" for room in rooms), "extensions"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "b.py").write_text("import krowlspider.engine.a")
    (tmp_path / path).write_text(source)
    assert any(breach in each for each in breaches(tmp_path))
