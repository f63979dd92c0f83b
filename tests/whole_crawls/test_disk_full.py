"""A full disk pauses the archive and ends the frontier: nothing is lost either way."""

from __future__ import annotations

import base64
import random
import re
import resource
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.tools.check import check_folder
from krowlspider.job.folder import JobFolder
from tests.support.archived import assert_archived, stored
from tests.support.crawling import Crawl, frontier_view, write_seeds
from tests.support.crawls import crawl_of, page, pages, status_lines
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedWeb
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.support.simulated_loop import Script

ROBOTS = page("/robots.txt", "", status=404)
FAST = {"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0, "KROWL_STATUS_INTERVAL": 0.3}
# Most bytes of a file of the crawl: less than the archive of a whole crawl, more than its log.
LIMIT = 200_000
PAGES = 30
FILLER = "x" * 500
LINKS = 600


def noisy() -> list[dict[str, Any]]:
    """Pages that do not compress: there is no room for their records."""
    links = "".join(f"<a href=/{number}>x</a>" for number in range(PAGES))
    noise = [random.Random(number).randbytes(30_000) for number in range(PAGES)]
    leaves = [
        # Slow enough for the writer.
        {"path": f"/{number}", "body_base64": base64.b64encode(body).decode(), "latency": 0.05}
        for number, body in enumerate(noise)
    ]
    return [ROBOTS, page("/", links), *leaves]


def linking() -> list[dict[str, Any]]:
    """A page whose record fits, but whose links do not fit into the frontier."""
    links = "".join(f"<a href=/{FILLER}{number}>x</a>" for number in range(LINKS))
    return [ROBOTS, page("/", links), page("^/x", "leaf")]


NOISY = {"/", *(f"/{number}" for number in range(PAGES))}
LINKING = {"/", *(f"/{FILLER}{number}" for number in range(LINKS))}


@contextmanager
def files_limited(size: int) -> Iterator[Callable[[], None]]:
    """Limit the size of files, as on a full disk. Yield a function that makes room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def lift() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield lift
    finally:
        lift()


def is_paused(crawl: Crawl) -> bool:
    return f"Paused: no room in {crawl.jobdir / 'warc'}" in crawl.log and status_lines(crawl) >= 2


@pytest.mark.slow
def test_a_full_archive_pauses_the_crawl_until_there_is_room(tmp_path: Path) -> None:
    with SimulatedWeb(spec=noisy()) as web, files_limited(LIMIT) as make_room:

        def wait_and_make_room() -> Script:
            yield lambda: is_paused(crawl)
            fetched, lines = len(web.log()), status_lines(crawl)
            yield lambda: status_lines(crawl) >= lines + 2
            assert len(web.log()) == fetched < len(NOISY)
            make_room()

        script = wait_and_make_room()
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST, script=script)
        crawl.run()
        assert sorted(entry.path for entry in pages(web.log())) == sorted(NOISY)
        assert_archived(crawl.jobdir, web.log())
        assert len(crawl.items) == len(NOISY)
        assert crawl.stats["finish_reason"] == "finished"
        assert crawl.stats["krowl/frontier/done_count"] == len(NOISY)
        assert crawl.stats["krowl/disk/pauses_count"] == 1
        assert [line for line in crawl.complaints if "Paused" not in line] == []
        assert f"There is room in {crawl.jobdir / 'warc'} again" in crawl.log
        view = frontier_view(crawl.jobdir)
        assert (view["done"], view["queued"]) == (len(NOISY), 0)


def stopped_while_paused(
    web: SimulatedWeb, folder: Path, hosts: Sequence[str], stop: signal.Signals
) -> tuple[Crawl, float]:
    """Stop a crawl by a signal while it is paused. Return it, and the time of the signal."""
    stopped_at = 0.0

    def stop_it() -> Script:
        nonlocal stopped_at
        yield lambda: is_paused(crawl)
        stopped_at = clocks.now
        signal.raise_signal(stop)

    seeds = [web.url(host) for host in hosts]
    crawl = crawl_of(web, folder, seeds, settings=FAST, script=stop_it())
    with files_limited(LIMIT):
        crawl.run(code=3)
    return crawl, stopped_at


def assert_goes_on(web: SimulatedWeb, crawl: Crawl, folder: Path, paths: set[str]) -> None:
    """Assert that the next crawl in the folder gets all pages."""
    crawl_of(web, folder, [web.url("a.test")], settings=FAST).run()
    assert {entry.path for entry in pages(web.log())} == paths
    view = frontier_view(crawl.jobdir)
    assert (view["done"], view["queued"]) == (len(paths), 0)
    assert check_folder(crawl.jobdir / "warc").problem_count == 0
    assert {url for url, _ in stored(crawl.jobdir)} >= {web.url("a.test", path) for path in paths}


@pytest.mark.slow
def test_a_full_frontier_ends_the_crawl_with_code_3(tmp_path: Path) -> None:
    """Its last line says what to do, and the next crawl misses nothing."""
    with SimulatedWeb(spec=linking()) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST)
        with files_limited(LIMIT):
            crawl.run(code=3)
        assert crawl.log.splitlines()[-1] == (
            "krowlspider: the crawl could not be saved to disk: no room:"
            f" make some on the disk of {crawl.jobdir / 'frontier'} and start again"
        )
        assert crawl.stats["finish_reason"] == "storage_error"
        assert crawl.stats.get("krowl/frontier/done_count", 0) == 0
        assert_goes_on(web, crawl, tmp_path, LINKING)


def test_a_crawl_killed_while_it_is_paused_misses_nothing(tmp_path: Path) -> None:
    with SimulatedWeb(spec=noisy()) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST)
        assert isinstance(crawl, SimulatedCrawl)
        with files_limited(LIMIT):
            crawl.run_until_killed(web, lambda: is_paused(crawl), code=3)
        # Pages in flight were fetched in vain.
        assert_goes_on(web, crawl, tmp_path, NOISY)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_crawl_stopped_while_paused_ends_with_code_3(tmp_path: Path, stop: signal.Signals) -> None:
    """The next one continues."""
    with SimulatedWeb(spec=noisy()) as web:
        crawl, stopped_at = stopped_while_paused(web, tmp_path, ["a.test"], stop)
        assert clocks.now - stopped_at < 10
        assert "krowlspider: the crawl could not be saved to disk" in crawl.log.splitlines()[-1]
        assert frontier_view(crawl.jobdir)["done"] < len(NOISY)
        assert_goes_on(web, crawl, tmp_path, NOISY)


@pytest.mark.slow
def test_unarchived_pages_of_a_paused_crawl_are_fetched_again(
    tmp_path: Path,
) -> None:
    """The log says only once that they could not be archived."""
    hosts = [f"{letter}.test" for letter in "abcdef"]
    paths = ["/", *(f"/{number}" for number in range(PAGES))]
    with SimulatedWeb(spec=noisy()) as web:
        crawl, _ = stopped_while_paused(web, tmp_path, hosts, signal.SIGINT)
        assert crawl.stats["krowl/archive/failed_count"] > 1
        assert crawl.log.count("A capture was not archived: ") == 1
        assert "Traceback" not in crawl.log
        SimulatedCrawl(crawl.jobdir, settings=FAST).run()
        everything = {web.url(host, path) for host in hosts for path in paths}
        assert {url for url, _ in stored(crawl.jobdir)} >= everything
        view = frontier_view(crawl.jobdir)
        assert (view["done"], view["queued"]) == (len(everything), 0)


def test_no_room_to_open_the_frontier_is_a_full_disk(
    tmp_path: Path,
) -> None:
    """This is not damage: the error suggests no repair."""
    with SimulatedWeb(spec=linking()) as web:
        seeds = [web.url("a.test")]
        crawl = crawl_of(web, tmp_path, seeds)
        assert isinstance(crawl, SimulatedCrawl)
        crawl.run_until_killed(web, lambda: len(pages(web.log())) >= 2)
        # LevelDB writes the existing log as a table.
        with files_limited(LIMIT):
            again = crawl_of(web, tmp_path, seeds).run(code=3)
        frontier = crawl.jobdir / "frontier"
        assert again.log.splitlines()[-1].endswith(
            f"no room to open it: make some on the disk of {frontier}"
        )
        assert "--repair" not in again.log
        assert frontier_view(crawl.jobdir)["queued"] >= LINKS - 2


# --- the figures of a running crawl ---


def test_status_figures_are_written_in_place(tmp_path: Path) -> None:
    """So that they can be written on a full disk, and readers see complete ones."""
    folder, path = JobFolder(tmp_path), tmp_path / "status.json"
    folder.write_status({"done": 1, "time": 1e9})
    first = path.stat()
    # Longer figures are written at the same place.
    folder.write_status({"done": 10**12, "time": 1e9})
    assert folder.read_status() == {"done": 10**12, "time": 1e9}
    folder.write_status({"done": 2})
    assert folder.read_status() == {"done": 2}
    last = path.stat()
    assert (last.st_ino, last.st_size, last.st_blocks) == (first.st_ino, 4096, first.st_blocks)
    assert first.st_blocks * 512 >= 4096


def test_figures_that_are_half_written_are_none(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    for torn in (b"", bytes(4096), b'{"done": 1, "ti' + bytes(4081)):
        (tmp_path / "status.json").write_bytes(torn)
        assert folder.read_status() is None


def test_filter_without_room_only_costs_the_next_start_time(
    tmp_path: Path,
) -> None:
    """The filter is by far the largest file of a small crawl."""
    spec = [ROBOTS, page("/", "<a href=/a>x</a>"), page("/a", "leaf")]
    with SimulatedWeb(spec=spec) as web:
        with files_limited(LIMIT):
            crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST).run()
        assert "The seen filter is not saved" in crawl.log
        assert list(crawl.jobdir.glob("seen*")) == []
        fetched = len(web.log())
        again = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST).run()
        assert again.stats["dupefilter/filtered"] == 1
        assert len(web.log()) == fetched
        assert (crawl.jobdir / "seen").exists()


# --- a disk that is really full ---


def crawl_on(
    disk: SmallDisk, web: SimulatedWeb, folder: Path, script: Script | None = None
) -> Crawl:
    return SimulatedCrawl(
        disk.outside / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", [web.url("a.test")])},
        settings={**FAST, "KROWL_DELAY_MIN": 0.01, "KROWL_DISK_FLOOR": 0},
        log_folder=folder,
        script=script,
    )


def assert_complete(disk: SmallDisk, web: SimulatedWeb, paths: set[str]) -> None:
    assert {entry.path for entry in pages(web.log())} == paths
    view = frontier_view(disk.outside / "job")
    assert (view["done"], view["queued"]) == (len(paths), 0)
    assert {url for url, _ in stored(disk.outside / "job")} >= {
        web.url("a.test", path) for path in paths
    }
    assert check_folder(disk.outside / "job" / "warc").problem_count == 0


@pytest.mark.slow
def test_disk_full_for_the_frontier_ends_with_code_3(tmp_path: Path, small_disk: SmallDisk) -> None:
    """The disk fills while a page with many links is in flight."""
    robots, root, leaves = linking()
    folder = JobFolder(small_disk.outside / "job")

    def fill() -> Script:
        yield lambda: len(web.log()) == 1
        begun = time.time()

        def is_on_its_way() -> bool:
            status = folder.read_status() or {"time": 0}
            return float(str(status["time"])) > begun and status["in_flight"] == 1

        yield is_on_its_way
        small_disk.fill()

    with SimulatedWeb(spec=[robots, {**root, "latency": 5.0}, leaves]) as web:
        crawl = crawl_on(small_disk, web, tmp_path, fill()).run(code=3)
        assert "krowlspider: the crawl could not be saved to disk: no room: " in crawl.log
        small_disk.make_room()
        crawl_on(small_disk, web, tmp_path).run()
        assert_complete(small_disk, web, LINKING)


def test_crawl_on_a_full_disk_pauses_until_there_is_room(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    """The archive is written first. The frontier's next entry is small and still fits."""
    folder = JobFolder(small_disk.outside / "job")

    def fill_and_make_room() -> Script:
        yield lambda: len(web.log()) > 5
        small_disk.fill()
        yield lambda: status_lines(crawl) >= 2
        fetched, lines = len(web.log()), status_lines(crawl)
        yield lambda: status_lines(crawl) >= lines + 2
        assert len(web.log()) == fetched
        # Its status figures are as recent as its log.
        done = re.findall(r"(\d+) pages \| .* paused: no room", crawl.log)[-1]
        status = folder.read_status()
        assert status is not None
        assert (status["done"], status["in_flight"]) == (int(done), 0)
        assert time.time() - float(str(status["time"])) < 5
        small_disk.make_room()

    with SimulatedWeb(spec=noisy()) as web:
        crawl = crawl_on(small_disk, web, tmp_path, fill_and_make_room())
        crawl.run()
        assert_complete(small_disk, web, NOISY)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 100_000_000)
    if not disk.mounted:
        disk.close()
        pytest.skip("no user namespaces: the tests above show it with a limit to the size of files")
    yield disk
    disk.close()
