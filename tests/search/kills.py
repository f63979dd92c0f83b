"""Kill the making of an index N times at random moments.

Run it by ``python -m tests.search.kills N [SEED]``. An index is made of a few WARC files, and then
of more, by a process that is killed again and again until it ends by itself. After each kill the
index must be readable, with no page twice. In the end it must have the documents that an
undisturbed process makes.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.search.builder import Builder
from krowlspider.search.schema import SEGMENTS
from tests.catalogue.warcs import archived, fetch
from tests.search.webs import Stored, found, stored

if TYPE_CHECKING:
    from collections.abc import Callable

FILES, PAGES, STAGES = 6, 14, 2
# Documents of a commit: a few of each stage.
_PART = 9
_HEAP = 15_000_000
_ASKED = (
    *((field, word) for field in ("body", "anchors") for word in ("river", "garden")),
    *(("anchors", f"anchor{number}") for number in range(FILES)),
    ("title", "title"),
)


def warcs(folder: Path) -> list[Path]:
    """Write WARC files whose pages change, go, come back, are copies and refuse to be indexed."""
    files = []
    for number in range(FILES):
        minute, made = 100 * number, []
        for n in range(PAGES):
            links = {f"https://b{(n + number) % 5}.test/{n}": f"anchor{number} to {n}"}
            made += [
                # Of its own, and one that changes in each second file.
                found(f"https://a{number}.test/{n}", 100 * number + n, minute, links=links),
                found(f"https://b{n % 5}.test/{n}", 2000 + n + number // 2, minute + 1),
                # Copies, some of which come before the page that is gone later.
                found(f"https://c{number}.test/{n % 4}", 3000 + n % 4 + number // 3, minute + 2),
            ]
        is_gone = number % 2
        status = b"410 Gone" if is_gone else b"200 OK"
        made.append(fetch("https://c0.test/0", b"gone", status=status, minute=minute + 3))
        said = b"User-agent: *\nContent-Signal: search=no\n" if is_gone else b""
        robots = "https://b1.test/robots.txt"
        made.append(fetch(robots, said, mime=b"text/plain", minute=minute + 4))
        files += [made]
    return archived(folder, *files)


def forked(work: Callable[[], object]) -> int:
    """Work in a child; return its process id.

    tantivy runs in children alone: a process forked from one with its threads may wait for ever
    for a lock that no thread of its own holds.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def start(source: Path, out: Path) -> int:
    """Make the index in a child; return its process id."""

    def build() -> None:
        builder = Builder(out, [source], heap=_HEAP, part=_PART)
        builder.run()
        builder.close()

    return forked(build)


def read(out: Path, *asked: Any) -> Stored:
    """Return what an index has, read by a child."""
    with tempfile.TemporaryFile() as answer:

        def write() -> None:
            pickle.dump(stored(out, *asked), answer)
            answer.flush()

        assert ended(forked(write)) == 0, "the index cannot be read"
        answer.seek(0)
        return pickle.load(answer)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stage(files: list[Path], source: Path, number: int) -> None:
    """Put the files of a stage into a folder."""
    share = len(files) // STAGES
    for path in files[share * number : share * (number + 1)]:
        shutil.copyfile(path, source / path.name)


def undisturbed(files: list[Path], folder: Path) -> list[tuple[Stored, float]]:
    """Return what an index has after each stage, and the seconds that it takes."""
    made, source = [], folder / "warc"
    source.mkdir(parents=True)
    for number in range(STAGES):
        stage(files, source, number)
        begun = time.monotonic()
        assert ended(start(source, folder / "index")) == 0
        seconds = time.monotonic() - begun
        made.append((read(folder / "index", *_ASKED), seconds))
    return made


def killed(
    files: list[Path], folder: Path, expected: list[tuple[Stored, float]], chance: random.Random
) -> int:
    """Make an index with kills; return their number."""
    kills, source, out = 0, folder / "warc", folder / "index"
    source.mkdir(parents=True)
    for number, (whole, seconds) in enumerate(expected):
        stage(files, source, number)
        while True:
            child = start(source, out)
            time.sleep(chance.uniform(0, 1.2 * seconds))
            os.kill(child, signal.SIGKILL)
            code = ended(child)
            if code == 0:
                break
            assert code == -signal.SIGKILL, code
            kills += 1
            # So that it ends on a machine that has become slower, too.
            seconds *= 1.05
            if (out / SEGMENTS / "meta.json").exists():
                read(out)
        made = read(out, *_ASKED)
        assert made == whole, f"after {kills} kills: {differences(made, whole)}"
    return kills


def differences(made: Stored, whole: Stored) -> str:
    """Return the first differences between two indexes, a line for each."""
    lines = []
    for url in sorted(made.documents.keys() | whole.documents.keys()):
        one, other = made.documents.get(url), whole.documents.get(url)
        if one != other:
            lines.append(f"{url}: {one} instead of {other}")
    for term, expected in whole.terms.items():
        if found := sorted(made.terms[term] ^ expected):
            lines.append(f"{term}: {found}")
    lines += sorted(made.forms ^ whole.forms)
    return "\n".join(lines[:10])


def main(most: int, seed: int = 0) -> None:
    chance, kills, rounds = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory(prefix="krowl-kills-") as name:
        files = warcs(Path(name) / "made")
        expected = undisturbed(files, Path(name) / "whole")
        assert len(expected[-1][0].documents) > FILES * PAGES
        assert expected[-1][0].forms
        while kills < most:
            folder = Path(name) / f"round-{rounds}"
            kills += killed(files, folder, expected, chance)
            shutil.rmtree(folder)
            rounds += 1
    print(kills, rounds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
