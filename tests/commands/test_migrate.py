"""JOBDIRs of older formats, made by versions that had them, are migrated and crawled to the end."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from krowlspider.crawl.folder import JobFolder
from krowlspider.frontier.hosts.host import Health
from krowlspider.frontier.schedule.clock import JobClock
from krowlspider.frontier.stopped import read_host
from krowlspider.frontier.store.store import LevelStore
from tests.support import warm
from tests.support.crawling import ROOT, Crawl, frontier_view, scrapy
from tests.support.crawls import crawl_of, done_in, pages, refused
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMATS = ROOT / "tests" / "formats"
# Without the answer that the crawls which made the folders have had.
RULES = [rule for rule in json.loads((FORMATS / "web.json").read_text()) if "first" not in rule]
# The port in the queued URLs of the folders.
PORT = 18_471
BUSY = f"c.test:{PORT}"
ALL = {f"http://{rule['host']}:{PORT}{rule['path']}" for rule in RULES} - {
    f"http://{host}:{PORT}/robots.txt" for host in ("a.test", "b.test", "c.test")
}
# Fetched by the version that made the folder.
DONE = 32


@pytest.fixture
def web() -> Iterator[SimulatedWeb]:
    with SimulatedWeb(spec=RULES, port=PORT) as web:
        yield web


def unpacked(number: int, folder: Path) -> list[str]:
    """Unpack the folder of a format as ``job``; return the URLs that it has fetched."""
    with tarfile.open(FORMATS / f"format-{number}.tar.xz") as archive:
        # Only this project writes it, and Python before 3.11.4 knows no filter.
        archive.extractall(folder)
    (folder / "job").chmod(0o700)
    return (folder / "fetched.txt").read_text().split()


def crawl(web: SimulatedWeb, folder: Path) -> Crawl:
    return crawl_of(web, folder, [f"http://a.test:{PORT}/"])


def assert_goes_on(web: SimulatedWeb, folder: Path, fetched: list[str]) -> None:
    """Crawl to the end: each page that was not fetched is fetched once."""
    done = crawl(web, folder).run()
    new = [entry.url for entry in pages(web.log())]
    assert sorted([*fetched, *new]) == sorted(ALL)
    view = frontier_view(done.jobdir)
    assert (view["queued"], done_in(view)) == (0, len(ALL))
    assert done.complaints == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_older_jobdir_is_migrated_and_goes_on(
    web: SimulatedWeb, tmp_path: Path, number: int
) -> None:
    """The command of the refusal migrates it; nothing is lost or fetched twice."""
    fetched = unpacked(number, tmp_path)
    job = tmp_path / "job"
    head = (job / "job.json").read_bytes()
    message = refused(crawl(web, tmp_path))
    way, _, command = message.partition(": migrate it with: ")
    assert f"JOBDIR {job} has format {number}, made by krowlspider 0.1.0;" in way
    assert way.endswith("this version reads format 4")
    assert (job / "job.json").read_bytes() == head

    shown = scrapy(*shlex.split(command.removeprefix("scrapy "))).stdout.decode()
    kept = job / "before-format-4"
    assert f"migrated from format {number} to 4: 3 hosts, 23 queued URLs\n" in shown
    assert f"as it was is in {kept} (0.0 MB)" in shown
    assert shown.endswith(f"remove it: rm -r {kept}\n")
    assert (kept / "job.json").read_bytes() == head
    view = frontier_view(job)
    assert (view["hosts"], view["queued"], view["done"]) == (3, 23, DONE)
    LevelStore(kept / "frontier").close()

    # The host that answered 503 with a Retry-After of 600 s still waits for it, and the jitter.
    store = LevelStore(job / "frontier")
    host = read_host(store, BUSY)
    assert host is not None
    assert host.health is Health.BACKING_OFF
    stopped = JobClock(store, monotonic=lambda: 0.0, wall=lambda: 0.0).now()
    assert 595 < host.due - stopped < 751
    store.close()

    assert_goes_on(web, tmp_path, fetched)
    again = scrapy("frontier", job, "--migrate").stdout.decode()
    assert again == f"{job} has format 4: nothing to migrate\n"


def test_frontier_behind_a_link_is_left_as_it_is(tmp_path: Path) -> None:
    unpacked(1, tmp_path)
    job = tmp_path / "job"
    head = (job / "job.json").read_bytes()
    (job / "frontier").rename(tmp_path / "elsewhere")
    (job / "frontier").symlink_to("../elsewhere")
    message = scrapy("frontier", job, "--migrate", code=2).stderr.decode()
    assert message.startswith(f"krowlspider: {job / 'frontier'} is a link or a mount point: ")
    assert (job / "job.json").read_bytes() == head
    assert sorted(path.name for path in job.iterdir()) == ["frontier", "job.json", "lock", "seen"]


def test_jobdir_of_first_format_4_goes_on(web: SimulatedWeb, tmp_path: Path) -> None:
    fetched = unpacked(4, tmp_path)
    assert_goes_on(web, tmp_path, fetched)


def test_killed_migration_leaves_one_format(web: SimulatedWeb, tmp_path: Path) -> None:
    """After kill -9 the folder has the old format or the new one, and the next command goes on."""
    fetched = unpacked(3, tmp_path)
    assert warm.run([sys.executable, "-m", "tests.commands.dying", tmp_path]).returncode == 0
    jobs = sorted(tmp_path.glob("[0-9]*"), key=lambda job: int(job.name))
    formats = []
    for job in jobs:
        formats.append(json.loads((job / "job.json").read_text())["format"])
        if formats[-1] == 3:
            LevelStore(job / "frontier").close()
            assert "has format 3" in scrapy("frontier", job, code=2).stderr.decode()
            scrapy("frontier", job, "--migrate")
        view = frontier_view(job)
        assert (view["hosts"], view["queued"], view["done"]) == (3, 23, DONE)
        assert not JobFolder(job).migrating.exists()
        LevelStore(job / "before-format-4" / "frontier").close()
    # Before the new head, before and between the renames, and whole.
    assert formats == [*[3] * (len(jobs) - 3), 4, 4, 4]
    assert len(jobs) > 6
    shutil.rmtree(tmp_path / "job")
    jobs[-2].rename(tmp_path / "job")
    assert_goes_on(web, tmp_path, fetched)


def test_migration_that_would_lose_a_copy_is_refused(tmp_path: Path) -> None:
    unpacked(3, tmp_path)
    kept = tmp_path / "job" / "before-format-4" / "frontier"
    kept.mkdir(parents=True)
    message = scrapy("frontier", tmp_path / "job", "--migrate", code=2).stderr.decode()
    assert message == (
        f"krowlspider: {kept} is of an earlier migration: move {kept.parent} away first\n"
    )
