"""Finished files reach the bucket whole and once, whatever fails, and are removed only after
that."""

from __future__ import annotations

import asyncio
import errno
import time
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.upload.notes import NOTES, uploaded
from krowlspider.archive.upload.plan import PART, Destination, is_finished
from krowlspider.archive.upload.store import Bucket, BucketError, local_etag
from krowlspider.archive.upload.uploader import Uploader, UploadStats, finished_files, upload_folder
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


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    running = Proxy(server.url)
    yield running
    running.stop()


@pytest.fixture
def bucket(server: S3Server) -> str:
    name = f"bucket-{next(_numbers)}"
    server.make_bucket(name)
    return name


@pytest.fixture
def there(proxy: Proxy, bucket: str) -> Destination:
    return Destination(bucket, "pre/fix", proxy.url)


def in_bucket(server: S3Server, there: Destination) -> dict[str, bytes]:
    """Return the content of the objects under a destination; the bucket may contain no others."""
    objects = server.objects(there.bucket)
    assert all(key.startswith(f"{there.prefix}/") for key in objects)
    return {key.removeprefix(f"{there.prefix}/"): content for key, content in objects.items()}


def put(folder: Path, **sizes: int) -> dict[str, bytes]:
    """Write a WARC file of each size, with an index beside it."""
    for name, size in sizes.items():
        (folder / f"{name}.warc.gz").write_bytes(noise(size, len(name)))
        (folder / f"{name}.cdxj").write_bytes(b"com,example)/ 20260101000000 {}\n")
    return dict(contents(folder))


def only(fate: Fate, which: Callable[[Request], bool], times: int = 1) -> Callable[[Request], Fate]:
    """Return a function that gives this fate to the first requests of a kind only."""
    left = iter([fate] * times)
    return lambda request: next(left, Fate.PASS) if which(request) else Fate.PASS


def test_only_finished_files_and_indexes_are_uploaded(tmp_path: Path) -> None:
    for name in (
        *(
            "a.warc.gz",
            "b.cdxj",
            "c.warc.gz.open",
            "d.warc.gz.open.damaged",
            "e.warc",
            ".f.warc.gz",
        ),
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
def test_file_is_removed_after_its_note_is_durable(
    tmp_path: Path, server: S3Server, there: Destination, *, fails: bool
) -> None:
    """A line that could not be synced is no note, and is written again."""
    (tmp_path / "a.warc.gz").write_bytes(b"x")
    steps: list[tuple[str, Path]] = []
    notes, watch = tmp_path / NOTES, Watch()

    def decide(call: Call) -> Act | int:
        step = call.name, call.path
        if call.path.is_relative_to(tmp_path) and call.name in CHANGES:
            steps.append(step)
            # The second sync is that of the line which says that it is there.
            if fails and step == ("fsync", notes) and steps.count(step) == 2:
                return errno.EIO
        return Act.PASS

    process = start_upload(tmp_path, there.url(), there.endpoint or "", watch.address)
    watch.serve(decide)
    watch.close()
    assert process.wait(60) == 0
    line = [("write", notes), ("fsync", notes)]
    assert steps == [
        ("fsync", tmp_path),
        # On its way, and there.
        *line,
        *([*line, ("ftruncate", notes)] if fails else []),
        *line,
        ("unlink", tmp_path / "a.warc.gz"),
    ]
    assert noted(tmp_path) == ["a.warc.gz"]
    assert contents(tmp_path) == {}
    assert in_bucket(server, there) == {"a.warc.gz": b"x"}


def test_every_finished_file_is_uploaded_once(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE, ccc=0)
    (tmp_path / "d.warc.gz.open").write_bytes(b"x")
    report = upload_folder(tmp_path, there)
    assert in_bucket(server, there) == files == contents(tmp_path)
    assert report == UploadStats(6, sum(map(len, files.values())), 0, 0)
    assert sorted(noted(tmp_path)) == sorted(files)
    assert uploaded(tmp_path) == {name: there.url(name) for name in files}
    before = len(proxy.sent)
    assert upload_folder(tmp_path, there) == UploadStats(0, 0, 0, 0)
    assert len(proxy.sent) == before


@pytest.mark.parametrize(
    "size", [0, 1, PART, PART + 1, pytest.param(2 * PART, marks=pytest.mark.slow)]
)
def test_expected_etag_is_the_servers(tmp_path: Path, there: Destination, size: int) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(noise(size))

    async def upload() -> None:
        bucket = Bucket(there)
        expected = await bucket.put(path, size, lambda: None)
        assert await bucket.head(path.name) == (size, expected)
        assert await bucket.equals(path, size, lambda: None)
        assert local_etag(path, size) == expected

    asyncio.run(upload())


def test_changed_index_is_uploaded_again(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    index = tmp_path / "a.cdxj"
    index.write_bytes(b"com,other)/ 20260101000000 {}\n")
    assert upload_folder(tmp_path, there).files == 1
    assert in_bucket(server, there) == contents(tmp_path)


def test_index_without_a_warc_file_is_not_uploaded(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    """Such an index is merged, or its WARC file is not finished. If the WARC file was removed, its
    index is uploaded again."""
    files = put(tmp_path, a=10)
    for other in ("index.cdxj", "b.cdxj", "b.warc.gz.open"):
        (tmp_path / other).write_bytes(b"x")
    assert upload_folder(tmp_path, there, delete=True) == UploadStats(
        2, sum(map(len, files.values())), 0, 0
    )
    assert in_bucket(server, there) == files
    (tmp_path / "a.cdxj").write_bytes(b"other")
    assert upload_folder(tmp_path, there).files == 1
    assert in_bucket(server, there) == {**files, "a.cdxj": b"other"}


def test_object_that_is_there_already_is_only_noted(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE)
    upload_folder(tmp_path, there)
    (tmp_path / NOTES).unlink()
    before = len(proxy.sent)
    assert upload_folder(tmp_path, there, delete=True).files == 4
    assert len(proxy.sent) == before
    assert sorted(noted(tmp_path)) == sorted(files)
    assert in_bucket(server, there) == files
    assert contents(tmp_path).keys() == {"a.cdxj", "bb.cdxj"}


@pytest.mark.parametrize("other", OTHERS, ids=["size", "bytes"])
def test_another_object_is_never_overwritten_by_a_warc_file(
    tmp_path: Path, server: S3Server, there: Destination, other: bytes
) -> None:
    put(tmp_path, a=10)
    server.ask("PUT", f"/{there.bucket}/{there.prefix}/a.warc.gz", other)
    report = upload_folder(tmp_path, there, delete=True, stalled_after=0.8)
    assert (report.files, report.waiting) == (1, 1)
    assert report.failed > 0
    assert in_bucket(server, there)["a.warc.gz"] == other
    assert contents(tmp_path).keys() == {"a.warc.gz", "a.cdxj"}
    assert noted(tmp_path) == ["a.cdxj"]


@pytest.mark.parametrize("size", [1, PART + 1], ids=["whole", "in parts"])
def test_missing_bucket_is_a_failure_of_the_store(tmp_path: Path, proxy: Proxy, size: int) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(noise(size))
    bucket = Bucket(Destination("somebody-removed-it", "", proxy.url))
    with pytest.raises(BucketError, match="NoSuchBucket"):
        asyncio.run(bucket.put(path, size, lambda: None))


# --- removed only when verified ---


def test_verified_warc_file_is_removed_and_its_index_stays(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE)
    upload_folder(tmp_path, there, delete=True)
    assert in_bucket(server, there) == files
    assert contents(tmp_path).keys() == {"a.cdxj", "bb.cdxj"}
    assert uploaded(tmp_path) == {name: there.url(name) for name in files}


def test_noted_files_are_removed_once_removal_is_set(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    """So is a file whose process died between the note and the removal."""
    files = put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    before = len(proxy.sent)
    upload_folder(tmp_path, there, delete=True)
    assert len(proxy.sent) == before
    assert contents(tmp_path).keys() == {"a.cdxj"}
    assert in_bucket(server, there) == files


def test_file_whose_object_is_gone_is_uploaded_again(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    files = put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    server.ask("DELETE", f"/{there.bucket}/{there.prefix}/a.warc.gz")
    upload_folder(tmp_path, there, delete=True)
    assert in_bucket(server, there) == files
    assert contents(tmp_path).keys() == {"a.cdxj"}


def test_noted_files_are_compared_with_their_objects_again(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    """A missing one is uploaded again if its file is still there."""
    files = put(tmp_path, a=10, b=20, c=30)
    upload_folder(tmp_path, there)
    for name in ("a.warc.gz", "c.cdxj"):
        server.ask("DELETE", f"/{there.bucket}/{there.prefix}/{name}")
    server.ask("PUT", f"/{there.bucket}/{there.prefix}/b.warc.gz", noise(20, 7))
    (tmp_path / "a.warc.gz").unlink()
    stats = upload_folder(tmp_path, there, verify=True)
    urls = [f"{there.url(name)} " for name in ("a.warc.gz", "b.warc.gz", "c.cdxj")]
    assert [line.partition(" ")[0] + " " for line in sorted(stats.wrong)] == urls
    assert (stats.verified, stats.files, stats.waiting) == (6, 1, 0)
    assert in_bucket(server, there).keys() == files.keys() - {"a.warc.gz"}


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS, ids=["size", "bytes"])
def test_file_whose_object_was_replaced_is_kept(
    tmp_path: Path, server: S3Server, there: Destination, other: bytes
) -> None:
    put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    server.ask("PUT", f"/{there.bucket}/{there.prefix}/a.warc.gz", other)
    assert upload_folder(tmp_path, there, delete=True, stalled_after=1.5).waiting == 1
    assert in_bucket(server, there)["a.warc.gz"] == other
    assert contents(tmp_path).keys() == {"a.warc.gz", "a.cdxj"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, LARGE], ids=["whole", "in parts"])
@pytest.mark.parametrize("fate", [Fate.SPOILED, Fate.SPOILED_AND_OPAQUE])
def test_file_changed_in_transit_is_kept_and_sent_again(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination, *, size: int, fate: Fate
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(size))
    files = dict(contents(tmp_path))
    proxy.fate = lambda request: fate if request.method in {"PUT", "HEAD"} else Fate.PASS
    report = upload_folder(tmp_path, there, delete=True, stalled_after=1.5)
    assert (report.files, report.waiting) == (0, 1)
    assert report.failed > 0
    spoiled = in_bucket(server, there)["a.warc.gz"]
    assert len(spoiled) == size
    assert spoiled != files["a.warc.gz"]
    assert contents(tmp_path) == files
    assert noted(tmp_path) == []
    # The next process knows that it is ours, and sends it once more in vain.
    proxy.fate = only(fate, lambda request: request.method == "PUT")
    report = upload_folder(tmp_path, there, delete=True)
    assert (report.files, report.failed, report.waiting) == (1, 1, 0)
    assert in_bucket(server, there) == files
    assert contents(tmp_path) == {}


def test_object_whose_etag_is_no_md5_is_read_back(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE)
    proxy.fate = lambda _: Fate.OPAQUE
    report = upload_folder(tmp_path, there, delete=True)
    assert (report.files, report.failed, report.waiting) == (4, 0, 0)
    assert in_bucket(server, there) == files
    read = [request.target for request in proxy.requests if request.method == "GET"]
    assert sum("bb.warc.gz" in target for target in read) == 2
    assert contents(tmp_path).keys() == {"a.cdxj", "bb.cdxj"}


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
def test_store_that_takes_nothing_is_given_up_in_time(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination, fate: Fate
) -> None:
    # What hangs has the time that its bytes need.
    files = put(tmp_path, a=10, bb=20 if fate is Fate.HUNG else LARGE)
    proxy.fate = lambda request: fate if request.sends else Fate.PASS
    started = time.monotonic()
    report = upload_folder(tmp_path, there, delete=True, stalled_after=0.5)
    assert 0.5 <= time.monotonic() - started < 5
    assert (report.files, report.waiting) == (0, 4)
    assert contents(tmp_path) == files
    proxy.fate = lambda _: Fate.PASS
    assert upload_folder(tmp_path, there, delete=True).waiting == 0
    assert in_bucket(server, there) == files


def test_files_are_uploaded_after_an_outage(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=20)
    proxy.fate = lambda _: Fate.DENIED

    async def crawl() -> None:
        uploader = Uploader(tmp_path, there, delete=False, look=0.05)
        await uploader.open()
        while uploader.stats.failed < 2:
            await uploader.step()
        assert (uploader.stats.files, uploader.stats.waiting) == (0, 4)
        proxy.fate = lambda _: Fate.PASS
        # One more is finished meanwhile.
        files.update(put(tmp_path, cccc=20))
        while uploader.stats.files < 6:
            await uploader.step()
        await uploader.close()

    asyncio.run(crawl())
    assert in_bucket(server, there) == files
    assert sorted(noted(tmp_path)) == sorted(files)


@pytest.mark.slow
def test_file_with_a_failed_part_is_sent_again(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(LARGE))
    # The client tries it three times by itself.
    proxy.fate = only(Fate.ERROR, lambda request: request.is_part(2), times=3)
    report = upload_folder(tmp_path, there)
    assert (report.files, report.failed, report.waiting) == (1, 1, 0)
    assert in_bucket(server, there) == contents(tmp_path)
    assert server.unfinished(there.bucket) == 0


def test_large_file_has_more_time_than_the_patience(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    """The file has one part or two: the client does not report the first one's arrival."""
    stalled_after, in_flight = 0.5, 0.8
    files = put(tmp_path, a=400_000, bb=PART + 1000)

    def slow(request: Request) -> Fate:
        if request.method == "PUT" and ".warc.gz" in request.target:
            time.sleep(in_flight)
        return Fate.PASS

    proxy.fate = slow
    report = upload_folder(tmp_path, there, stalled_after=stalled_after)
    assert (report.files, report.failed, report.waiting) == (4, 0, 0)
    assert in_bucket(server, there) == files


def test_finish_retries_failed_files_immediately(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10)
    proxy.fate = lambda _: Fate.DENIED

    async def crawl() -> int:
        uploader = Uploader(tmp_path, there, delete=False)
        await uploader.open()
        while uploader.stats.failed < 2:
            await uploader.step()
        proxy.fate = lambda _: Fate.PASS
        # A second has to pass before the next try.
        left = await uploader.finish(stalled_after=0.9)
        await uploader.close()
        return left

    assert asyncio.run(crawl()) == 0
    assert in_bucket(server, there) == files


@pytest.mark.slow
def test_slow_store_is_waited_for_while_it_takes_parts(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(8 * PART + 1))
    stalled_after, one_by_one = 2.5, Lock()

    def slow(request: Request) -> Fate:
        if "partNumber" in request.target:
            with one_by_one:
                time.sleep(0.4)
        return Fate.PASS

    proxy.fate = slow
    started = time.monotonic()
    assert upload_folder(tmp_path, there, stalled_after=stalled_after).waiting == 0
    assert time.monotonic() - started > stalled_after
    assert in_bucket(server, there) == contents(tmp_path)


def test_missing_bucket_is_reported_immediately(
    tmp_path: Path, proxy: Proxy, there: Destination
) -> None:
    put(tmp_path, a=10)
    with pytest.raises(BucketError, match="NoSuchBucket") as caught:
        upload_folder(tmp_path, Destination("nobody-made-it", "", proxy.url))
    assert "\n" not in str(caught.value)
    proxy.fate = lambda _: Fate.DENIED
    with pytest.raises(BucketError, match="403"):
        upload_folder(tmp_path, there)


def test_file_that_cannot_be_read_delays_no_other(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=20)
    gone = tmp_path / "a.warc.gz"

    def taken_away(request: Request) -> Fate:
        if request.target.endswith(gone.name):
            gone.unlink(missing_ok=True)
        return Fate.PASS

    proxy.fate = taken_away

    async def upload() -> tuple[int, int]:
        uploader = Uploader(tmp_path, there, delete=False, look=0.05)
        await uploader.open()
        left = await uploader.finish()
        await uploader.close()
        return left, uploader.stats.failed

    assert asyncio.run(upload()) == (0, 1)
    del files[gone.name]
    assert in_bucket(server, there) == files


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
def test_kill_during_an_upload_loses_and_repeats_nothing(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination, point: str
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(LARGE))
    files = dict(contents(tmp_path))
    if point in POINTS:
        which, fate = POINTS[point]
        proxy.fate = lambda request: fate if which(request) else Fate.PASS
    else:
        proxy.fate = lambda request: (
            Fate.HUNG
            if request.method == "HEAD" and any(each.ends_parts for each in proxy.requests)
            else Fate.PASS
        )
    process = start_upload(tmp_path, there.url(), proxy.url)
    assert proxy.hung.wait(60)
    process.kill()
    process.wait()
    assert contents(tmp_path) == files
    assert noted(tmp_path) == []
    whole = in_bucket(server, there)
    # An object is there as a whole or not at all.
    assert whole in ({}, files)
    proxy.fate = lambda _: Fate.PASS
    sent = len(proxy.sent)
    process = start_upload(tmp_path, there.url(), proxy.url)
    assert process.wait(60) == 0
    assert in_bucket(server, there) == files
    assert noted(tmp_path) == ["a.warc.gz"]
    assert contents(tmp_path) == {}
    if whole:
        assert len(proxy.sent) == sent


@pytest.mark.slow
def test_kills_at_any_moment_lose_and_repeat_nothing(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, **{"n" * number: 1000 * number for number in range(1, 13)})
    for moment in (1, 4, 9, 17, 30):
        proxy.hung.clear()
        until = len(proxy.requests) + moment

        def fate(_: Request, until: int = until) -> Fate:
            return Fate.HUNG if len(proxy.requests) >= until else Fate.PASS

        proxy.fate = fate
        process = start_upload(tmp_path, there.url(), proxy.url)
        assert proxy.hung.wait(60)
        process.kill()
        process.wait()
        removed = files.keys() - contents(tmp_path).keys()
        assert removed <= set(noted(tmp_path)) <= in_bucket(server, there).keys()
    proxy.fate = lambda _: Fate.PASS
    assert start_upload(tmp_path, there.url(), proxy.url).wait(60) == 0
    assert in_bucket(server, there) == files
    assert sorted(noted(tmp_path)) == sorted(files)
    assert contents(tmp_path).keys() == {name for name in files if name.endswith(".cdxj")}
