"""Measure the frontier alone, without network, at growing sizes.

Each step (fill, pop, crawl, enqueue) runs in a process of its own, so that its memory is the
frontier's. The processes collect garbage as a crawl does. Times are CPU seconds of the process: all
threads, with LevelDB's compaction. Latencies are by the wall clock.

A page has 77 links, of which 57 are known. Of its 20 new ones, 16 lead to its own host and 4 to any
other, as on real sites. With ``scattered``, all 20 lead to any hosts: the worst case.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.extensions.gc_tuning import collecting_less
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.limits import FrontierLimits
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store.store import LevelStore
from krowlspider.politeness.delay import DelayPolicy
from krowlspider.urls.canonical import IdentityHasher, host_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from krowlspider.frontier.hosts.host import Host

LINKS, NEW, OWN = 77, 20, 16
# Hosts whose URLs go into one batch while the frontier is filled.
_HOSTS_A_BATCH = 5
# Enough changes for several compactions of LevelDB.
POPS = 300_000
PAGES = 10_000
# A commit a second at 1,000 pages a second.
COMMIT_EVERY = 1000
DELAY = 0.25
RULE = DelayPolicy(factor=5, minimum=DELAY, maximum=30, crawl_delay_max=300)
LIMITS = FrontierLimits(host_queue=10**9, total=10**9, domain_concurrency=2)


def measure(urls: int, hosts: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return the figures of a frontier with ``urls`` URLs queued on ``hosts`` hosts."""
    folder = Path(tempfile.mkdtemp(prefix="krowl-bench-", dir=scratch))
    figures: dict[str, Any] = {"urls": urls, "hosts": hosts}
    try:
        for step in (_fill, _pop, _crawl, _enqueue, _enqueue_scattered):
            figures |= in_process(step, folder, urls, hosts)
    finally:
        shutil.rmtree(folder)
    return figures


def in_process(step: Any, folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(step, theirs, folder, urls, hosts)
    )
    process.start()
    theirs.close()
    try:
        return dict(json.loads(ours.recv()))
    finally:
        process.join()


def _run(step: Any, pipe: Connection, folder: Path, urls: int, hosts: int) -> None:
    with collecting_less():
        pipe.send(json.dumps(step(folder, urls, hosts)))


def _open(folder: Path, *, create: bool = False) -> Frontier:
    store = LevelStore(folder / "db", create=create)
    seen = SeenSet(store, 1_000_000, file=FilterFile(folder / "seen"))
    return Frontier(store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time)


@dataclass
class Web:
    """Makes links to pages of ``hosts`` numbered hosts. ``recent`` are links of earlier pages."""

    hosts: int
    hasher: IdentityHasher = field(default_factory=lambda: IdentityHasher(1))
    chance: random.Random = field(default_factory=random.Random)
    recent: list[str] = field(default_factory=list)

    def page(self, host: str) -> str:
        return f"http://{host}/section/{self.chance.randrange(10**9)}/page.html"

    def host(self, number: int | None = None) -> str:
        number = self.chance.randrange(self.hosts) if number is None else number
        return f"host{number}.example{number % 7}.com"

    def links(self, host: str, own: int) -> list[str]:
        """Return the links of a page; ``own`` of its new ones lead to the page's host."""
        new = [self.page(host) for _ in range(own)]
        new += [self.page(self.host()) for _ in range(NEW - own)]
        self.recent = (self.recent + new)[-1000:]
        return new + self.chance.choices(self.recent[:-NEW] or new, k=LINKS - NEW)

    def add(self, frontier: Frontier, urls: list[str]) -> None:
        """Queue URLs in one batch, with identity and host of each."""
        key = self.hasher.key
        frontier.add([Candidate(host_of(url), key(url), Entry(url, 3)) for url in urls])


def _fill(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    frontier, web = _open(folder, create=True), Web(hosts)
    numbers = list(range(hosts))
    web.chance.shuffle(numbers)
    each = urls // hosts
    begun = time.process_time()
    for at in range(0, hosts, _HOSTS_A_BATCH):
        names = [web.host(number) for number in numbers[at : at + _HOSTS_A_BATCH]]
        web.add(frontier, [web.page(name) for name in names for _ in range(each)])
        if at % 5000 == 0:
            commit(frontier)
    spent = time.process_time() - begun
    rss = _memory()
    frontier.close()
    return {
        "fill_us_per_url": round(spent / urls * 1e6, 1),
        "rss_mb_filling": rss["rss_mb"],
        "disk_bytes_per_url": round(size(folder) / urls),
    }


def _pop(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    """Measure pop, release and acknowledgement, commits included."""
    begun = time.perf_counter()
    frontier = _open(folder)
    first = frontier.schedule.pop()
    assert first is not None
    assert frontier.queues.pop(first) is not None
    opened = time.perf_counter() - begun
    frontier.schedule.release(first, DELAY)
    settle()
    spent, own, latencies = time.process_time(), time.thread_time(), []
    for count in range(min(POPS, urls // 4)):
        before = time.perf_counter()
        if _next(frontier) is not None:
            latencies.append(time.perf_counter() - before)
        if count % COMMIT_EVERY == 0:
            commit(frontier)
    spent, own = time.process_time() - spent, time.thread_time() - own
    latencies.sort()
    memory = _memory()
    frontier.close()
    return {
        "reopen_to_first_pop_s": round(opened, 2),
        "pop_and_ack_us": round(spent / len(latencies) * 1e6, 1),
        "pop_and_ack_us_without_merging": round(own / len(latencies) * 1e6, 1),
        "pop_p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1e3, 2),
        "pop_worst_ms": round(latencies[-1] * 1e3, 1),
        **{f"{name}_popping": value for name, value in memory.items()},
    }


def settle() -> None:
    """Wait for LevelDB's compaction of earlier writes: it is no cost of the next step."""
    while True:
        before = time.process_time()
        time.sleep(0.5)
        if time.process_time() - before < 0.01:
            return


def _next(frontier: Frontier) -> Host | None:
    host = frontier.schedule.pop()
    if host is None:
        # No host is due yet.
        time.sleep(0.005)
        return None
    lease = frontier.queues.pop(host)
    frontier.schedule.release(host, DELAY)
    if lease is not None:
        frontier.acknowledge(lease)
    return host


def _crawl(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    """Measure all work of the frontier for a page, from its pop to the commit of its links."""
    frontier, web = _open(folder), Web(hosts)
    settle()
    spent, pages, latencies = 0.0, 0, []
    while pages < PAGES:
        begun, wall = time.process_time(), time.perf_counter()
        host = _next(frontier)
        if host is None:
            continue
        popped = time.process_time() - begun
        latencies.append(time.perf_counter() - wall)
        links = web.links(host.name, OWN)
        begun = time.process_time()
        web.add(frontier, links)
        pages += 1
        if pages % COMMIT_EVERY == 0:
            commit(frontier)
        spent += popped + time.process_time() - begun
    latencies.sort()
    memory = _memory()
    frontier.close()
    return {
        "page_us": round(spent / pages * 1e6),
        "pop_p99_ms_with_links": round(latencies[int(len(latencies) * 0.99)] * 1e3, 2),
        **{f"{name}_crawling": value for name, value in memory.items()},
    }


def _enqueue(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    return {"links_per_cpu_second": _enqueued(folder, hosts, OWN)}


def _enqueue_scattered(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    return {"links_per_cpu_second_scattered": _enqueued(folder, hosts, 0)}


def _enqueued(folder: Path, hosts: int, own: int) -> int:
    frontier, web = _open(folder), Web(hosts)
    settle()
    spent = 0.0
    for page in range(PAGES):
        links = web.links(web.host(), own)
        begun = time.process_time()
        web.add(frontier, links)
        if page % COMMIT_EVERY == 0:
            commit(frontier)
        spent += time.process_time() - begun
    frontier.close()
    return round(PAGES * LINKS / spent)


def commit(frontier: Frontier) -> None:
    commit = frontier.begin_commit()
    commit.write()
    frontier.end_commit(commit)


def _memory() -> dict[str, int]:
    """Return the resident memory of this process in MB, and its part without mapped files."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            found[name] = round(int(value.split()[0]) / 1000)
    return {"rss_mb": found["VmRSS"], "anonymous_mb": found["RssAnon"]}


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0])
    width = max(map(len, names))
    return "\n".join(
        f"{name:<{width}} " + " ".join(f"{row[name]:>14,}" for row in rows) for name in names
    )
