"""Kill the making of a graph at each of its steps on disk.

``python -m tests.graph.kills FOLDER [EVERY]`` makes WARC files in FOLDER and two graphs of them:
one of the first file, then one of all. Then, for each EVERYth step, a process is killed just before
it opens, renames, removes or makes a file or folder of the second one. What it leaves must be
either graph as a whole, or none while its folder is replaced. The next process must make of it what
the undisturbed one has made. The number of kills is printed.
"""

from __future__ import annotations

import gzip
import shutil
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.graph.build import LEVELS, GraphFolder, built
from krowlspider.graph.ranks import HostRanks, write
from krowlspider.graph.text_form import EDGES, RANKS, VERTICES
from tests.catalogue.warcs import archived, fetch
from tests.support.killed import killed_before

if TYPE_CHECKING:
    from collections.abc import Sequence


def warcs(folder: Path) -> list[Path]:
    """Write three WARC files of hosts that link to each other."""
    for number in range(3):
        pages = [
            fetch(f"https://h{n}.site{number}.com/", b"<a href=//h%d.site%d.com/>" % (n + 1, n))
            for n in range(4)
        ]
        archived(folder, pages)
    return sorted(folder.glob("*.warc.gz"))


def make(sources: Sequence[Path], out: Path, step: int = 0) -> int:
    """Make a graph in a child, as of `killed_before`."""

    def work() -> None:
        with closing(GraphFolder(out)) as graph:
            for source in sources:
                if not graph.has(source):
                    graph.take(source, print)
            hosts, names = graph.merge()
            for level in LEVELS:
                graph.write(found := built(level, hosts, names))
                write(out / "ranks.tsv", [(name, 1.0, 2.0) for name in found.names])

    return killed_before(step, out, work)


def files(out: Path) -> dict[str, str]:
    """Return the files that readers see, gzip undone."""
    found = {}
    for level in LEVELS:
        folder = out / level
        if folder.exists():
            for name in (VERTICES, EDGES, RANKS):
                found[f"{level}/{name}"] = gzip.decompress((folder / name).read_bytes()).decode()
    return found


def is_whole(left: dict[str, str], *wholes: dict[str, str]) -> bool:
    """Return whether each level is that of one graph, or absent."""
    for level in LEVELS:
        names = [f"{level}/{name}" for name in (VERTICES, EDGES, RANKS)]
        here = [left.get(name) for name in names]
        if here not in ([None] * 3, *([whole[name] for name in names] for whole in wholes)):
            return False
    return True


def main(folder: Path, every: int = 1) -> None:
    sources = warcs(folder / "warc")
    first, whole = folder / "first", folder / "whole"
    assert make(sources[:1], first) == 0
    assert make(sources, whole) == 0
    before, expected = files(first), files(whole)
    assert len(expected) == len(before) == 6
    assert before != expected
    step = kills = 0
    while True:
        step += every
        out = folder / f"killed-{step}"
        shutil.copytree(first, out)
        code = make(sources, out, step)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        kills += 1
        assert is_whole(files(out), before, expected), f"step {step} leaves half a graph"
        HostRanks.open(out / "ranks.tsv").close()
        assert make(sources, out) == 0, step
        assert files(out) == expected, f"after step {step} another graph is made"
        names = {path.name for path in out.iterdir()} - {".krowlspider.lock"}
        assert names == {"links", "ranks.tsv", *LEVELS}, f"step {step} leaves {names}"
        assert len(list((out / "links").iterdir())) == 3, step
        shutil.rmtree(out)
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
