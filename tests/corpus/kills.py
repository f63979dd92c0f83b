"""Kill the making of a corpus N times at random moments: ``python -m tests.corpus.kills N [KEEP]``.

A small set of WARC files is made into a corpus by a process that is killed again and again, until
it ends by itself. Its output must be that of an undisturbed process; then the next corpus begins.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from krowlspider.corpus.build import Build
from krowlspider.corpus.copies.keeping import FIRST
from krowlspider.corpus.figures import figures
from krowlspider.corpus.folder import Folder, read_lines
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.worker import Choice, Job
from krowlspider.errors import KrowlError
from tests.corpus.warcs import html, response, write

FILES, PAGES = 6, 12
# Returns whether a child has ended, and leaves it to be waited for.
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT
# Seconds within which the workers of a killed process are gone.
_CLEAN = 60
# Slices are smaller than a file, so that a kill comes between two of one file too.
_SLICE = 3000


def warcs(folder: Path) -> Path:
    """Write WARC files; each has half of its pages in common with the next."""
    folder.mkdir()
    for number in range(FILES):
        pages = [html(n, words=80) for n in range(number * PAGES // 2, number * PAGES // 2 + PAGES)]
        records = [response(f"http://{number}.example/{n}", page) for n, page in enumerate(pages)]
        write(folder / f"{number}.warc.gz", records)
    return folder


def plain(body: bytes, codings: str) -> bytes:
    return body


def start(source: Path, out: Path, keep: str = FIRST) -> int:
    """Make a corpus in a child, with a worker; return the child's process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        folder, rules = _folder(out), read_rules()
        folder.begin({"rules": rules.source})
        job = Job(folder.work, rules, Choice(), plain, 60, slice_bytes=_SLICE)
        Build(folder, job, "jsonl", lambda done, total: None, keep).run(source, 1)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def _folder(out: Path) -> Folder:
    """Return the folder of a corpus, once the process before has let it go.

    A process that is killed while it starts a worker leaves a copy of itself for a moment.
    """
    begun = time.monotonic()
    while True:
        try:
            return Folder(out)
        except KrowlError:
            assert time.monotonic() - begun < _CLEAN, f"{out} is still locked"
            time.sleep(0.01)


def outcome(out: Path) -> dict[str, Any]:
    """Return all that a corpus holds: records and rejected pages by slice, and its figures.

    A worker whose parent was killed may finish its slice yet: the next command removes that.
    """
    begun = time.monotonic()
    while any(out.glob("state/work/*")):
        assert time.monotonic() - begun < _CLEAN, f"{out} has files of work that nobody removes"
        Folder(out).close()
        time.sleep(0.05)
    lines = {
        str(path.relative_to(out)): list(read_lines(path))
        for path in [*out.glob("data/*"), *out.glob("state/rejected/*")]
    }
    return {**lines, "figures": figures(out)}


def kill_until_done(
    source: Path, out: Path, seconds: float, chance: random.Random, keep: str
) -> int:
    """Make a corpus, killed at random moments until a process ends first; return the kills."""
    kills = 0
    while True:
        child, before = start(source, out, keep), _entries(out)
        if working := kills % 2:
            # The moment is in the work, not in the start of the worker.
            while _entries(out) == before and os.waitid(os.P_PID, child, _PEEK) is None:
                time.sleep(0.005)
        time.sleep(chance.uniform(0, seconds / 2 if working else seconds))
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status >= 0:
            assert status == 0, f"exit code {status}"
            return kills
        kills += 1


def _entries(out: Path) -> set[Path]:
    return {*out.glob("state/[dw]*/*")}


def main(wanted: int, keep: str = FIRST) -> None:
    chance, done, corpora = random.Random(), 0, 0
    with tempfile.TemporaryDirectory(prefix="krowl-kills-") as name:
        folder = Path(name)
        source, whole = warcs(folder / "warc"), folder / "whole"
        begun = time.monotonic()
        assert os.waitpid(start(source, whole, keep), 0)[1] == 0
        seconds, expected = time.monotonic() - begun, outcome(whole)
        print(f"{len(expected) - 1} files in an undisturbed corpus, made in {seconds:.1f} s")
        while done < wanted:
            out = folder / str(corpora)
            done += kill_until_done(source, out, seconds, chance, keep)
            found = outcome(out)
            if found != expected:
                other = [name for name in expected if found.get(name) != expected[name]]
                sys.exit(f"after {done} kills these differ: {other or found.keys() - expected}")
            corpora += 1
            print(f"{done} kills, {corpora} corpora like the undisturbed one", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
