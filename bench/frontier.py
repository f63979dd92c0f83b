"""The frontier alone, without network: how it grows.

Each size is built, closed, opened and popped in a process of its own, so that resident memory is the frontier's.
Times are CPU seconds of the process, all threads.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krowlspider.frontier.filterfile import FilterFile
from krowlspider.frontier.frontier import Candidate, Frontier
from krowlspider.frontier.schema import Entry
from krowlspider.frontier.seen import SeenSet
from krowlspider.frontier.store import LevelStore
from krowlspider.frontier.turns import Limits
from krowlspider.politeness.pace import PaceRule
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# Links of a page, and how many of them are known already: figures of a real crawl's pages.
LINKS, KNOWN = 77, 57
POPS = 20_000
COMMIT_EVERY = 1000
RULE = PaceRule(factor=5, minimum=0.25, maximum=30, crawl_delay_max=300, retry_after_max=3600)
LIMITS = Limits(host_queue=10**9, total=10**9, domain_concurrency=2)


def measure(urls: int, hosts: int) -> dict[str, Any]:
    """Figures of a frontier with so many URLs queued over so many hosts."""
    folder = Path(tempfile.mkdtemp(prefix="krowl-bench-"))
    figures: dict[str, Any] = {"urls": urls, "hosts": hosts}
    try:
        for step in (_build, _use):
            figures |= _in_process(step, folder, urls, hosts)
    finally:
        shutil.rmtree(folder)
    return figures


def _in_process(step: Any, folder: Path, urls: int, hosts: int) -> dict[str, Any]:
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
    pipe.send(json.dumps(step(folder, urls, hosts)))


def _open(folder: Path, *, create: bool) -> Frontier:
    store = LevelStore(folder / "db", create=create)
    seen = SeenSet(store, 1_000_000, file=FilterFile(folder / "seen"))
    return Frontier(store, seen, LIMITS, RULE, monotonic=time.monotonic, wall=time.time)


def _url(chance: random.Random, hosts: int) -> str:
    host = chance.randrange(hosts)
    return f"http://host{host}.example{host % 7}.com/section/{chance.randrange(10**9)}/page.html"


def _build(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    frontier, hasher, chance = _open(folder, create=True), IdentityHasher(1), random.Random(1)
    recent = [_url(chance, hosts) for _ in range(1000)]
    spent, pages, rss = 0.0, 0, 0.0
    while frontier.queued < urls:
        links = [_url(chance, hosts) for _ in range(LINKS - KNOWN)]
        links += chance.choices(recent, k=KNOWN)
        recent[: len(links)] = links
        begun = time.process_time()
        frontier.add([Candidate(host_of(url), hasher.key(url), Entry(url, 3)) for url in links])
        spent += time.process_time() - begun
        pages += 1
        if pages % 1000 == 0:
            rss = max(rss, _rss())
    frontier.close()
    return {
        "links_per_cpu_second": round(pages * LINKS / spent),
        "rss_mb_building": round(max(rss, _rss())),
        "disk_bytes_per_url": round(_size(folder) / urls),
    }


def _use(folder: Path, urls: int, hosts: int) -> dict[str, Any]:
    begun = time.perf_counter()
    frontier = _open(folder, create=False)
    first = frontier.pop_host()
    assert first is not None
    assert frontier.pop(first) is not None
    opened = time.perf_counter() - begun
    frontier.release(first, 0.25)
    spent, slowest = time.process_time(), []
    for count in range(min(POPS, urls // 4)):
        before = time.perf_counter()
        host = frontier.pop_host()
        if host is None:
            time.sleep(0.01)
            continue
        lease = frontier.pop(host)
        frontier.release(host, 0.25)
        if lease is not None:
            frontier.acknowledge(lease)
        slowest.append(time.perf_counter() - before)
        if count % COMMIT_EVERY == 0:
            commit = frontier.begin_commit()
            commit.write()
            frontier.end_commit(commit)
    spent = time.process_time() - spent
    slowest.sort()
    rss = _rss()
    frontier.close()
    return {
        "reopen_to_first_pop_s": round(opened, 2),
        "pop_and_ack_us": round(spent / len(slowest) * 1e6),
        "pop_p99_ms": round(slowest[int(len(slowest) * 0.99)] * 1e3, 2),
        "rss_mb_crawling": round(rss),
    }


def _rss() -> float:
    """Resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0])
    width = max(map(len, names))
    return "\n".join(
        f"{name:<{width}} " + " ".join(f"{row[name]:>14,}" for row in rows) for name in names
    )
