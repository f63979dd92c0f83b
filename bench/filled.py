"""A job with a full frontier, and a web that answers every URL of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.frontier import LIMITS, RULE, settle
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.folder import JobFolder
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Hosts whose pages go into one batch.
HOSTS_A_BATCH = 5


@contextmanager
def any_web(hosts: int, *names: str) -> Iterator[int]:
    """Run a web (``bench.anyweb``) of ``hosts`` hosts on the second core; yield its port.

    ``names`` is the pattern of the host names.
    """
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
    """Yield the empty frontier of a new job, to be filled, and the seed of its identities.

    ``ring`` as in `JobFolder.take`.
    """
    folder = JobFolder.of(str(path))
    seed = folder.take(ring=ring).seed
    store = LevelStore(folder.frontier, create=True)
    seen = SeenSet(store, 1_000_000, file=FilterFile(folder.seen))
    frontier = Frontier(store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time)
    yield frontier, seed
    frontier.close()
    # Let LevelDB finish its compaction now: it is no cost of the crawl.
    store = LevelStore(folder.frontier)
    settle()
    store.close()
    folder.leave()
