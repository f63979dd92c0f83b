"""Below KROWL_DISK_FLOOR the crawl pauses, after its pages in flight are on the disk. It continues
when there is room."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings

from krowlspider import settings as defaults
from krowlspider.errors import JobError
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from krowlspider.job.job import Job
from krowlspider.job.monitoring import disk_guard
from krowlspider.job.monitoring.disk_guard import DiskFloor, DiskGuard
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.support.archived import assert_archived
from tests.support.crawling import CONTACT, Crawl, frontier_view, write_seeds
from tests.support.crawls import QUICK, crawl_of, done_in, is_redirect, pages, status_lines
from tests.support.simulated_crawl import SimulatedCrawl, interrupt, interrupted_when
from tests.support.simulated_web import SimulatedWeb
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.simulated_loop import Script

MB = 10**6
GB = 10**9
HERE, THERE = Path("/here"), Path("/there")
GRAPH = Graph(hosts=8, pages=6, seed=7, features=QUICK)
# More than any disk has free.
NEVER = 10**18


# --- the decision ---


def test_disk_is_short_until_a_tenth_above_the_floor() -> None:
    floor = DiskFloor(2 * GB)
    readings = [2 * GB, 2 * GB - 1, 2 * GB, 2200 * MB - 1, 2200 * MB, 2 * GB, 0]
    short = [floor.short({HERE: size}) for size in readings]
    assert short == [None, HERE, HERE, HERE, None, None, HERE]


def test_a_small_floor_asks_for_100_mb_more() -> None:
    floor = DiskFloor(10 * MB)
    readings = [10 * MB - 1, 110 * MB - 1, 110 * MB]
    assert [floor.short({HERE: size}) for size in readings] == [HERE, HERE, None]


def test_each_disk_has_its_floor_and_the_first_short_is_named() -> None:
    floor = DiskFloor(GB)
    assert floor.short({HERE: 5 * GB, THERE: GB - 1}) == THERE
    # The other disk was never short: it is enough that it has the floor.
    assert floor.short({HERE: GB, THERE: GB}) == THERE
    assert floor.short({HERE: 0, THERE: GB}) == HERE
    assert floor.short({HERE: 5 * GB, THERE: GB}) == THERE
    assert floor.short({HERE: GB + GB // 10, THERE: GB + GB // 10}) is None


@given(st.integers(1, 10**13), st.lists(st.integers(0, 10**13), min_size=1))
def test_it_never_changes_its_mind_within_the_tenth(size: int, readings: list[int]) -> None:
    floor = DiskFloor(size)
    before = None
    for free in readings:
        now = floor.short({HERE: free})
        if size <= free < floor.enough:
            assert now == before
        else:
            assert now == (HERE if free < size else None)
        before = now


def test_what_is_free_is_what_one_who_is_not_root_may_write(tmp_path: Path) -> None:
    """As df shows, give or take the writes of other processes."""
    disk = os.statvfs(tmp_path)
    guard = DiskGuard(1, lambda: [tmp_path], pytest.fail)
    guard.look()
    assert abs(guard.free_bytes[tmp_path] - disk.f_bavail * disk.f_frsize) < GB
    with pytest.raises(FileNotFoundError):
        DiskGuard(1, lambda: [tmp_path / "none"], pytest.fail).look()


# --- the guard and the job ---


def job_in(folder: Path, **settings: Any) -> Job:
    ours = {name: value for name, value in vars(defaults).items() if name.startswith("KROWL_")}
    given = {"KROWL_CONTACT": CONTACT, "JOBDIR": str(folder / "job"), **settings}
    return Job(Settings({**ours, **given}))


def queue(job: Job, url: str) -> None:
    assert job.frontier.add([Candidate("a.test", None, Entry(url, 0))]) == 1


def test_job_is_full_while_a_disk_is_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as there are pages to fetch."""

    async def main() -> None:
        warc = tmp_path / "warc"
        # No guard of its own: it would read the real disk.
        job = job_in(tmp_path, KROWL_DISK_FLOOR=0, KROWL_WARC_DIR=str(warc))
        free = {warc: 9 * GB, tmp_path / "job": 9 * GB}
        guard = job.guard = DiskGuard(2 * GB, lambda: free, job.fail, free.__getitem__)
        queue(job, "http://a.test/1")
        guard.look()
        assert job.full is None
        for short in free:
            free[short] = 1999 * MB
            guard.look()
            assert job.full == short
            free[short] = 2100 * MB
            guard.look()
            assert job.full == short
            free[short] = 2200 * MB
            guard.look()
            assert job.full is None
        free[warc] = 0
        guard.look()
        # A leased page may still yield links. After its acknowledgement nothing is left.
        host = job.frontier.schedule.pop()
        assert host is not None
        lease = job.frontier.queues.pop(host)
        assert lease is not None
        assert job.full == warc
        job.frontier.acknowledge(lease)
        await job.commits.commit()
        assert job.full is None
        await job.close()
        assert job.failure is None

    asyncio.run(main())
    logged = [record.getMessage() for record in caplog.records if "KROWL_DISK_FLOOR" in record.msg]
    assert logged == [
        f"{size} MB are free for {tmp_path / folder}, less than KROWL_DISK_FLOOR: nothing more is"
        " fetched until it is 2200 MB. Make room, or start again with a lower floor"
        for size, folder in ((1999, "warc"), (1999, "job"), (0, "warc"))
    ]


def broken(folder: Path) -> int:
    raise OSError(5, "Input/output error")


def test_a_disk_that_cannot_be_asked_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with pytest.raises(JobError, match="Input/output error"):
            job_in(tmp_path)

    monkeypatch.setattr(disk_guard.shutil, "disk_usage", broken)
    asyncio.run(main())


def test_a_disk_that_can_be_asked_no_more_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_guard, "_INTERVAL", 0.001)

    async def main() -> None:
        job, failed = job_in(tmp_path), asyncio.Event()
        monkeypatch.setattr(job.guard, "_free", broken)
        run(job, on_failure=lambda _: failed.set())
        await asyncio.wait_for(failed.wait(), 30)
        assert isinstance(job.failure, OSError)
        await job.close()

    asyncio.run(main())


def run(job: Job, on_failure: Callable[[Exception], None]) -> None:
    job.run(on_failure=on_failure, on_stop=str, on_room=lambda: None, is_ending=lambda: False)


def test_there_is_no_guard_without_a_floor(tmp_path: Path) -> None:
    async def main() -> None:
        for floor in (0, 1):
            job = job_in(tmp_path, KROWL_DISK_FLOOR=floor)
            assert (job.guard is None) == (floor == 0)
            await job.close()

    asyncio.run(main())


# --- whole crawls ---


def test_crawl_below_the_floor_asks_nobody(
    tmp_path: Path,
) -> None:
    """It keeps its queue for the next start."""
    with SimulatedWeb(graph=GRAPH) as web:
        seeds = web.seeds()
        settings = {"KROWL_DISK_FLOOR": NEVER, "KROWL_STATUS_INTERVAL": 0.3}
        script = interrupted_when(lambda: status_lines(crawl) >= 3)
        crawl = crawl_of(web, tmp_path, settings=settings, script=script)
        crawl.run()
        assert web.log() == []
        assert crawl.stats.get("downloader/request_count", 0) == 0
        assert crawl.stats["finish_reason"] == "shutdown"
        assert crawl.stats["krowl/disk/pauses_count"] == 1
        warc = crawl.jobdir / "warc"
        free, enough = re.findall(
            rf"(\d+) MB are free for {re.escape(str(warc))}, less than KROWL_DISK_FLOOR: nothing"
            r" more is fetched until it is (\d+) MB\. Make room, or start again with a lower floor",
            crawl.log,
        )[0]
        assert abs(int(free) * MB - shutil.disk_usage(tmp_path).free) < GB
        assert int(enough) == NEVER // MB * 11 // 10
        assert crawl.log.count("KROWL_DISK_FLOOR") == 1
        assert f"| paused: no room in {warc}" in crawl.log
        assert "Traceback" not in crawl.log
        view = frontier_view(crawl.jobdir)
        assert (view["queued"], view["done"], view["dropped"]) == (len(seeds), 0, {})
        again = crawl_of(web, tmp_path).run()
        assert reachable(web.graph, seeds).differences(web.log()) == []
        assert_archived(again.jobdir, web.log())
        assert frontier_view(again.jobdir)["queued"] == 0


def test_a_crawl_without_a_queue_ends_below_the_floor(tmp_path: Path) -> None:
    with SimulatedWeb(graph=GRAPH) as web:
        crawl_of(web, tmp_path).run()
        fetched = len(web.log())
        again = crawl_of(web, tmp_path, settings={"KROWL_DISK_FLOOR": NEVER}).run()
        assert len(web.log()) == fetched
        assert again.stats["finish_reason"] == "finished"
        assert "KROWL_DISK_FLOOR" in again.log


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 300 * MB)
    if not disk.mounted:
        disk.close()
        pytest.skip("no user namespaces: the tests above show the pause and its end by a restart")
    yield disk
    disk.close()


def crawl_on(disk: SmallDisk, web: SimulatedWeb, folder: Path, script: Script | None) -> Crawl:
    return SimulatedCrawl(
        disk.outside / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", web.seeds())},
        settings={"KROWL_DISK_FLOOR": 100 * MB, "KROWL_STATUS_INTERVAL": 0.3},
        log_folder=folder,
        script=script,
    )


def take_room(disk: SmallDisk, web: SimulatedWeb, log: Callable[[], str]) -> Script:
    """Fill the disk of a crawl, and wait until its pages in flight are done."""
    yield lambda: len(pages(web.log())) > 5
    with (disk.outside / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, 220 * MB)
    yield lambda: bool(last := last_paused(log())) and " in flight " not in last


def last_paused(log: str) -> str:
    """Return the last status line of a paused crawl."""
    lines = [line for line in log.splitlines() if "| paused: no room in " in line]
    return lines[-1] if lines else ""


def test_disk_filled_by_others_pauses_until_there_is_room(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    with SimulatedWeb(graph=GRAPH) as web:

        def pause_and_make_room() -> Script:
            yield from take_room(small_disk, web, lambda: crawl.log)
            fetched, lines = web.log(), status_lines(crawl)
            # Longer than the commit interval: pages count as done after the commit.
            yield lambda: status_lines(crawl) >= lines + 8
            assert len(web.log()) == len(fetched)
            # All pages are written and counted: the disk is not full yet.
            done = re.findall(r"(\d+) pages \| .* paused: no room", crawl.log)[-1]
            assert int(done) == sum(not is_redirect(entry) for entry in pages(fetched))
            small_disk.make_room()

        crawl = crawl_on(small_disk, web, tmp_path, pause_and_make_room())
        crawl.run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert_archived(crawl.jobdir, web.log())
        assert crawl.stats["krowl/disk/pauses_count"] == 1
        assert crawl.stats["finish_reason"] == "finished"
        assert crawl.log.count("KROWL_DISK_FLOOR") == 1
        assert crawl.log.count(" again: the crawl goes on") == 1
        assert "Traceback" not in crawl.log


def test_crawl_stopped_below_the_floor_ends_in_order(tmp_path: Path, small_disk: SmallDisk) -> None:
    with SimulatedWeb(graph=GRAPH) as web:

        def pause_and_stop() -> Script:
            yield from take_room(small_disk, web, lambda: crawl.log)
            interrupt()

        crawl = crawl_on(small_disk, web, tmp_path, pause_and_stop())
        crawl.run()
        fetched = web.log()
        assert_archived(crawl.jobdir, fetched)
        assert done_in(frontier_view(crawl.jobdir)) == len(pages(fetched))
        small_disk.make_room()
        crawl_on(small_disk, web, tmp_path, None).run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
