"""An index of which a file was cut while it is open.

A read behind the end of a mapped file is a SIGBUS, so another process asks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krowlspider.search.schema import SEGMENTS
from tests.search.indexes import index
from tests.search.test_searcher import PAGES
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Asks the index in each folder that is given, and prints the number of results or the error.
_ASK = """
import sys
from pathlib import Path
from krowlspider.search.opened import SearchError
from krowlspider.search.query import parse
from krowlspider.search.searcher import Searcher
searchers = {}
for folder in map(str.strip, sys.stdin):
    searcher = searchers.setdefault(folder, Searcher(Path(folder)))
    try:
        found = searcher.search(parse('"search everything" OR haus'), explain=True)
        print(len(found.results), flush=True)
    except SearchError as error:
        print(error, flush=True)
"""


@contextmanager
def asking() -> Iterator[Callable[[Path], str]]:
    """Yield what asks the index in a folder, in one process for all; it must live to the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ASK],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(folder: Path) -> str:
        stdin.write(f"{folder}\n")
        return stdout.readline().strip()

    with process:
        yield ask
        stdin.close()
    assert process.returncode == 0


def test_a_file_that_was_cut_between_queries_is_named(tmp_path: Path):
    whole = index(tmp_path / "whole", PAGES)
    with asking() as ask:
        for suffix in ("fast", "fieldnorm", "idx", "pos", "store", "term"):
            copy = shutil.copytree(whole, tmp_path / suffix)
            assert ask(copy) == "2"
            [path] = (copy / SEGMENTS).glob(f"*.{suffix}")
            os.truncate(path, 0)
            assert f"{path} was " in ask(copy)


def test_an_index_that_was_mended_is_read_again(tmp_path: Path):
    folder = index(tmp_path / "index", PAGES)
    with asking() as ask:
        assert ask(folder) == "2"
        [path] = (folder / SEGMENTS).glob("*.term")
        content = path.read_bytes()
        os.truncate(path, 0)
        assert "is damaged" in ask(folder)
        assert "cannot be read" in ask(folder)
        path.unlink()
        path.write_bytes(content)
        assert ask(folder) == "2"
