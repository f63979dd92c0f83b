"""A full disk pauses the archive and ends the frontier: nothing is lost either way."""

from __future__ import annotations

import base64
import random
import re
import resource
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from resource import RLIM_INFINITY
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.tools.check import check_folder
from krowlspider.crawl.folder import JobFolder
from tests.crawling import Crawl, frontier_view, write_seeds
from tests.mockweb import MockWeb
from tests.test_crawl import assert_archived, crawl_of, page, pages, stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROBOTS = page("/robots.txt", "", status=404)
FAST = {"KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0, "KROWL_STATUS_INTERVAL": 0.3}
# The most bytes that a file of the crawl may have: less than what a whole crawl writes, more than
# its own log.
LIMIT = 200_000
PAGES = 30
FILLER = "x" * 500
LINKS = 600


def noisy() -> list[dict[str, Any]]:
    """Pages that no compression makes smaller: there is no room for their records."""
    links = "".join(f"<a href=/{number}>x</a>" for number in range(PAGES))
    noise = [random.Random(number).randbytes(30_000) for number in range(PAGES)]
    leaves = [
        # Slow enough that the writer is not outrun.
        {"path": f"/{number}", "body_base64": base64.b64encode(body).decode(), "latency": 0.05}
        for number, body in enumerate(noise)
    ]
    return [ROBOTS, page("/", links), *leaves]


def linking() -> list[dict[str, Any]]:
    """A page that is smaller in the archive than its links are in the frontier: there is no room
    for those."""
    links = "".join(f"<a href=/{FILLER}{number}>x</a>" for number in range(LINKS))
    return [ROBOTS, page("/", links), page("^/x", "leaf")]


NOISY = {"/", *(f"/{number}" for number in range(PAGES))}
LINKING = {"/", *(f"/{FILLER}{number}" for number in range(LINKS))}


def paused_crawl(web: MockWeb, folder: Path, hosts: Sequence[str] = ("a.test",)) -> Crawl:
    """A crawl in which the kernel lets no file grow any more, as on a full disk, and which has said
    so."""
    prefix = ["prlimit", f"--fsize={LIMIT}:unlimited"]
    seeds = [web.url(host) for host in hosts]
    crawl = crawl_of(web, folder, seeds, settings=FAST, prefix=prefix).start()
    crawl.wait_until(lambda: f"Paused: no room in {crawl.jobdir / 'warc'}" in crawl.log)
    crawl.wait_until(lambda: status_lines(crawl) >= 2)
    return crawl


def status_lines(crawl: Crawl) -> int:
    return crawl.log.count("| paused: no room in ")


def make_room(crawl: Crawl) -> None:
    resource.prlimit(crawl.process.pid, resource.RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))


def test_a_full_archive_pauses_the_crawl_until_there_is_room(tmp_path: Path) -> None:
    with MockWeb(spec=noisy()) as web:
        crawl = paused_crawl(web, tmp_path)
        fetched, lines = len(web.log()), status_lines(crawl)
        crawl.wait_until(lambda: status_lines(crawl) >= lines + 2)
        assert len(web.log()) == fetched < len(NOISY)
        make_room(crawl)
        crawl.wait()
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


def assert_goes_on(web: MockWeb, crawl: Crawl, folder: Path, paths: set[str]) -> None:
    """The next crawl in the folder has all pages."""
    crawl_of(web, folder, [web.url("a.test")], settings=FAST).run()
    assert {entry.path for entry in pages(web.log())} == paths
    view = frontier_view(crawl.jobdir)
    assert (view["done"], view["queued"]) == (len(paths), 0)
    assert check_folder(crawl.jobdir / "warc").problem_count == 0
    assert {url for url, _ in stored(crawl.jobdir)} >= {web.url("a.test", path) for path in paths}


def test_a_full_frontier_ends_the_crawl_with_code_3(tmp_path: Path) -> None:
    """Its last line says what to do, and the next crawl misses nothing."""
    with MockWeb(spec=linking()) as web:
        prefix = ["prlimit", f"--fsize={LIMIT}:unlimited"]
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST, prefix=prefix)
        crawl.run(code=3)
        assert crawl.log.splitlines()[-1] == (
            "krowlspider: the crawl could not be kept on disk: no room:"
            f" make some on the disk of {crawl.jobdir / 'frontier'} and start again"
        )
        assert crawl.stats["finish_reason"] == "storage_error"
        assert crawl.stats.get("krowl/frontier/done_count", 0) == 0
        assert_goes_on(web, crawl, tmp_path, LINKING)


def test_a_crawl_killed_while_it_is_paused_misses_nothing(tmp_path: Path) -> None:
    with MockWeb(spec=noisy()) as web:
        crawl = paused_crawl(web, tmp_path)
        crawl.kill()
        # What was in flight was fetched for nothing.
        assert_goes_on(web, crawl, tmp_path, NOISY)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_crawl_stopped_while_it_is_paused_ends_with_code_3_and_the_next_goes_on(
    tmp_path: Path, stop: signal.Signals
) -> None:
    with MockWeb(spec=noisy()) as web:
        crawl = paused_crawl(web, tmp_path)
        started = time.monotonic()
        crawl.process.send_signal(stop)
        crawl.wait(code=3)
        assert time.monotonic() - started < 10
        assert "krowlspider: the crawl could not be kept on disk" in crawl.log.splitlines()[-1]
        assert frontier_view(crawl.jobdir)["done"] < len(NOISY)
        assert_goes_on(web, crawl, tmp_path, NOISY)


def test_what_could_not_be_archived_when_a_paused_crawl_ends_is_told_once_and_fetched_again(
    tmp_path: Path,
) -> None:
    hosts = [f"{letter}.test" for letter in "abcdef"]
    paths = ["/", *(f"/{number}" for number in range(PAGES))]
    with MockWeb(spec=noisy()) as web:
        crawl = paused_crawl(web, tmp_path, hosts)
        crawl.process.send_signal(signal.SIGINT)
        crawl.wait(code=3)
        assert crawl.stats["krowl/archive/failed_count"] > 1
        assert crawl.log.count("A capture was not archived: ") == 1
        assert "Traceback" not in crawl.log
        Crawl(crawl.jobdir, settings=FAST).run()
        everything = {web.url(host, path) for host in hosts for path in paths}
        assert {url for url, _ in stored(crawl.jobdir)} >= everything
        view = frontier_view(crawl.jobdir)
        assert (view["done"], view["queued"]) == (len(everything), 0)


def test_a_frontier_for_which_there_is_no_room_to_open_it_is_a_full_disk_and_no_mistake(
    tmp_path: Path,
) -> None:
    with MockWeb(spec=linking()) as web:
        seeds = [web.url("a.test")]
        crawl = crawl_of(web, tmp_path, seeds, settings={"KROWL_DELAY_MIN": 0.5}).start()
        crawl.wait_until(lambda: len(pages(web.log())) >= 2)
        crawl.kill()
        # LevelDB writes the log it finds as a table.
        again = crawl_of(web, tmp_path, seeds, prefix=["prlimit", f"--fsize={LIMIT}"]).run(code=3)
        frontier = crawl.jobdir / "frontier"
        assert again.log.splitlines()[-1].endswith(
            f"no room to open it: make some on the disk of {frontier}"
        )
        assert "--repair" not in again.log
        assert frontier_view(crawl.jobdir)["queued"] >= LINKS - 2


# --- the figures of a running crawl ---


def test_figures_are_written_over_those_before_in_a_place_that_is_theirs(tmp_path: Path) -> None:
    """So that they can be on a full disk, and whoever looks meanwhile finds whole ones."""
    folder, path = JobFolder(tmp_path), tmp_path / "status.json"
    folder.write_status({"done": 1, "time": 1e9})
    first = path.stat()
    # Figures of more bytes would need no other place.
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


def test_a_filter_that_finds_no_room_at_the_end_costs_the_next_start_time_and_nothing_else(
    tmp_path: Path,
) -> None:
    """The filter is by far the largest file of a small crawl."""
    spec = [ROBOTS, page("/", "<a href=/a>x</a>"), page("/a", "leaf")]
    with MockWeb(spec=spec) as web:
        prefix = ["prlimit", f"--fsize={LIMIT}"]
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST, prefix=prefix).run()
        assert "The filter of the seen set is not saved" in crawl.log
        assert list(crawl.jobdir.glob("seen*")) == []
        fetched = len(web.log())
        again = crawl_of(web, tmp_path, [web.url("a.test")], settings=FAST).run()
        assert again.stats["dupefilter/filtered"] == 1
        assert len(web.log()) == fetched
        assert (crawl.jobdir / "seen").exists()


# --- a disk that is really full ---


class SmallDisk:
    """A file system in memory of ``size`` bytes, which the namespace of one process holds."""

    def __init__(self, folder: Path, size: int):
        folder.mkdir()
        script = f'mount -t tmpfs -o size={size} tmpfs "$0" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self.mounted = self._holder.stdout.readline() == b"mounted\n"
        pid = str(self._holder.pid)
        self.prefix = ["nsenter", "--target", pid, "--user", "--preserve-credentials", "--mount"]
        self.prefix += [f"--wd={Path.cwd()}"]
        # The folder as those see it who are not in the namespace.
        self.outside = Path(f"/proc/{pid}/root{folder}")
        self._ballast = self.outside / "ballast"

    def fill(self) -> None:
        """Leave no byte, whatever the crawl writes meanwhile."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def make_room(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        self._holder.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 100_000_000)
    if not disk.mounted:
        disk.close()
        pytest.skip("no user namespaces: the tests above show it with a limit to the size of files")
    yield disk
    disk.close()


def crawl_on(disk: SmallDisk, web: MockWeb, folder: Path) -> Crawl:
    return Crawl(
        folder / "disk" / "job",
        arguments={"seeds": write_seeds(folder / "seeds.txt", [web.url("a.test")])},
        settings={**FAST, "KROWL_DELAY_MIN": 0.01, "KROWL_DISK_FLOOR": 0},
        log_folder=folder,
        prefix=disk.prefix,
    )


def fill(disk: SmallDisk, crawl: Crawl) -> None:
    """Leave no byte on a disk, while the crawl may not come to its end."""
    crawl.process.send_signal(signal.SIGSTOP)
    disk.fill()
    crawl.process.send_signal(signal.SIGCONT)


def assert_complete(disk: SmallDisk, web: MockWeb, paths: set[str]) -> None:
    assert {entry.path for entry in pages(web.log())} == paths
    view = frontier_view(disk.outside / "job")
    assert (view["done"], view["queued"]) == (len(paths), 0)
    assert {url for url, _ in stored(disk.outside / "job")} >= {
        web.url("a.test", path) for path in paths
    }
    assert check_folder(disk.outside / "job" / "warc").problem_count == 0


@pytest.mark.slow
def test_no_byte_left_for_the_frontier_ends_the_crawl_with_code_3(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    """The disk fills while a page of many links is on its way."""
    robots, root, leaves = linking()
    folder = JobFolder(small_disk.outside / "job")

    def is_on_its_way() -> bool:
        status = folder.read_status() or {"time": 0}
        return float(str(status["time"])) > begun and status["in_flight"] == 1

    with MockWeb(spec=[robots, {**root, "latency": 5.0}, leaves]) as web:
        crawl = crawl_on(small_disk, web, tmp_path).start()
        crawl.wait_until(lambda: len(web.log()) == 1)
        begun = time.time()
        crawl.wait_until(is_on_its_way)
        fill(small_disk, crawl)
        crawl.wait(code=3)
        assert "krowlspider: the crawl could not be kept on disk: no room: " in crawl.log
        small_disk.make_room()
        crawl_on(small_disk, web, tmp_path).run()
        assert_complete(small_disk, web, LINKING)


@pytest.mark.slow
def test_a_crawl_whose_disk_has_no_byte_left_misses_nothing(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    """It pauses for its archive, or ends for its frontier, whichever writes first."""
    with MockWeb(spec=noisy()) as web:
        crawl = crawl_on(small_disk, web, tmp_path).start()
        crawl.wait_until(lambda: len(web.log()) > 5)
        fill(small_disk, crawl)
        crawl.wait_until(lambda: status_lines(crawl) >= 2 or "The crawl stops" in crawl.log)
        has_ended = "The crawl stops" in crawl.log
        if has_ended:
            crawl.wait(code=3)
        else:
            fetched, lines = len(web.log()), status_lines(crawl)
            crawl.wait_until(lambda: status_lines(crawl) >= lines + 2)
            assert len(web.log()) == fetched
            # Its figures are as fresh as its log.
            done = re.findall(r"(\d+) pages done .* paused: no room", crawl.log)[-1]
            status = JobFolder(small_disk.outside / "job").read_status()
            assert status is not None
            assert (status["done"], status["in_flight"]) == (int(done), 0)
            assert time.time() - float(str(status["time"])) < 5
        small_disk.make_room()
        if has_ended:
            crawl_on(small_disk, web, tmp_path).run()
        else:
            crawl.wait()
        assert_complete(small_disk, web, NOISY)
