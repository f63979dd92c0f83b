"""Finished files reach the bucket whole and once, whatever fails, and are removed only after
that."""

from __future__ import annotations

import asyncio
import errno
import time
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.archive.uploader import (
    Bucket,
    BucketError,
    Uploader,
    UploadStats,
    finished_files,
    local_etag,
    upload_folder,
)
from krowlspider.archive.uploads import NOTES, PART, Destination, is_finished, uploaded
from tests.archive.syscalls import Act, Call, Watch
from tests.archive.upload.s3 import (
    CREDENTIALS,
    Fate,
    Proxy,
    Request,
    S3Server,
    contents,
    noise,
    noted,
    s3_server,
    start_upload,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

_numbers = count()
# Two parts.
LARGE = PART + 1000
# Objects that are not the file of 10 bytes: one differs in its size, one in its bytes alone.
OTHERS = [pytest.param(b"another crawl's", marks=pytest.mark.slow), noise(10, 99)]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@dataclass
class Case:
    """A folder with finished files, and where they are uploaded to: a bucket of its own."""

    folder: Path
    server: S3Server
    proxy: Proxy
    there: Destination

    def put(self, **sizes: int) -> dict[str, bytes]:
        """Write a WARC file of each size, with an index beside it; return the finished files."""
        for name, size in sizes.items():
            (self.folder / f"{name}.warc.gz").write_bytes(noise(size, len(name)))
            (self.folder / f"{name}.cdxj").write_bytes(b"com,example)/ 20260101000000 {}\n")
        return self.left

    def upload(self, **options: Any) -> UploadStats:
        return upload_folder(self.folder, self.there, **options)

    def start(self) -> subprocess.Popen[bytes]:
        """Upload in a process of its own, which removes what it has uploaded."""
        return start_upload(self.folder, self.there.url(), self.proxy.url)

    def ask(self, method: str, name: str, content: bytes = b"") -> None:
        """Have the store do something to an object."""
        self.server.ask(method, f"/{self.there.bucket}/{self.there.prefix}/{name}", content)

    @property
    def left(self) -> dict[str, bytes]:
        """The finished files in the folder."""
        return dict(contents(self.folder))

    @property
    def noted(self) -> list[str]:
        return sorted(noted(self.folder))

    @property
    def objects(self) -> dict[str, bytes]:
        """The objects under the destination; the bucket may contain no others."""
        objects = self.server.objects(self.there.bucket)
        assert all(key.startswith(f"{self.there.prefix}/") for key in objects)
        return {key.removeprefix(f"{self.there.prefix}/"): body for key, body in objects.items()}


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    running = Proxy(server.url)
    yield running
    running.stop()


@pytest.fixture
def case(tmp_path: Path, server: S3Server, proxy: Proxy) -> Case:
    name = f"bucket-{next(_numbers)}"
    server.make_bucket(name)
    return Case(tmp_path, server, proxy, Destination(name, "pre/fix", proxy.url))


def only(fate: Fate, which: Callable[[Request], bool], times: int = 1) -> Callable[[Request], Fate]:
    """Return a function that gives this fate to the first requests of a kind only."""
    left = iter([fate] * times)
    return lambda request: next(left, Fate.PASS) if which(request) else Fate.PASS


def test_only_finished_files_and_indexes_are_uploaded(tmp_path: Path) -> None:
    for name in (
        *("a.warc.gz", "b.cdxj", "c.warc.gz.open", "d.warc.gz.open.damaged", "e.warc"),
        ".f.warc.gz",
        *("g h.warc.gz", "ü.warc.gz", "i.cdxj.new", ".krowlspider.lock", NOTES, "j.wacz"),
    ):
        (tmp_path / name).write_bytes(b"x")
        assert is_finished(name) == (name in {"a.warc.gz", "b.cdxj"})
    (tmp_path / "k.warc.gz").symlink_to(tmp_path / "a.warc.gz")
    (tmp_path / "l.warc.gz").mkdir()
    assert {file.name for file in finished_files(tmp_path)} == {"a.warc.gz", "b.cdxj"}
    assert finished_files(tmp_path / "missing") == []


# The system calls of the notes and of a removal.
CHANGES = {"write", "fsync", "ftruncate", "unlink"}


@pytest.mark.parametrize(
    "fails", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sound", "failing"]
)
def test_file_is_removed_after_its_note_is_durable(case: Case, *, fails: bool) -> None:
    """A line that could not be synced is no note, and is written again."""
    (case.folder / "a.warc.gz").write_bytes(b"x")
    steps: list[tuple[str, Path]] = []
    notes, watch = case.folder / NOTES, Watch()

    def decide(call: Call) -> Act | int:
        step = call.name, call.path
        if call.path.is_relative_to(case.folder) and call.name in CHANGES:
            steps.append(step)
            # The second sync is that of the line which says that it is there.
            if fails and step == ("fsync", notes) and steps.count(step) == 2:
                return errno.EIO
        return Act.PASS

    process = start_upload(case.folder, case.there.url(), case.there.endpoint or "", watch.address)
    watch.serve(decide)
    watch.close()
    assert process.wait(60) == 0
    line = [("write", notes), ("fsync", notes)]
    assert steps == [
        ("fsync", case.folder),
        # On its way, and there.
        *line,
        *([*line, ("ftruncate", notes)] if fails else []),
        *line,
        ("unlink", case.folder / "a.warc.gz"),
    ]
    assert case.noted == ["a.warc.gz"]
    assert case.left == {}
    assert case.objects == {"a.warc.gz": b"x"}


def test_every_finished_file_is_uploaded_once(case: Case) -> None:
    files = case.put(a=10, bb=LARGE, ccc=0)
    (case.folder / "d.warc.gz.open").write_bytes(b"x")
    report = case.upload()
    assert case.objects == files == case.left
    assert report == UploadStats(6, sum(map(len, files.values())), 0, 0)
    assert case.noted == sorted(files)
    assert uploaded(case.folder) == {name: case.there.url(name) for name in files}
    before = len(case.proxy.sent)
    assert case.upload() == UploadStats(0, 0, 0, 0)
    assert len(case.proxy.sent) == before


@pytest.mark.parametrize(
    "size", [0, 1, PART, PART + 1, pytest.param(2 * PART, marks=pytest.mark.slow)]
)
def test_expected_etag_is_the_servers(case: Case, size: int) -> None:
    path = case.folder / "a.warc.gz"
    path.write_bytes(noise(size))

    async def upload() -> None:
        bucket = Bucket(case.there)
        expected = await bucket.put(path, size, lambda: None)
        assert await bucket.head(path.name) == (size, expected)
        assert await bucket.equals(path, size, lambda: None)
        assert local_etag(path, size) == expected

    asyncio.run(upload())


def test_changed_index_is_uploaded_again(case: Case) -> None:
    case.put(a=10)
    case.upload()
    index = case.folder / "a.cdxj"
    index.write_bytes(b"com,other)/ 20260101000000 {}\n")
    assert case.upload().files == 1
    assert case.objects == case.left


def test_index_without_a_warc_file_is_not_uploaded(case: Case) -> None:
    """Such an index is merged, or its WARC file is not finished. If the WARC file was removed, its
    index is uploaded again."""
    files = case.put(a=10)
    for other in ("index.cdxj", "b.cdxj", "b.warc.gz.open"):
        (case.folder / other).write_bytes(b"x")
    assert case.upload(delete=True) == UploadStats(2, sum(map(len, files.values())), 0, 0)
    assert case.objects == files
    (case.folder / "a.cdxj").write_bytes(b"other")
    assert case.upload().files == 1
    assert case.objects == {**files, "a.cdxj": b"other"}


def test_object_that_is_there_already_is_only_noted(case: Case) -> None:
    files = case.put(a=10, bb=LARGE)
    case.upload()
    (case.folder / NOTES).unlink()
    before = len(case.proxy.sent)
    assert case.upload(delete=True).files == 4
    assert len(case.proxy.sent) == before
    assert case.noted == sorted(files)
    assert case.objects == files
    assert case.left.keys() == {"a.cdxj", "bb.cdxj"}


@pytest.mark.parametrize("other", OTHERS, ids=["size", "bytes"])
def test_another_object_is_never_overwritten_by_a_warc_file(case: Case, other: bytes) -> None:
    case.put(a=10)
    case.ask("PUT", "a.warc.gz", other)
    report = case.upload(delete=True, stalled_after=0.8)
    assert (report.files, report.waiting) == (1, 1)
    assert report.failed > 0
    assert case.objects["a.warc.gz"] == other
    assert case.left.keys() == {"a.warc.gz", "a.cdxj"}
    assert case.noted == ["a.cdxj"]


@pytest.mark.parametrize("size", [1, PART + 1], ids=["whole", "in parts"])
def test_missing_bucket_is_a_failure_of_the_store(tmp_path: Path, proxy: Proxy, size: int) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(noise(size))
    bucket = Bucket(Destination("somebody-removed-it", "", proxy.url))
    with pytest.raises(BucketError, match="NoSuchBucket"):
        asyncio.run(bucket.put(path, size, lambda: None))


# --- removed only when verified ---


def test_noted_files_are_removed_once_removal_is_set(case: Case) -> None:
    """So is a file whose process died between the note and the removal."""
    files = case.put(a=10)
    case.upload()
    before = len(case.proxy.sent)
    case.upload(delete=True)
    assert len(case.proxy.sent) == before
    assert case.left.keys() == {"a.cdxj"}
    assert uploaded(case.folder) == {name: case.there.url(name) for name in files}
    assert case.objects == files


def test_file_whose_object_is_gone_is_uploaded_again(case: Case) -> None:
    files = case.put(a=10)
    case.upload()
    case.ask("DELETE", "a.warc.gz")
    case.upload(delete=True)
    assert case.objects == files
    assert case.left.keys() == {"a.cdxj"}


def test_noted_files_are_compared_with_their_objects_again(case: Case) -> None:
    """A missing one is uploaded again if its file is still there."""
    files = case.put(a=10, b=20, c=30)
    case.upload()
    for name in ("a.warc.gz", "c.cdxj"):
        case.ask("DELETE", name)
    case.ask("PUT", "b.warc.gz", noise(20, 7))
    (case.folder / "a.warc.gz").unlink()
    stats = case.upload(verify=True)
    urls = [f"{case.there.url(name)} " for name in ("a.warc.gz", "b.warc.gz", "c.cdxj")]
    assert [line.partition(" ")[0] + " " for line in sorted(stats.wrong)] == urls
    assert (stats.verified, stats.files, stats.waiting) == (6, 1, 0)
    assert case.objects.keys() == files.keys() - {"a.warc.gz"}


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS, ids=["size", "bytes"])
def test_file_whose_object_was_replaced_is_kept(case: Case, other: bytes) -> None:
    case.put(a=10)
    case.upload()
    case.ask("PUT", "a.warc.gz", other)
    assert case.upload(delete=True, stalled_after=1.5).waiting == 1
    assert case.objects["a.warc.gz"] == other
    assert case.left.keys() == {"a.warc.gz", "a.cdxj"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, LARGE], ids=["whole", "in parts"])
@pytest.mark.parametrize("fate", [Fate.SPOILED, Fate.SPOILED_AND_OPAQUE])
def test_file_changed_in_transit_is_kept_and_sent_again(
    case: Case, *, size: int, fate: Fate
) -> None:
    (case.folder / "a.warc.gz").write_bytes(noise(size))
    files = case.left
    case.proxy.fate = lambda request: fate if request.method in {"PUT", "HEAD"} else Fate.PASS
    report = case.upload(delete=True, stalled_after=1.5)
    assert (report.files, report.waiting) == (0, 1)
    assert report.failed > 0
    spoiled = case.objects["a.warc.gz"]
    assert len(spoiled) == size
    assert spoiled != files["a.warc.gz"]
    assert case.left == files
    assert case.noted == []
    # The next process knows that it is ours, and sends it once more in vain.
    case.proxy.fate = only(fate, lambda request: request.method == "PUT")
    report = case.upload(delete=True)
    assert (report.files, report.failed, report.waiting) == (1, 1, 0)
    assert case.objects == files
    assert case.left == {}


def test_object_whose_etag_is_no_md5_is_read_back(case: Case) -> None:
    files = case.put(a=10, bb=LARGE)
    case.proxy.fate = lambda _: Fate.OPAQUE
    report = case.upload(delete=True)
    assert (report.files, report.failed, report.waiting) == (4, 0, 0)
    assert case.objects == files
    read = [request.target for request in case.proxy.requests if request.method == "GET"]
    assert sum("bb.warc.gz" in target for target in read) == 2
    assert case.left.keys() == {"a.cdxj", "bb.cdxj"}


# --- when the store is down ---


@pytest.mark.parametrize(
    "fate",
    [
        Fate.HUNG,
        pytest.param(Fate.CUT, marks=pytest.mark.slow),
        pytest.param(Fate.ERROR, marks=pytest.mark.slow),
        pytest.param(Fate.DENIED, marks=pytest.mark.slow),
    ],
)
def test_store_that_takes_nothing_is_given_up_in_time(case: Case, fate: Fate) -> None:
    # What hangs has the time that its bytes need.
    files = case.put(a=10, bb=20 if fate is Fate.HUNG else LARGE)
    case.proxy.fate = lambda request: fate if request.sends else Fate.PASS
    started = time.monotonic()
    report = case.upload(delete=True, stalled_after=0.5)
    assert 0.5 <= time.monotonic() - started < 5
    assert (report.files, report.waiting) == (0, 4)
    assert case.left == files
    case.proxy.fate = lambda _: Fate.PASS
    assert case.upload(delete=True).waiting == 0
    assert case.objects == files


def test_files_are_uploaded_after_an_outage(case: Case) -> None:
    files = case.put(a=10, bb=20)
    case.proxy.fate = lambda _: Fate.DENIED

    async def crawl() -> None:
        uploader = Uploader(case.folder, case.there, delete=False, look=0.05)
        await uploader.open()
        while uploader.stats.failed < 2:
            await uploader.step()
        assert (uploader.stats.files, uploader.stats.waiting) == (0, 4)
        case.proxy.fate = lambda _: Fate.PASS
        # One more is finished meanwhile.
        files.update(case.put(cccc=20))
        while uploader.stats.files < 6:
            await uploader.step()
        await uploader.close()

    asyncio.run(crawl())
    assert case.objects == files
    assert case.noted == sorted(files)


@pytest.mark.slow
def test_file_with_a_failed_part_is_sent_again(case: Case) -> None:
    (case.folder / "a.warc.gz").write_bytes(noise(LARGE))
    # The client tries it three times by itself.
    case.proxy.fate = only(Fate.ERROR, lambda request: request.is_part(2), times=3)
    report = case.upload()
    assert (report.files, report.failed, report.waiting) == (1, 1, 0)
    assert case.objects == case.left
    assert case.server.unfinished(case.there.bucket) == 0


def test_large_file_has_more_time_than_the_patience(case: Case) -> None:
    """The file has one part or two: the client does not report the first one's arrival."""
    stalled_after, in_flight = 0.5, 0.8
    files = case.put(a=400_000, bb=PART + 1000)

    def slow(request: Request) -> Fate:
        if request.method == "PUT" and ".warc.gz" in request.target:
            time.sleep(in_flight)
        return Fate.PASS

    case.proxy.fate = slow
    report = case.upload(stalled_after=stalled_after)
    assert (report.files, report.failed, report.waiting) == (4, 0, 0)
    assert case.objects == files


def test_finish_retries_failed_files_immediately(case: Case) -> None:
    files = case.put(a=10)
    case.proxy.fate = lambda _: Fate.DENIED

    async def crawl() -> int:
        uploader = Uploader(case.folder, case.there, delete=False)
        await uploader.open()
        while uploader.stats.failed < 2:
            await uploader.step()
        case.proxy.fate = lambda _: Fate.PASS
        # A second has to pass before the next try.
        left = await uploader.finish(stalled_after=0.9)
        await uploader.close()
        return left

    assert asyncio.run(crawl()) == 0
    assert case.objects == files


@pytest.mark.slow
def test_slow_store_is_waited_for_while_it_takes_parts(case: Case) -> None:
    (case.folder / "a.warc.gz").write_bytes(noise(8 * PART + 1))
    stalled_after, one_by_one = 2.5, Lock()

    def slow(request: Request) -> Fate:
        if "partNumber" in request.target:
            with one_by_one:
                time.sleep(0.4)
        return Fate.PASS

    case.proxy.fate = slow
    started = time.monotonic()
    assert case.upload(stalled_after=stalled_after).waiting == 0
    assert time.monotonic() - started > stalled_after
    assert case.objects == case.left


def test_missing_bucket_is_reported_immediately(case: Case) -> None:
    case.put(a=10)
    with pytest.raises(BucketError, match="NoSuchBucket") as caught:
        upload_folder(case.folder, Destination("nobody-made-it", "", case.proxy.url))
    assert "\n" not in str(caught.value)
    case.proxy.fate = lambda _: Fate.DENIED
    with pytest.raises(BucketError, match="403"):
        case.upload()


def test_file_that_cannot_be_read_delays_no_other(case: Case) -> None:
    files = case.put(a=10, bb=20)
    gone = case.folder / "a.warc.gz"

    def taken_away(request: Request) -> Fate:
        if request.target.endswith(gone.name):
            gone.unlink(missing_ok=True)
        return Fate.PASS

    case.proxy.fate = taken_away

    async def upload() -> tuple[int, int]:
        uploader = Uploader(case.folder, case.there, delete=False, look=0.05)
        await uploader.open()
        left = await uploader.finish()
        await uploader.close()
        return left, uploader.stats.failed

    assert asyncio.run(upload()) == (0, 1)
    del files[gone.name]
    assert case.objects == files


# --- killed ---

POINTS: dict[str, tuple[Callable[[Request], bool], Fate]] = {
    "before anything": (lambda request: request.method == "HEAD", Fate.HUNG),
    "before the parts": (lambda request: request.starts_parts, Fate.HUNG),
    "in the parts": (lambda request: request.is_part(2), Fate.HUNG),
    "after a part": (lambda request: request.is_part(2), Fate.DONE_AND_HUNG),
    "before the parts are one": (lambda request: request.ends_parts, Fate.HUNG),
    "after the parts are one": (lambda request: request.ends_parts, Fate.DONE_AND_HUNG),
}


@pytest.mark.slow
@pytest.mark.parametrize("point", [*POINTS, "before it is verified"])
def test_kill_during_an_upload_loses_and_repeats_nothing(case: Case, point: str) -> None:
    (case.folder / "a.warc.gz").write_bytes(noise(LARGE))
    files = case.left
    if point in POINTS:
        which, fate = POINTS[point]
        case.proxy.fate = lambda request: fate if which(request) else Fate.PASS
    else:
        case.proxy.fate = lambda request: (
            Fate.HUNG
            if request.method == "HEAD" and any(each.ends_parts for each in case.proxy.requests)
            else Fate.PASS
        )
    process = case.start()
    assert case.proxy.hung.wait(60)
    process.kill()
    process.wait()
    assert case.left == files
    assert case.noted == []
    whole = case.objects
    # An object is there as a whole or not at all.
    assert whole in ({}, files)
    case.proxy.fate = lambda _: Fate.PASS
    sent = len(case.proxy.sent)
    process = case.start()
    assert process.wait(60) == 0
    assert case.objects == files
    assert case.noted == ["a.warc.gz"]
    assert case.left == {}
    if whole:
        assert len(case.proxy.sent) == sent


@pytest.mark.slow
def test_kills_at_any_moment_lose_and_repeat_nothing(case: Case) -> None:
    files = case.put(**{"n" * number: 1000 * number for number in range(1, 13)})
    for moment in (1, 4, 9, 17, 30):
        case.proxy.hung.clear()
        until = len(case.proxy.requests) + moment

        def fate(_: Request, until: int = until) -> Fate:
            return Fate.HUNG if len(case.proxy.requests) >= until else Fate.PASS

        case.proxy.fate = fate
        process = case.start()
        assert case.proxy.hung.wait(60)
        process.kill()
        process.wait()
        removed = files.keys() - case.left.keys()
        assert removed <= set(case.noted) <= case.objects.keys()
    case.proxy.fate = lambda _: Fate.PASS
    assert case.start().wait(60) == 0
    assert case.objects == files
    assert case.noted == sorted(files)
    assert case.left.keys() == {name for name in files if name.endswith(".cdxj")}
