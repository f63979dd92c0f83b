"""A job whose frontier is full of pages to be fetched, and a web that has every one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.frontier import LIMITS, RULE, settle
from krowlspider.crawl.folder import JobFolder
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen.filter_file import FilterFile
from krowlspider.frontier.seen.seen_set import SeenSet
from krowlspider.frontier.store.store import LevelStore
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Hosts whose pages go into one batch.
HOSTS_A_BATCH = 5


@contextmanager
def any_web(hosts: int, *names: str) -> Iterator[int]:
    """The port of a web (``bench.anyweb``) of so many hosts, on the second core; ``names`` is what
    they are called."""
    command = [sys.executable, "-m", "bench.anyweb", str(hosts), *names]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    os.sched_setaffinity(server.pid, {1})
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


@contextmanager
def filling(path: Path, ring: str | None = None) -> Iterator[tuple[Frontier, int]]:
    """The empty frontier of a new job and the seed of its identities, to be filled. ``ring`` as in
    `JobFolder.take`."""
    folder = JobFolder.of(str(path))
    seed = folder.take(ring=ring).seed
    store = LevelStore(folder.frontier, create=True)
    seen = SeenSet(store, 1_000_000, file=FilterFile(folder.seen))
    frontier = Frontier(store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time)
    yield frontier, seed
    frontier.close()
    # What the filling left to merge is not the crawl's cost.
    store = LevelStore(folder.frontier)
    settle()
    store.close()
    folder.leave()
