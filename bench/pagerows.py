"""Measure a frontier that has a row of each page that was fetched.

Pages are on hosts of real domains, of which a few have most pages. Paths are those of real URLs,
two of them joined, so that a URL is as long as on the web. Each page has an ETag, a Last-Modified
and a digest, and came from a seed. Hosts are visited in random order, ten pages at a time, in
commits of a thousand.

First all pages are marked as seen, and URLs are queued. A copy of this stays without rows. Steps
run in processes of their own. CPU times are of all threads, with LevelDB's merging.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from bench import frontier as parts
from bench.realurls import real_urls
from krowlspider.frontier.entry import Entry, Fetched
from krowlspider.frontier.entry_queues import Candidate, Lease
from krowlspider.frontier.frontier import Frontier
from krowlspider.frontier.hosts.host import Host
from krowlspider.frontier.pages.row import TICK, PageRow, date_of_seconds
from krowlspider.frontier.pages.rows import PageRows, row_after
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.frontier.store.schema import KEY_SIZE, PAGES, SEED_SIZE, after_all, page_prefix
from krowlspider.frontier.store.store import Batch, LevelStore, put
from krowlspider.recrawl.gone import TEXT_SIZE
from krowlspider.recrawl.validators import Meaning
from krowlspider.urls.canonical import IdentityHasher
from tests.support.domains import real_domains

if TYPE_CHECKING:
    from collections.abc import Iterator


# Pages of a visit to a host, and of a commit.
VISIT, COMMIT = 10, 1000
# URLs queued, on so many of the hosts.
QUEUED, QUEUED_HOSTS = 1_000_000, 250_000
# Pops with and without rows, by turns.
ROUNDS, POPS = 3, 50_000
_BEGUN = 1_700_000_000


class Receipt(NamedTuple):
    """What the archive says of a record."""

    payload: bytes
    url: str
    date: float


class Web:
    """Makes pages of ``count`` hosts. Two webs make the same pages."""

    def __init__(self, count: int):
        self.chance = random.Random(1)
        names = real_domains()
        kinds = ("www.{}", "{}", "blog.{}", "shop.{}", "en.{}", "docs.{}", "news.{}", "m.{}")
        every = (kind.format(name) for kind in kinds for name in names)
        self.hosts = list(islice(every, count))
        self.chance.shuffle(self.hosts)
        self.weights = list(accumulate((rank + 100) ** -0.8 for rank in range(len(self.hosts))))
        self.paths = [path for url in real_urls() if len(path := urlsplit(url).path) > 1]
        self.number = 0

    def visits(self, pages: int) -> Iterator[tuple[str, list[str]]]:
        """Yield hosts, each with URLs, until there are so many pages."""
        chance, paths = self.chance, self.paths
        while self.number < pages:
            for host in chance.choices(self.hosts, cum_weights=self.weights, k=COMMIT // VISIT):
                first = chance.choice(paths)
                urls = [
                    f"https://{host}{first}{path}{self.number + at}"
                    for at, path in enumerate(chance.choices(paths, k=VISIT))
                ]
                self.number += VISIT
                yield host, urls


def measure(pages: int, hosts: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return the figures of a frontier with rows of so many pages."""
    folder = Path(tempfile.mkdtemp(prefix="krowl-bench-", dir=scratch))
    figures: dict[str, Any] = {"pages": pages, "hosts": hosts}
    try:
        run = partial(parts.in_process, urls=pages, hosts=hosts)
        figures |= run(_mark, folder / "without")
        shutil.copytree(folder / "without", folder / "with")
        figures |= run(_write_rows, folder / "with")
        figures |= run(_restart, folder / "with")
        without = run(_restart, folder / "without")
        figures |= {f"{name}_without": value for name, value in without.items()}
        rounds = [[run(_pop, folder / name) for name in ("with", "without")] for _ in range(ROUNDS)]
        figures |= run(_rebuild, folder / "with")
    finally:
        shutil.rmtree(folder)
    for name in rounds[0][0]:
        figures[f"pop_and_ack_{name}"] = [have[name] for have, _ in rounds]
        figures[f"pop_and_ack_{name}_without"] = [lack[name] for _, lack in rounds]
    return figures


def _open(folder: Path, *, rows: bool, create: bool = False) -> Frontier:
    store = LevelStore(folder / "db", create=create)
    seen = SeenSet(store, file=FilterFile(folder / "seen"))
    pages = PageRows(store, IdentityHasher(1).key) if rows else None
    clocks = {"monotonic": time.monotonic, "wall": time.time}
    return Frontier(store, seen, parts.LIMITS, parts.RULE, pages=pages, **clocks)


def _mark(folder: Path, pages: int, hosts: int) -> dict[str, Any]:
    folder.mkdir()
    frontier, web, key = _open(folder, rows=False, create=True), Web(hosts), IdentityHasher(1).keys
    begun = time.process_time()
    batch = frontier.store.batch()
    for visit, (host, urls) in enumerate(web.visits(pages), 1):
        frontier.seen.mark(host, key(urls))
        if visit * VISIT % COMMIT == 0:
            frontier.seen.end_batch(batch)
            batch.write()
            batch = frontier.store.batch()
            if visit * VISIT % (100 * COMMIT) == 0:
                parts.commit(frontier)
    each = QUEUED // QUEUED_HOSTS
    for at in range(0, min(QUEUED_HOSTS, len(web.hosts)), 5):
        urls = [
            f"https://{host}{web.chance.choice(web.paths)}q{number}"
            for host in web.hosts[at : at + 5]
            for number in range(each)
        ]
        candidates = zip(urls, key(urls), strict=True)
        frontier.add([Candidate(urlsplit(url).netloc, of, Entry(url, 3)) for url, of in candidates])
    spent = time.process_time() - begun
    frontier.close()
    return {"mark_us": round(spent / pages * 1e6, 1), "disk_gb_without": _gigabytes(folder)}


def fetched(url: str, number: int) -> Fetched:
    """Return an answer with all that is kept of one."""
    started = _BEGUN + number / 500
    etag = b'"%x-%013x"' % (number % 90_000, number * 2654435761 % 16**13)
    modified = date_of_seconds(_BEGUN - number % 10**8)
    receipt = Receipt(number.to_bytes(20), url, started)
    return Fetched(started, 200, etag, modified, Meaning.ORDINARY, receipt)


def _write_rows(folder: Path, pages: int, hosts: int) -> dict[str, Any]:
    frontier, web = _open(folder, rows=True), Web(hosts)
    rows = frontier.pages
    assert rows is not None
    sizes: list[int] = []
    begun, number = time.process_time(), 0
    done: list[tuple[Lease, None]] = []
    for name, urls in web.visits(pages):
        host, seed = Host(name), name.encode()[:SEED_SIZE].ljust(SEED_SIZE)
        for url in urls:
            entry = Entry(url, 3)
            entry.seed = seed
            number += 1
            done.append((Lease(host, 0, 0, entry, fetched=fetched(url, number)), None))
        if len(done) >= COMMIT:
            batch: Batch = frontier.store.batch()
            rows.put(done, batch)
            batch.write()
            done = []
    spent = time.process_time() - begun
    for key, value in islice(frontier.store.items(b"P"), 100_000):
        sizes.append(len(key) + len(value))
    sizes.sort()
    frontier.close()
    return {
        "write_us": round(spent / pages * 1e6, 1),
        "row_bytes_median": sizes[len(sizes) // 2],
        "row_bytes_mean": round(sum(sizes) / len(sizes), 1),
        "disk_gb": _gigabytes(folder),
    }


def sizes(pages: int, hosts: int) -> dict[str, tuple[float, ...]]:
    """Return the median bytes of rows with their keys: of pages that were fetched once, and with a
    schedule once, again without a change, and again with one. Before them is that of URLs.

    Also of URLs that are 12 characters shorter, and of pages without validators.
    """
    kinds = {"whole": (0, True), "shorter URLs": (12, True), "no validators": (0, False)}
    return {name: _sizes(pages, hosts, *how) for name, how in kinds.items()}


def _sizes(pages: int, hosts: int, cut: int, has_validators: bool) -> tuple[float, ...]:
    found = list[tuple[int, ...]]()
    for name, rows in _rows(pages, hosts, cut, has_validators=has_validators):
        key = len(page_prefix(name)) + KEY_SIZE
        found.append((len(rows[0].url), *(key + len(each.encode(name)) for each in rows)))
    return tuple(map(median, zip(*found, strict=True)))


def disk(pages: int, hosts: int, scratch: Path | None = None) -> list[float]:
    """Return the mean bytes of a row on the disk once LevelDB has merged all, by how pages were
    fetched as in `sizes`."""
    folder, key_of = (
        Path(tempfile.mkdtemp(prefix="krowl-bench-", dir=scratch)),
        IdentityHasher(1).key,
    )
    stores = [LevelStore(folder / str(kind), create=True) for kind in range(4)]
    for name, rows in _rows(pages, hosts):
        for store, row in zip(stores, rows, strict=True):
            put(store, page_prefix(name) + key_of(row.url), row.encode(name))
    for store in stores:
        store.compact(PAGES, after_all(PAGES))
        store.close()
    found = [round(parts.size(folder / str(kind)) / pages, 1) for kind in range(4)]
    shutil.rmtree(folder)
    return found


def _rows(
    pages: int, hosts: int, cut: int = 0, *, has_validators: bool = True
) -> Iterator[tuple[str, list[PageRow]]]:
    """Yield the host of each page, and its rows by how it was fetched."""
    web, number = Web(hosts), 0
    for name, urls in web.visits(pages):
        for whole in urls:
            number += 1
            url = whole[: max(len(whole) - cut, len(f"https://{name}/"))]
            entry, answer = Entry(url, 3), fetched(url, number)
            entry.seed = bytes(SEED_SIZE)
            if not has_validators:
                answer.etag = answer.modified = b""
            row = row_after(None, entry, answer)
            yield name, [row, *_scheduled(row, web.chance)]


def _scheduled(row: PageRow, chance: random.Random) -> tuple[PageRow, ...]:
    """Return the row of a page of the schedule: fetched once, again, and again with a change."""
    wait = chance.randrange(3600, 40 * 86_400)
    due = int(row.last + wait * (1 + chance.random() / 16)) // TICK * TICK
    once = replace(row, text=bytes(TEXT_SIZE), estimate=(0.3, 864_000.0), planned=wait, due=due)
    again = replace(once, last=row.last + wait, due=due + wait // TICK * TICK)
    again.fetches = chance.randrange(2, 60)
    again.unmodified = again.fetches - 1
    changed = replace(again, unmodified=0, changes=5, changed=int(again.last), stored=again.last)
    return once, again, changed


def _restart(folder: Path, pages: int, hosts: int) -> dict[str, Any]:
    begun = time.perf_counter()
    LevelStore(folder / "db").close()
    opened = time.perf_counter()
    frontier = _open(folder, rows=True)
    host = frontier.schedule.pop()
    assert host is not None
    assert frontier.queues.pop(host) is not None
    popped = time.perf_counter()
    frontier.schedule.release(host, parts.DELAY)
    assert not frontier.seen.rebuilt
    frontier.close()
    return {
        "open_store_s": round(opened - begun, 2),
        "restart_to_first_pop_s": round(popped - opened, 2),
    }


def _rebuild(folder: Path, pages: int, hosts: int) -> dict[str, Any]:
    (folder / "seen").unlink()
    begun = time.perf_counter()
    frontier = _open(folder, rows=True)
    spent = time.perf_counter() - begun
    assert frontier.seen.rebuilt
    frontier.close()
    return {"restart_that_rebuilds_seen_s": round(spent, 1)}


def _pop(folder: Path, pages: int, hosts: int) -> dict[str, Any]:
    """Measure pop, release and acknowledgement, with the rows if there are any.

    A crawl writes its commits in a thread: ``loop_us`` is without these, ``cpu_us`` all threads.
    """
    frontier = _open(folder, rows=folder.name == "with")
    parts.settle()
    answer, number, writing = fetched("https://any.example/", 1), 0, 0.0
    spent, own = time.process_time(), time.thread_time()
    while number < POPS:
        host = frontier.schedule.pop()
        if host is None:
            time.sleep(0.005)
            continue
        lease = frontier.queues.pop(host)
        frontier.schedule.release(host, parts.DELAY)
        if lease is None:
            continue
        lease.fetched = answer
        frontier.acknowledge(lease)
        number += 1
        if number % COMMIT == 0:
            commit = frontier.begin_commit()
            begun = time.thread_time()
            commit.write()
            writing += time.thread_time() - begun
            frontier.end_commit(commit)
    spent, own = time.process_time() - spent, time.thread_time() - own
    frontier.close()
    costs = {"loop_us": own - writing, "commit_us": writing, "cpu_us": spent}
    return {name: round(seconds / number * 1e6, 1) for name, seconds in costs.items()}


def _gigabytes(folder: Path) -> float:
    return round(parts.size(folder) / 1e9, 2)


def table(figures: dict[str, Any]) -> str:
    width = max(map(len, figures))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in figures.items())
