"""A snapshot is a crawl's folder as it was at one commit; a crawl of what is restored goes on."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.crawls import _crawls
from krowlspider.job.folder import JobFolder
from krowlspider.job.snapshots import Copier, Snapshot
from tests.mockweb import MockWeb
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.identity import identity
from tests.mockweb.oracle import reachable
from tests.support.archived import stored, valid_records
from tests.support.crawling import ROOT, Crawl, frontier_view, scrapy
from tests.support.crawls import crawl_of, pages
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from krowlspider.job.job import Job
    from tests.support.simulated_loop import Script

# Without pages that answer otherwise the second time: what is restored fetches them again.
GRAPH = Graph(hosts=10, pages=10, seed=4, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})
# Some files are finished at each snapshot.
SETTINGS = {"KROWL_WARC_MAX_SIZE": 60_000}


def running_job() -> Job:
    # Of those that are not collected yet, the newest.
    return [crawl.job for crawl in _crawls.values() if crawl.job.is_open][-1]


def archived(jobdir: Path) -> Counter[str]:
    """Return how often each page is in the archive."""
    urls = (url for url, _ in stored(jobdir))
    return Counter(url for url in urls if not url.endswith("/robots.txt"))


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha1(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def complaint(*words: object, code: int = 2) -> str:
    return scrapy("frontier", *words, code=code).stderr.decode()


@pytest.mark.slow
def test_a_snapshot_of_a_running_crawl_goes_on_elsewhere(tmp_path: Path) -> None:
    """Each page is once in the archive of what is restored: it has what the frontier has as done,
    and no more."""
    taken = {number: tmp_path / f"taken-{number}" for number in (20, 60)}
    with SimulatedWeb(graph=GRAPH) as web:

        def has(count: int) -> bool:
            return len(pages(web.log())) >= count

        def take() -> Script:
            for number, target in taken.items():
                yield partial(has, number)
                job = running_job()
                snapshot = Snapshot(job.folder, job.store, job.archive.directory, target)
                snapshot.gather()
                noting = asyncio.get_running_loop().create_task(job.commits.commit_for(snapshot))
                yield noting.done
                # The crawl goes on before the files are taken.
                yield partial(has, number + 20)
                snapshot.complete()

        crawl = crawl_of(web, tmp_path, settings=SETTINGS, script=take()).run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        done = frontier_view(crawl.jobdir)["done"]
        whole = archived(crawl.jobdir)
        before = 0
        for number, target in taken.items():
            was = contents(target)
            # The crawl has written more to the file that was open.
            (opened,) = (target / "warc").glob("*.open")
            now = crawl.jobdir / "warc" / opened.name.removesuffix(".open")
            assert now.stat().st_size > opened.stat().st_size
            jobdir = tmp_path / f"restored-{number}"
            scrapy("frontier", jobdir, "--restore", target)
            first = frontier_view(jobdir)["done"]
            assert before < first < done
            before = first
            again = SimulatedCrawl(jobdir, arguments=crawl.arguments, settings=SETTINGS).run()
            assert again.stats["krowl/frontier/done_count"] == done - first
            assert frontier_view(jobdir)["done"] == done
            assert archived(jobdir) == whole
            valid_records(jobdir / "warc")
            assert not [line for line in again.complaints if "seen" in line or "lost" in line]
            # The crawl of what was restored has changed nothing of the snapshot.
            assert contents(target) == was
    assert any(path.suffix == ".gz" for path in (taken[60] / "warc").iterdir())


def queue(jobdir: Path) -> list[tuple[bytes, bytes]]:
    """Return all that the frontier of a stopped crawl has on disk."""
    with closing(LevelStore(jobdir / "frontier")) as store:
        return list(store.items(b""))


def test_a_stopped_folder_is_taken_and_restored(tmp_path: Path) -> None:
    with SimulatedWeb(graph=GRAPH) as web:
        crawl = crawl_of(web, tmp_path, arguments={"max_pages": 30}).run()
        jobdir, target, other = crawl.jobdir, tmp_path / "taken", tmp_path / "other"
        linked = scrapy("frontier", jobdir, "--snapshot", target).stdout.decode()
        assert f"snapshot in {target}: " in linked
        assert "copied" not in linked
        # Only what a start needs: no lock, and nothing of a process.
        names = {path.name for path in target.iterdir()}
        assert names == {"job.json", "snapshot.json", "frontier", "seen", "warc"}
        for refused, why in (
            ([jobdir, "--snapshot", target], f"{target} exists"),
            ([jobdir, "--snapshot", tmp_path / "no" / "one"], f"{tmp_path / 'no'} is not a folder"),
            ([other, "--snapshot", tmp_path / "new"], f"{other} is not a crawl's folder"),
            ([jobdir, "--restore", target], f"{jobdir} exists"),
            ([other, "--restore", jobdir], f"{jobdir} is not a snapshot"),
            ([jobdir, "--snapshot="], "--snapshot is given an empty name: give a folder"),
            ([jobdir, "-s", f"KROWL_WARC_DIR={other}", "--snapshot", tmp_path / "new"], "archive"),
        ):
            assert why in complaint(*refused)
            assert not other.exists()
            assert not (tmp_path / "new").exists()
        scrapy("frontier", other, "--restore", target)
        assert queue(other) == queue(jobdir)
        assert frontier_view(other)["done"] == 30
        last = SimulatedCrawl(other, arguments={"seeds": tmp_path / "seeds.txt"}).run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert archived(last.jobdir).total() == len(pages(web.log()))


@pytest.mark.slow
def test_a_killed_crawl_goes_on_from_a_snapshot_that_it_took(tmp_path: Path) -> None:
    """The command asks the running crawl. What is restored needs nothing of the killed one."""
    target, other = tmp_path / "taken", tmp_path / "other"
    with MockWeb(graph=GRAPH) as web:
        settings = {**SETTINGS, "PROMETHEUS_ENABLED": 1, "PROMETHEUS_PORT": 0}
        crawl = crawl_of(web, tmp_path, settings=settings).start()
        crawl.wait_until(lambda: len(pages(web.log())) >= 30)
        said = scrapy("frontier", crawl.jobdir, "--snapshot", target).stdout.decode()
        assert f"snapshot in {target}: " in said
        assert f"{target} exists" in complaint(crawl.jobdir, "--snapshot", target)
        crawl.kill()
        scrapy("frontier", other, "--restore", target)
        shutil.rmtree(crawl.jobdir)
        was = contents(target)
        first = frontier_view(other)["done"]
        assert first > 0
        last = Crawl(other, arguments=crawl.arguments, settings=SETTINGS).run()
        assert reachable(web.graph, web.seeds()).differences(web.log(), at_least=True) == []
        assert {identity(url) for url in archived(other)} == {
            identity(entry.url) for entry in pages(web.log())
        }
        assert max(archived(other).values()) == 1
        assert last.stats["krowl/frontier/done_count"] + first == frontier_view(other)["done"]
        valid_records(other / "warc")
        assert contents(target) == was


def test_a_running_crawl_without_its_page_says_what_to_do(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.take()
    try:
        said = complaint(folder.path, "--snapshot", tmp_path / "taken")
    finally:
        folder.leave()
    assert f"is in use by process {os.getpid()}, which does not answer over HTTP: stop it" in said
    assert not (tmp_path / "taken").exists()


KILLED = """
import os, signal, sys
from krowlspider.job.snapshots import Copier
from scrapy.cmdline import execute

left, copy = int(sys.argv.pop(1)), Copier.copy

def dying(*args):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    copy(*args)

Copier.copy = dying
execute(["scrapy", *sys.argv[1:]])
"""


def lasting_view(jobdir: Path) -> dict[str, Any]:
    """Return what `scrapy frontier` shows, without the seconds until its hosts are due."""
    view = frontier_view(jobdir)
    # Of a crawl that was simulated, some hosts may become due meanwhile.
    del view["next_due"]
    for host in (*view["biggest"], *view["slowest"]):
        del host["due_in"]
    return view


@pytest.mark.slow
@pytest.mark.parametrize("copies", [0, 2])
def test_a_kill_leaves_no_half_snapshot_and_the_folder_as_it_was(
    tmp_path: Path, copies: int
) -> None:
    with SimulatedWeb(graph=GRAPH) as web:
        crawl = crawl_of(web, tmp_path, arguments={"max_pages": 20}).run()
    target = tmp_path / "taken"
    words = ["frontier", crawl.jobdir, "--snapshot", target]
    before = lasting_view(crawl.jobdir)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(copies), *words], cwd=ROOT, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    assert lasting_view(crawl.jobdir) == before
    draft = tmp_path / "taken.tmp"
    assert f"{draft} exists" in complaint(*words[1:])
    shutil.rmtree(draft)
    scrapy(*words)
    other = tmp_path / "other"
    scrapy("frontier", other, "--restore", target)
    assert lasting_view(other) == before


@pytest.mark.slow
def test_a_torn_file_of_a_killed_crawl_is_mended_at_each_restore(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    with SimulatedWeb(graph=GRAPH) as web:
        crawl = crawl_of(web, tmp_path)
        assert isinstance(crawl, SimulatedCrawl)
        crawl.run_until_killed(web, lambda: len(pages(web.log())) >= 40)
        (opened,) = (crawl.jobdir / "warc").glob("*.open")
        with opened.open("ab") as file:
            file.write(opened.read_bytes()[:100])
        scrapy("frontier", crawl.jobdir, "--snapshot", target)
        was = contents(target)
        for name in ("one", "two"):
            scrapy("frontier", tmp_path / name, "--restore", target)
            again = SimulatedCrawl(tmp_path / name, arguments={**crawl.arguments, "max_pages": 5})
            assert any("100 bytes" in line for line in again.run().log.splitlines())
            valid_records(tmp_path / name / "warc")
            assert contents(target) == was


def test_another_disk_gets_copies(tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(b"x" * 3_000_000)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        if Path(memory).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("the machine has one file system")
        copier = Copier()
        copier.take(source, Path(memory) / "copy")
        assert (copier.linked, copier.copied) == (0, 1)
        assert (Path(memory) / "copy").read_bytes() == source.read_bytes()
        assert (Path(memory) / "copy").stat().st_mtime_ns == source.stat().st_mtime_ns
    copier.take(source, tmp_path / "link")
    assert (copier.linked, copier.copied) == (1, 1)
    assert (tmp_path / "link").samefile(source)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_is_left(tmp_path: Path) -> None:
    with SimulatedWeb(graph=GRAPH) as web:
        crawl = crawl_of(web, tmp_path, arguments={"max_pages": 20}).run()
    disk = SmallDisk(tmp_path / "disk", 64 * 1024)
    try:
        if not disk.mounted:
            pytest.skip("the machine allows no mount")
        target = tmp_path / "disk" / "taken"
        words = [sys.executable, "-m", "scrapy", "frontier", crawl.jobdir, "--snapshot", target]
        done = subprocess.run([*disk.prefix, *words], cwd=ROOT, capture_output=True, check=False)
        said = done.stderr.decode().splitlines()
        assert (done.returncode, len(said)) == (3, 1)
        assert "No space left on device" in said[0]
        assert list(disk.outside.iterdir()) == []
    finally:
        disk.close()
