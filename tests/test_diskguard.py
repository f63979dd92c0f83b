"""Below KROWL_DISK_FLOOR the crawl pauses, with all that it had begun on the disk, and goes on when
there is room."""

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
from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring import disk_guard
from krowlspider.crawl.monitoring.disk_guard import DiskFloor, DiskGuard, free_bytes
from krowlspider.errors import JobError
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.entry_queues import Candidate
from tests.crawling import Crawl, frontier_view, write_seeds
from tests.mockweb import MockWeb
from tests.mockweb.graph import Graph
from tests.mockweb.oracle import reachable
from tests.test_crawl import QUICK, assert_archived, crawl_of, pages
from tests.test_disk_full import SmallDisk, status_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MB = 10**6
GB = 10**9
HERE, THERE = Path("/here"), Path("/there")
GRAPH = Graph(hosts=8, pages=6, seed=7, features=QUICK)
# More than any disk has free.
NEVER = 10**18


# --- the decision ---


def test_a_disk_is_short_below_the_floor_and_until_a_tenth_more_is_free() -> None:
    floor = DiskFloor(2 * GB)
    readings = [2 * GB, 2 * GB - 1, 2 * GB, 2200 * MB - 1, 2200 * MB, 2 * GB, 0]
    said = [floor.short({HERE: size}) for size in readings]
    assert said == [None, HERE, HERE, HERE, None, None, HERE]


def test_a_small_floor_asks_for_100_mb_more() -> None:
    floor = DiskFloor(10 * MB)
    readings = [10 * MB - 1, 110 * MB - 1, 110 * MB]
    assert [floor.short({HERE: size}) for size in readings] == [HERE, HERE, None]


def test_each_disk_has_its_own_floor_and_the_first_that_is_short_is_named() -> None:
    floor = DiskFloor(GB)
    assert floor.short({HERE: 5 * GB, THERE: GB - 1}) == THERE
    # Nothing more is asked of the other, which was never short.
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
    """As df tells, but for what others write at the same time."""
    assert abs(free_bytes(tmp_path) - shutil.disk_usage(tmp_path).free) < GB
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "none")


# --- the guard and the job ---


def job_in(folder: Path, **settings: Any) -> Job:
    ours = {name: value for name, value in vars(defaults).items() if name.startswith("KROWL_")}
    given = {"KROWL_CONTACT": "you@example.org", "JOBDIR": str(folder / "job"), **settings}
    return Job(Settings({**ours, **given}))


def queue(job: Job, url: str) -> None:
    assert job.frontier.add([Candidate("a.test", None, Entry(url, 0))]) == 1


def test_the_job_is_full_while_a_disk_is_short_and_there_is_something_to_fetch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        warc = tmp_path / "warc"
        # Its own guard sees the real disk: there is none.
        job = job_in(tmp_path, KROWL_DISK_FLOOR=0, KROWL_WARC_DIR=str(warc))
        job.open()
        free = {warc: 9 * GB, tmp_path / "job": 9 * GB}
        guard = job._guard = DiskGuard(2 * GB, lambda: free, job.fail, free.__getitem__)
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
        # Leased, it may yet lead to others; acknowledged, it is all there was.
        host = job.frontier.schedule.pop()
        assert host is not None
        lease = job.frontier.queues.pop(host)
        assert lease is not None
        assert job.full == warc
        job.frontier.acknowledge(lease)
        await job.commit()
        assert job.full is None
        await job.close()
        assert job.failure is None

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if "KROWL_DISK_FLOOR" in record.msg]
    assert said == [
        f"{size} MB are free for {tmp_path / folder}, less than KROWL_DISK_FLOOR: nothing more is fetched until it is"
        " 2200 MB. Make room, or start again with a lower floor"
        for size, folder in ((1999, "warc"), (1999, "job"), (0, "warc"))
    ]


def broken(folder: Path) -> int:
    raise OSError(5, "Input/output error")


def test_a_disk_that_cannot_be_asked_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        job = job_in(tmp_path)
        monkeypatch.setattr(job._guard, "_free", broken)
        with pytest.raises(JobError, match="Input/output error"):
            job.open()

    asyncio.run(main())


def test_a_disk_that_can_be_asked_no_more_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_guard, "_INTERVAL", 0.001)

    async def main() -> None:
        job, failed = job_in(tmp_path), asyncio.Event()
        job.open()
        monkeypatch.setattr(job._guard, "_free", broken)
        run(job, on_failure=lambda _: failed.set())
        await asyncio.wait_for(failed.wait(), 30)
        assert isinstance(job.failure, OSError)
        await job.close()

    asyncio.run(main())


def run(job: Job, on_failure: Callable[[Exception], None]) -> None:
    job.run(on_failure=on_failure, on_room=lambda: None, is_ending=lambda: False)


def test_there_is_no_guard_without_a_floor(tmp_path: Path) -> None:
    assert job_in(tmp_path, KROWL_DISK_FLOOR=0)._guard is None
    assert job_in(tmp_path)._guard is not None


# --- whole crawls ---


def test_a_crawl_that_starts_below_the_floor_asks_nobody_and_keeps_its_queue(
    tmp_path: Path,
) -> None:
    with MockWeb(graph=GRAPH) as web:
        seeds = web.seeds()
        settings = {"KROWL_DISK_FLOOR": NEVER, "KROWL_STATUS_INTERVAL": 0.3}
        crawl = crawl_of(web, tmp_path, settings=settings).start()
        crawl.wait_until(lambda: status_lines(crawl) >= 3)
        crawl.interrupt()
        assert web.log() == []
        assert crawl.stats.get("downloader/request_count", 0) == 0
        assert crawl.stats["finish_reason"] == "shutdown"
        assert crawl.stats["krowl/disk/pauses_count"] == 1
        warc = crawl.jobdir / "warc"
        free, enough = re.findall(
            rf"(\d+) MB are free for {re.escape(str(warc))}, less than KROWL_DISK_FLOOR: nothing more is fetched"
            r" until it is (\d+) MB\. Make room, or start again with a lower floor",
            crawl.log,
        )[0]
        assert abs(int(free) * MB - free_bytes(tmp_path)) < GB
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
    with MockWeb(graph=GRAPH) as web:
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


def paused_crawl(web: MockWeb, folder: Path, disk: SmallDisk) -> Crawl:
    """A crawl that has paused because another has taken much of its disk, with what was in flight
    done."""
    crawl = Crawl(
        folder / "disk" / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", web.seeds())},
        settings={
            "KROWL_DISK_FLOOR": 100 * MB,
            "KROWL_DELAY_MIN": 0.2,
            "KROWL_STATUS_INTERVAL": 0.3,
        },
        log_folder=folder,
        prefix=disk.prefix,
    ).start()
    crawl.wait_until(lambda: len(pages(web.log())) > 5)
    with (disk.outside / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, 220 * MB)
    crawl.wait_until(lambda: " 0 in flight " in last_paused(crawl))
    return crawl


def last_paused(crawl: Crawl) -> str:
    """The last status line of a crawl that pauses."""
    lines = [line for line in crawl.log.splitlines() if "| paused: no room in " in line]
    return lines[-1] if lines else ""


def test_a_disk_that_others_fill_pauses_the_crawl_until_they_make_room(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    with MockWeb(graph=GRAPH) as web:
        crawl = paused_crawl(web, tmp_path, small_disk)
        fetched, lines = web.log(), status_lines(crawl)
        crawl.wait_until(lambda: status_lines(crawl) >= lines + 3)
        assert len(web.log()) == len(fetched)
        # All of it is written and counted: the disk is not full yet.
        done = re.findall(r"(\d+) pages done .* paused: no room", crawl.log)[-1]
        assert int(done) == len(pages(fetched))
        small_disk.make_room()
        crawl.wait()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
        assert_archived(small_disk.outside / "job", web.log())
        assert crawl.stats["krowl/disk/pauses_count"] == 1
        assert crawl.stats["finish_reason"] == "finished"
        assert crawl.log.count("KROWL_DISK_FLOOR") == 1
        assert crawl.log.count(" again: the crawl goes on") == 1
        assert "Traceback" not in crawl.log


def test_a_crawl_stopped_while_it_pauses_below_the_floor_ends_in_order(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    with MockWeb(graph=GRAPH) as web:
        crawl = paused_crawl(web, tmp_path, small_disk)
        crawl.interrupt()
        fetched = web.log()
        job = small_disk.outside / "job"
        assert_archived(job, fetched)
        assert frontier_view(job)["done"] == len(pages(fetched))
        small_disk.make_room()
        settings = {"KROWL_DISK_FLOOR": 100 * MB}
        Crawl(crawl.jobdir, settings=settings, log_folder=tmp_path, prefix=small_disk.prefix).run()
        assert reachable(web.graph, web.seeds()).differences(web.log()) == []
