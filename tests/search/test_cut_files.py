"""An index of which a file was cut while it is open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.search.opened import SearchError
from krowlspider.search.query import parse
from krowlspider.search.schema import SEGMENTS
from krowlspider.search.searcher import Searcher
from tests.search.indexes import index
from tests.search.test_searcher import PAGES
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_ASK_TWICE = """
import sys
from pathlib import Path
from krowlspider.search.opened import SearchError
from krowlspider.search.query import parse
from krowlspider.search.searcher import Searcher
query = parse('"search everything" OR haus')
for line in sys.stdin:
    searcher = Searcher(Path(line.strip()))
    print(len(searcher.search(query, explain=True).results), flush=True)
    next(sys.stdin)
    try:
        print(len(searcher.search(query, explain=True).results), flush=True)
    except SearchError as error:
        print(error, flush=True)
"""


def test_a_file_that_was_cut_between_queries_is_named(tmp_path: Path):
    """A read behind the end of a mapped file is a SIGBUS, which would end the process."""
    whole = index(tmp_path / "whole", PAGES)
    asking = subprocess.Popen(
        [sys.executable, "-c", _ASK_TWICE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert asking.stdin is not None
    assert asking.stdout is not None
    with asking:
        for suffix in ("fast", "fieldnorm", "idx", "pos", "store", "term"):
            copy = shutil.copytree(whole, tmp_path / suffix)
            asking.stdin.write(f"{copy}\n")
            assert asking.stdout.readline() == "2\n"
            [path] = (copy / SEGMENTS).glob(f"*.{suffix}")
            os.truncate(path, 0)
            asking.stdin.write("again\n")
            assert f"{path} was " in asking.stdout.readline()
        asking.stdin.close()
    assert asking.returncode == 0


def test_an_index_that_was_mended_is_read_again(tmp_path: Path):
    whole = index(tmp_path / "index", PAGES)
    searcher, query = Searcher(whole), parse("haus")
    assert len(searcher.search(query).results) == 1
    [path] = (whole / SEGMENTS).glob("*.term")
    content = path.read_bytes()
    os.truncate(path, 0)
    for _ in range(2):
        with pytest.raises(SearchError):
            searcher.search(query)
    path.unlink()
    path.write_bytes(content)
    assert len(searcher.search(query).results) == 1
