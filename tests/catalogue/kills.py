"""Kill the making of a catalogue at each of its steps on disk.

``python -m tests.catalogue.kills FOLDER [EVERY]`` makes WARC files in FOLDER and their catalogue.
Then, for each EVERYth step, a process is killed just before it opens, renames, removes or makes a
file or folder of a new catalogue. What it leaves must be readable. The next process must make of it
what the undisturbed one has made. The number of kills is printed.
"""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq

from krowlspider.catalogue.follow import Follower
from krowlspider.catalogue.parquet import ParquetSink
from tests.catalogue.warcs import ALL, archived, fetch
from tests.support.killed import killed_before


def warcs(folder: Path) -> Path:
    """Write two WARC files: pages that change, robots.txt, and what was not found."""
    for number in range(2):
        pages = [
            fetch(f"https://a.test/{n}", b"<a href=/x>Text %d</a>" % (number * n), minute=number)
            for n in range(3)
        ]
        pages.append(fetch("https://a.test/robots.txt", b"", mime=b"text/plain", minute=number))
        pages.append(fetch("https://a.test/no", status=b"404 Not Found", minute=number))
        archived(folder, pages)
    return folder


def make(source: Path, out: Path, step: int = 0) -> int:
    """Make a catalogue in a child, as of `killed_before`."""

    def work() -> None:
        with closing(ParquetSink(out, ALL)) as sink:
            Follower(source, "autumn", ALL, sink).run()

    return killed_before(step, out, work)


def files(out: Path) -> dict[str, bytes]:
    """Return the files of a catalogue that readers see, and its markers."""
    found = [*out.rglob("*.parquet"), *out.glob("_done/*.warc.gz")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def read_all(out: Path) -> int:
    """Read all tables in a child, which exits with the returned code: pyarrow has threads."""

    def work() -> None:
        for path in out.rglob("*.parquet"):
            pq.read_table(path, partitioning=None)

    return killed_before(0, out, work)


def main(folder: Path, every: int = 1) -> None:
    source, whole = warcs(folder / "warc"), folder / "whole"
    assert make(source, whole) == 0
    expected = files(whole)
    # Of all tables but that of sitemaps; the first file found no change.
    assert len(expected) == 17, sorted(expected)
    step = kills = 0
    while True:
        step += every
        out = folder / f"killed-{step}"
        code = make(source, out, step)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        kills += 1
        assert read_all(out) == 0, f"after step {step} a file cannot be read"
        left = files(out)
        assert all(expected[name] == content for name, content in left.items()), step
        assert make(source, out) == 0, step
        assert files(out) == expected, f"after step {step} other files are made"
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
