"""Kill the making of a corpus N times at random moments.

Run it by ``python -m tests.corpus.kills N [KEEP [VERSIONS]]``. A small set of WARC files is made
into a corpus by a process that is killed again and again, until it ends by itself. It follows the
crawl that writes these files: one is finished after each kill. Its output must be that of an
undisturbed process; then the next corpus begins.
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

from krowlspider.archive.disk import OPEN
from krowlspider.corpus.build import Build
from krowlspider.corpus.copies.duplicates import FIRST
from krowlspider.corpus.copies.versions import ALL, LAST
from krowlspider.corpus.figures import figures
from krowlspider.corpus.folder import Folder, read_lines
from krowlspider.corpus.quality.rules import read_rules
from krowlspider.corpus.worker import PageChoice, WorkerTask
from krowlspider.errors import KrowlError
from tests.corpus.warcs import html, response, write

FILES, PAGES = 6, 12
# The word that changes, in each file.
WORDS = b"abcacd"
# Returns whether a child has ended, and leaves it to be waited for.
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT
# Seconds within which the workers of a killed process are gone.
_CLEAN = 60
# Slices are smaller than a file, so that a kill comes between two of one file too.
_SLICE = 3000


def warcs(folder: Path) -> Path:
    """Write WARC files; each has half of its pages in common with the next.

    Pages of one host are in all of them: one word of each changes, and changes back.
    """
    folder.mkdir()
    for number in range(FILES):
        pages = [html(n, words=80) for n in range(number * PAGES // 2, number * PAGES // 2 + PAGES)]
        records = [response(f"http://{number}.example/{n}", page) for n, page in enumerate(pages)]
        for n in range(PAGES):
            changed = html(900 + n, words=80).replace(b"</main>", b"Now %c.</main>" % WORDS[number])
            date = f"2026-01-0{number + 1}T00:00:00Z"
            records.insert(2 * n, response(f"http://changes.example/{n}", changed, date=date))
        write(folder / f"{number}.warc.gz", records)
    return folder


def plain(body: bytes, codings: str) -> bytes:
    return body


def start(source: Path, out: Path, keep: str = FIRST, versions: str = ALL) -> int:
    """Make a corpus in a child, with a worker; return the child's process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        folder, rules = _folder(out), read_rules()
        folder.begin({"rules": rules.source})
        job = WorkerTask(
            folder.work,
            rules,
            PageChoice(),
            plain,
            60,
            slice_bytes=_SLICE,
            revisits=versions == LAST,
        )
        build = Build(folder, job, "jsonl", lambda done, total: None, keep=keep, versions=versions)
        build.run(source, 1, follow=True)
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
    source: Path, out: Path, seconds: float, chance: random.Random, *rules: str
) -> int:
    """Make a corpus, killed at random moments until a process ends first; return the kills."""
    kills, live = 0, out.with_name(f"{out.name}-live")
    live.mkdir()
    for path in source.iterdir():
        (live / f"{path.name}{OPEN}").hardlink_to(path)
    while True:
        for path in sorted(live.glob(f"*{OPEN}"))[:1]:
            path.rename(path.with_suffix(""))
        child, before = start(live, out, *rules), _entries(out)
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


def main(wanted: int, keep: str = FIRST, versions: str = ALL) -> None:
    chance, done, corpora = random.Random(), 0, 0
    with tempfile.TemporaryDirectory(prefix="krowl-kills-") as name:
        folder = Path(name)
        source, whole = warcs(folder / "warc"), folder / "whole"
        begun = time.monotonic()
        assert os.waitpid(start(source, whole, keep, versions), 0)[1] == 0
        seconds, expected = time.monotonic() - begun, outcome(whole)
        print(f"{len(expected) - 1} files in an undisturbed corpus, made in {seconds:.1f} s")
        while done < wanted:
            out = folder / str(corpora)
            done += kill_until_done(source, out, seconds, chance, keep, versions)
            found = outcome(out)
            if found != expected:
                other = [name for name in expected if found.get(name) != expected[name]]
                sys.exit(f"after {done} kills these differ: {other or found.keys() - expected}")
            corpora += 1
            print(f"{done} kills, {corpora} corpora like the undisturbed one", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
