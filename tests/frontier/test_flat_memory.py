"""A frontier's memory does not grow with its queue: many hosts, or many URLs of one host.

Its caches and LevelDB's are smaller than in a crawl: they are full after fewer URLs, and hide less.

``python -m tests.frontier.test_flat_memory FOLDER HOSTS`` is the measured process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.limits import FrontierLimits, MemoryLimits
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store import store as stores
from krowlspider.frontier.store.store import LevelStore
from krowlspider.politeness.delay import DelayPolicy
from krowlspider.urls.canonical import IdentityHasher

ROOT = Path(__file__).resolve().parents[2]
MB = 1_000_000
URLS, POPS = 300_000, 200_000
LINKS, COMMIT_EVERY = 100, 1000
# Small, so that the filter grows by layers: 30,000 keys, then four times as many each time.
CAPACITY = 30_000
# The seen filter may grow: at most 32 bits for each URL. A new layer is allocated whole, so growth
# may come late.
FILTER = URLS * 32 // 8
# Covers what caches and malloc keep. A leak of 100 bytes for each host or URL would add 15 MB in
# the second half of the queue, and 10 MB in that of the pops.
SLACK = 8 * MB
RULE = DelayPolicy(factor=1, minimum=0.25, maximum=30, crawl_delay_max=300)
# A fifth of the ordinary caches: they are full after about 60,000 pops.
MEMORY = MemoryLimits(hosts=2000, window=2000, waiting=200, in_line=20_000)
LIMITS = FrontierLimits(host_queue=URLS, total=URLS, domain_concurrency=2, memory=MEMORY)


class Measured:
    """A frontier on disk whose clock the test moves."""

    def __init__(self, folder: Path, hosts: int):
        self.now = 0.0
        self.hosts = hosts
        self.hasher = IdentityHasher(1)
        with patch.dict(stores._OPTIONS, write_buffer_size=MB, lru_cache_size=MB):
            store = LevelStore(folder / "db", create=True)
        seen = SeenSet(store, CAPACITY, file=FilterFile(folder / "seen"))
        self.frontier = Frontier(
            store, seen, LIMITS, RULE, monotonic=lambda: self.now, wall=lambda: 1.7e9
        )

    def candidate(self, number: int) -> Candidate:
        host = f"host{number % self.hosts}.example"
        url = f"http://{host}/section/{number}/page.html"
        return Candidate(host, self.hasher.key(url), Entry(url, 3))

    def add(self, start: int, stop: int) -> None:
        for first in range(start, stop, LINKS):
            self.frontier.add([self.candidate(number) for number in range(first, first + LINKS)])

    def crawl(self, pages: int) -> None:
        """Fetch so many pages, moving the clock by the delay after each."""
        for page in range(pages):
            host = self.frontier.schedule.pop()
            while host is None:
                self.now += 0.25
                host = self.frontier.schedule.pop()
            lease = self.frontier.queues.pop(host)
            assert lease is not None
            self.frontier.schedule.release(host, 0.25)
            self.frontier.acknowledge(lease)
            if page % COMMIT_EVERY == 0:
                self.commit()

    def commit(self) -> None:
        commit = self.frontier.begin_commit()
        commit.write()
        self.frontier.end_commit(commit)


def anonymous_memory() -> int:
    """Return the bytes of anonymous memory of this process.

    The tables that LevelDB maps do not count: the kernel may drop their pages.
    """
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def measure(folder: Path, hosts: int) -> dict[str, int]:
    measured = Measured(folder, hosts)
    sizes = {}
    done = 0
    for percent in (25, 50, 100):
        measured.add(done, done := URLS * percent // 100)
        sizes[f"queued {percent} %"] = anonymous_memory()
    done = 0
    for percent in (25, 50, 100):
        measured.crawl(POPS * percent // 100 - done)
        done = POPS * percent // 100
        sizes[f"popped {percent} %"] = anonymous_memory()
    return sizes


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hosts", [URLS, 1])
def test_memory_stays_flat_with_many_urls(tmp_path: Path, hosts: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.frontier.test_flat_memory", str(tmp_path), str(hosts)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    sizes = json.loads(done.stdout)
    assert sizes["queued 100 %"] - sizes["queued 50 %"] < FILTER + SLACK, sizes
    assert sizes["popped 100 %"] - sizes["popped 50 %"] < SLACK, sizes


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
