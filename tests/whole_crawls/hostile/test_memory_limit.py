"""Bodies in memory stay near KROWL_MEMORY_LIMIT, and all pages are fetched in the end."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import brotli
import pytest

from krowlspider.archive.reading import read_members
from krowlspider.archive.tools.check import check_folder
from krowlspider.job.monitoring.disk_guard import machine_memory, memory_to_be_had
from tests.support.crawling import Crawl, write_seeds
from tests.support.large_bodies import framed, measure
from tests.support.rawweb import NOT_FOUND, Raw, RawWeb
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1_000_000
LINE = b"<p>%07d of a page without links</p>\n"


@cache
def chunked(size: int) -> Raw:
    """Return a page of about this many bytes, in chunks of 10 kB."""
    lines = b"".join(LINE % number for number in range(size // len(LINE % 0)))
    parts = [lines[at : at + 10_000] for at in range(0, len(lines), 10_000)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    return Raw(head + chunks + b"0\r\n\r\n")


@cache
def packed(size: int) -> Raw:
    """Return a page like `chunked`, in a few bytes of brotli."""
    body = brotli.compress(LINE % 1 * (size // len(LINE % 1)))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: br\r\n"
    return Raw(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def crawl_of(
    web: RawWeb, folder: Path, hosts: int, kind: type[Crawl] = Crawl, **settings: object
) -> Crawl:
    seeds = [f"http://h{number}.test:{web.port}/" for number in range(hosts)]
    return kind(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", seeds)},
        settings={"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0, **settings},
        feed=False,
        cold=True,
    )


def peak(crawl: Crawl) -> int:
    """Return the peak of a crawl's resident memory in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{crawl.process.pid}/status").read_text()
    except FileNotFoundError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0


def assert_all_came(crawl: Crawl, hosts: int) -> None:
    stats = crawl.stats
    assert stats["krowl/frontier/done_count"] == hosts
    assert stats["downloader/response_status_count/200"] == hosts
    assert not [name for name in stats if name.startswith("krowl/fetch/failed_count")]
    assert stats["krowl/memory/held_bytes"] == 0


# Coded bodies are decoded one at a time, so that few are in memory.
@pytest.mark.parametrize(("make", "waits"), [(chunked, 1), (packed, 0)], ids=["chunked", "packed"])
def test_pages_wait_for_memory_and_all_come(
    tmp_path: Path, make: Callable[[int], Raw], waits: int
) -> None:
    answers = {"/": make(MB), "/robots.txt": NOT_FOUND}
    with SimulatedRawWeb(answers) as web:
        settings = {"DOWNLOAD_MAXSIZE": 1_500_000, "KROWL_MEMORY_LIMIT": 6 * MB}
        crawl = crawl_of(web, tmp_path, 20, SimulatedCrawl, **settings).run()
        assert_all_came(crawl, 20)
        assert crawl.stats["krowl/memory/waits_count"] >= waits


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_128_bodies_of_10_mb_stay_near_the_limit(tmp_path: Path) -> None:
    """They come in a few bytes of brotli. Without a limit they take gigabytes. The bound is 512 MB
    and the 0.2 GB of the crawl."""
    with RawWeb({"/": packed(10 * MB), "/robots.txt": NOT_FOUND}) as web:
        crawl = crawl_of(web, tmp_path, 128, KROWL_MEMORY_LIMIT=512 * MB).start()
        most = 0
        while crawl.process.poll() is None:
            most = max(most, peak(crawl))
        crawl.wait()
        print(f"peak {most / MB:.0f} MB")
        assert_all_came(crawl, 128)
        assert most < 850 * MB


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_large_bodies_in_flight_take_little_memory(tmp_path: Path) -> None:
    """24 of 10 MB, half of them chunked, all of them nine tenths sent. In memory they take 400 MB
    more. Each is archived to the byte, and no file is left."""
    count = 24
    measured = measure(tmp_path, count)
    print(measured)
    assert measured.crawl.stats["krowl/frontier/done_count"] == count
    assert measured.in_flight - measured.before < 60 * MB
    assert measured.most - measured.before < 150 * MB
    assert measured.crawl.stats["krowl/memory/held_bytes"] == 0
    folder = tmp_path / "job" / "warc"
    assert {path.suffix for path in folder.iterdir()} == {".gz", ".cdxj", ".lock"}
    assert check_folder(folder).problem_count == 0
    found = {}
    for warc in folder.glob("*.warc.gz"):
        with warc.open("rb") as stream:
            for member in read_members(stream):
                record = member.record()
                url = record.headers.get("WARC-Target-URI") or ""
                name = url.rpartition("/")[2]
                if record.headers.get("WARC-Type") == "response" and name.isdigit():
                    found[int(name)] = record.reader.read() == framed(int(name))
    assert found == dict.fromkeys(range(count), True)


# --- the memory of the machine ---


def group(folder: Path, lines: str, **limits: str) -> tuple[Path, Path]:
    """Make a ``/proc/self/cgroup`` of these lines, and a cgroup tree with these files."""
    groups = folder / "cgroup"
    groups.write_text(lines)
    for path, limit in limits.items():
        file = folder / "tree" / path.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit + "\n")
    return groups, folder / "tree"


@pytest.mark.parametrize(
    ("lines", "limits", "found"),
    [
        ("0::/\n", {"memory_dot_max": "max"}, 1000),
        ("0::/\n", {"memory_dot_max": "600"}, 600),
        ("0::/\n", {"memory_dot_max": "6000"}, 1000),
        ("0::/a/b\n", {"a__b__memory_dot_max": "max", "a__memory_dot_max": "500"}, 500),
        # In a container, the tree begins with its own group.
        ("0::/docker/1234\n", {"memory_dot_max": "400"}, 400),
        ("5:cpu:/\n4:memory:/x\n", {"memory__x__memory.limit_in_bytes": "300"}, 300),
        ("4:memory:/\n", {"memory__memory.limit_in_bytes": str(2**63)}, 1000),
        ("4:cpu,memory:/\n", {"memory__memory.limit_in_bytes": "200"}, 200),
        ("", {}, 1000),
    ],
)
def test_memory_is_what_the_group_or_the_machine_has(
    tmp_path: Path, lines: str, limits: dict[str, str], found: int
) -> None:
    groups, tree = group(tmp_path, lines, **limits)
    assert memory_to_be_had(groups, tree, 1000) == found


def test_without_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert memory_to_be_had(tmp_path / "none", tmp_path) == machine_memory() > 0
