from __future__ import annotations

import asyncio
import random
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import uvloop

from krowlspider.archive.disk import LOCK, ArchiveError, CaptureRefused
from krowlspider.archive.reading import Location, read_record
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.tools.mend import MendReport, mend_folder
from krowlspider.archive.write import writer as writer_module
from krowlspider.archive.write.writer import WarcWriter
from tests.archive.captures import Odd, capture, finished, mapped, options, series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_BYTES = random.Random(1).randbytes(50_000)
NOISE = Odd(b"HTTP/1.1 200 OK\r\n\r\n" + _BYTES, _BYTES)
PAGE = Odd(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 40_000, b"x" * 40_000)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    """Return a runner of each kind of event loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    return asyncio.Runner(loop_factory=factory)


def writer(
    directory: Path, *, max_size: int = 10**9, queue_bytes: int = 10**9, prefix: str = "test"
) -> WarcWriter:
    return WarcWriter(directory, options(prefix=prefix, max_size=max_size), queue_bytes=queue_bytes)


def opened(directory: Path, *, max_size: int = 10**9, queue_bytes: int = 10**9) -> WarcWriter:
    files = writer(directory, max_size=max_size, queue_bytes=queue_bytes)
    files.open(asyncio.get_running_loop())
    return files


def urls_of(directory: Path, locations: list[Location]) -> list[str]:
    """Return the target URIs of the records at ``locations``."""
    return [
        read_record(directory / each.file, each.offset)[0]["WARC-Target-URI"] for each in locations
    ]


def test_future_returns_where_its_capture_lies(tmp_path: Path, runner: asyncio.Runner) -> None:
    async def main() -> list[Location]:
        files = opened(tmp_path, max_size=20_000)
        locations = await asyncio.gather(*(files.write(capture(n)) for n in range(300)))
        await files.close()
        return locations

    with runner:
        locations = runner.run(main())
    assert len(finished(tmp_path)) > 1
    assert urls_of(tmp_path, locations) == [f"http://example.org/page/{n}" for n in range(300)]
    assert check_folder(tmp_path).problem_count == 0


def copied(source: Path, target: Path, names: set[str]) -> Path:
    """Copy files that the writer continues, and may finish at the same time."""
    target.mkdir()
    for name in names:
        try:
            (target / f"{name}.open").write_bytes((source / f"{name}.open").read_bytes())
        except FileNotFoundError:
            (target / name).write_bytes((source / name).read_bytes())
    return target


def test_after_sync_every_earlier_capture_is_on_the_disk(
    tmp_path: Path, runner: asyncio.Runner
) -> None:
    """The thread continues with captures that were handed in after the sync."""
    work = tmp_path / "work"

    async def main() -> None:
        files = opened(work, max_size=10_000)
        written: list[asyncio.Future[Location]] = []
        for turn in range(0, 12, 4):
            written.extend(files.write(capture(len(written))) for _ in range(turn * 7))
            before = len(written)
            syncing = asyncio.create_task(files.sync())
            await asyncio.sleep(0)
            written.extend(files.write(capture(len(written))) for _ in range(150))
            await syncing
            locations = [future.result() for future in written[:before]]
            copy = copied(work, tmp_path / f"copy-{turn}", {each.file for each in locations})
            mend_folder(copy)
            assert urls_of(copy, locations) == [
                f"http://example.org/page/{n}" for n in range(before)
            ]
            assert check_folder(copy).problem_count == 0
        await files.close()

    with runner:
        runner.run(main())
    assert len(finished(work)) > 5


async def test_syncs_at_the_same_time_all_return(tmp_path: Path) -> None:
    files = opened(tmp_path)
    await asyncio.gather(*(files.sync() for _ in range(5)))
    written = files.write(capture())
    await asyncio.gather(*(files.sync() for _ in range(200)))
    assert written.done()
    await files.close()


async def test_writer_is_full_until_waiting_captures_are_written(tmp_path: Path) -> None:
    page = capture(odd=PAGE)
    files = opened(tmp_path, queue_bytes=3 * page.size)
    # The loop does not run between these, so nothing can be reported as written.
    written = [files.write(page), files.write(page)]
    assert not files.full
    written.append(files.write(page))
    assert files.full
    await asyncio.gather(*written)
    assert not files.full
    await files.close()


def test_responses_in_files_hold_up_no_other_capture(tmp_path: Path) -> None:
    async def main() -> tuple[int, list[int]]:
        files = opened(tmp_path, queue_bytes=2 * len(PAGE.response))

        async def large(number: int) -> Location:
            await files.room()
            handed_in.append(number)
            written = files.write(mapped(PAGE, number))
            assert not files.full
            return await written

        handed_in: list[int] = []
        tasks = [asyncio.create_task(large(number)) for number in range(6)]
        await asyncio.sleep(0)
        # One of them is more than a quarter of the queue, so the others wait.
        assert handed_in == [0]
        small = files.write(capture(9))
        tasks[2].cancel()
        async with asyncio.timeout(30):
            places = await asyncio.gather(*tasks[:2], *tasks[3:])
            await files.sync()
        assert handed_in == [0, 1, 3, 4, 5]
        await files.close()
        return small.result().offset, [place.offset for place in places]

    small, large = asyncio.run(main())
    assert sorted([*large, small]) == [large[0], small, *large[1:]]


async def test_captures_are_handed_over_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(tmp_path)
    await asyncio.wait_for(files.write(capture(0)), 10)
    monkeypatch.setattr(writer_module, "_WAIT", 3600.0)
    most = writer_module._AT_ONCE
    few = [files.write(capture(n)) for n in range(1, most)]
    assert (await asyncio.wait(few, timeout=0.3))[0] == set()
    await asyncio.wait_for(asyncio.gather(*few, files.write(capture(most))), 10)
    last = files.write(capture(most + 1))
    await asyncio.wait_for(files.sync(), 10)
    assert last.done()
    await files.close()
    assert check_folder(tmp_path).problem_count == 0


async def test_close_writes_waiting_captures_and_finishes_the_file(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for number in range(200):
        files.write(capture(number))
    await files.close()
    assert files.stats.records == 401
    report = check_folder(tmp_path)
    assert (report.files, report.open_files) == (1, 0)
    assert (report.records, report.problem_count) == (401, 0)


async def test_close_cancelled_while_it_waits_can_be_awaited_again(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for number in range(100):
        files.write(capture(number))
    closing = asyncio.create_task(files.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await files.close()
    assert check_folder(tmp_path).records == 201


async def test_writer_that_is_not_open_takes_nothing_and_can_be_closed(tmp_path: Path) -> None:
    never, files = writer(tmp_path), opened(tmp_path)
    await asyncio.gather(never.close(), files.close(), files.close(), files.sync())
    await files.close()
    for each in (never, files):
        with pytest.raises(ArchiveError, match="not open"):
            each.write(capture())
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


async def test_cancelled_and_refused_captures_harm_no_other(tmp_path: Path) -> None:
    """That of a cancelled future is written."""

    files = opened(tmp_path)
    bad = capture()
    bad.url = "http://a/\r\nX: y"
    cancelled, first, refused, second = map(files.write, (*map(capture, (1, 2)), bad, capture(3)))
    cancelled.cancel()
    with pytest.raises(CaptureRefused):
        await refused
    places = [await first, await second]
    await files.close()
    assert urls_of(tmp_path, places) == [f"http://example.org/page/{n}" for n in (2, 3)]
    report = check_folder(tmp_path)
    assert (report.records, report.problem_count) == (7, 0)


def test_open_makes_the_folder_and_mends_open_files(tmp_path: Path) -> None:
    async def main(directory: Path) -> MendReport:
        files = writer(directory)
        report = files.open(asyncio.get_running_loop())
        await files.close()
        return report

    directory = tmp_path / "a" / "b"
    assert asyncio.run(main(directory)) == MendReport(files=0, removed=0, records=0, bytes_cut=0)
    dead = series(directory)
    dead.append(capture())
    dead.abandon()
    with next(directory.glob("*.open")).open("ab") as stream:
        stream.write(b"half a mem")
    assert asyncio.run(main(directory)) == MendReport(files=1, removed=0, records=3, bytes_cut=10)
    assert check_folder(directory).problem_count == 0


@contextmanager
def full_disk(folder: Path, room: int) -> Iterator[None]:
    """The kernel cuts off a write when the file has grown by ``room``, and refuses the rest."""
    [path] = folder.glob("*.open")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def stalled(files: WarcWriter) -> None:
    while not files.stalled:  # noqa: ASYNC110 - the thread tells no loop
        await asyncio.sleep(0)


NO_ROOM = [0, 40_000]


@pytest.mark.parametrize("room", NO_ROOM)
async def test_full_disk_is_a_failure_after_giving_up(tmp_path: Path, room: int) -> None:
    """After `give_up` or `close` the writer keeps the written captures and refuses the others. A
    record that was cut off is cut back."""

    files = opened(tmp_path)
    await files.write(capture(1, NOISE))
    with full_disk(tmp_path, room):
        written = files.write(capture(2, NOISE))
        await stalled(files)
        syncing = asyncio.create_task(files.sync())
        await asyncio.sleep(0)
        assert not written.done()
        files.give_up()
        for refused in (written, syncing, files.write(capture(3)), files.close()):
            with pytest.raises(ArchiveError, match="File too large"):
                await refused
    assert mend_folder(tmp_path) == MendReport(files=1, removed=0, records=3, bytes_cut=0)
    assert check_folder(tmp_path).problem_count == 0


@pytest.mark.parametrize("room", NO_ROOM)
async def test_full_disk_loses_and_repeats_nothing(tmp_path: Path, room: int) -> None:
    """Finished files stay as they are; once there is room, all is written."""

    files = opened(tmp_path, max_size=100_000)
    before = [await files.write(capture(number, NOISE)) for number in range(3)]
    [closed] = finished(tmp_path)
    content = closed.read_bytes()
    with full_disk(tmp_path, room):
        written = [files.write(capture(number, NOISE)) for number in range(3, 6)]
        await stalled(files)
    places = [*before, *await asyncio.gather(*written)]
    await files.close()
    assert closed.read_bytes() == content
    assert urls_of(tmp_path, places) == [f"http://example.org/page/{n}" for n in range(6)]
    report = check_folder(tmp_path)
    assert (report.records, report.problem_count) == (12 + report.files, 0)


async def test_failed_archive_takes_nothing_more(tmp_path: Path) -> None:
    """The folder is gone, so the next file cannot be made; the failure is final."""
    work = tmp_path / "work"

    files = opened(work, max_size=1)
    await files.write(capture(1))
    await files.sync()
    work.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(ArchiveError, match="FileNotFoundError") as caught:
            await files.write(capture(2))
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        with pytest.raises(ArchiveError):
            await files.sync()
    (tmp_path / "away").rename(work)
    with pytest.raises(ArchiveError):
        await files.write(capture(3))
    assert not files.full
    for _ in range(2):
        with pytest.raises(ArchiveError):
            await files.close()


async def test_folder_of_another_writer_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path)
    await first.write(capture())
    with pytest.raises(ArchiveError, match="another crawl writes to"):
        opened(tmp_path)
    await first.close()
    assert len(list(tmp_path.glob("*.warc.gz"))) == 1
    await opened(tmp_path).close()
