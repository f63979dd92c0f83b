"""Finished files reach the bucket whole and once, whatever happens on the way, and are removed only
then."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive.errors import ArchiveError
from krowlspider.archive.upload.notes import NOTES, UploadLog, uploaded
from krowlspider.archive.upload.store import Bucket, BucketError, local_etag
from krowlspider.archive.upload.upload import (
    FILES_AT_ONCE,
    PART,
    PARTS_AT_ONCE,
    REQUEST,
    SLOWEST,
    Blame,
    Destination,
    LocalFile,
    Progress,
    UploadPlan,
    etag_of,
    is_endpoint,
    is_finished,
    md5,
    part_size,
)
from krowlspider.archive.upload.uploader import (
    Uploader,
    UploadReport,
    finished_files,
    upload_folder,
)
from tests.archive.s3 import (
    CREDENTIALS,
    Fate,
    Proxy,
    Request,
    S3Server,
    contents,
    noise,
    s3_server,
    start_upload,
)

from .syscalls import Act, Call, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_numbers = count()
LARGE = 2 * PART + 1000
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
    """Files and contents of the objects under a destination, of which there may be no others."""
    objects = server.objects(there.bucket)
    assert all(key.startswith(f"{there.prefix}/") for key in objects)
    return {key.removeprefix(f"{there.prefix}/"): content for key, content in objects.items()}


def noted(folder: Path) -> list[str]:
    """The files that are noted as uploaded, in their order."""
    lines = map(json.loads, (folder / NOTES).read_text().splitlines())
    return [line["name"] for line in lines if line["etag"] is not None]


def put(folder: Path, **sizes: int) -> dict[str, bytes]:
    """A WARC file of each size and an index beside it."""
    for name, size in sizes.items():
        (folder / f"{name}.warc.gz").write_bytes(noise(size, len(name)))
        (folder / f"{name}.cdxj").write_bytes(b"com,example)/ 20260101000000 {}\n")
    return dict(contents(folder))


def only(fate: Fate, which: Callable[[Request], bool], times: int = 1) -> Callable[[Request], Fate]:
    """That fate for the first requests of a kind, and none for the others."""
    left = iter([fate] * times)
    return lambda request: next(left, Fate.PASS) if which(request) else Fate.PASS


def a_file(name: str) -> LocalFile:
    return LocalFile(name, 1, 1)


def taken(plan: UploadPlan, now: float) -> LocalFile:
    """The file that may be uploaded now: there must be one."""
    file = plan.take(now)
    assert file is not None
    return file


# --- where it goes ---


@pytest.mark.parametrize(
    ("url", "objects"),
    [
        ("s3://bucket", "s3://bucket/X"),
        ("s3://bucket/", "s3://bucket/X"),
        ("s3://my.bucket-1/pre/fix", "s3://my.bucket-1/pre/fix/X"),
        ("s3://bucket/year=2026/a.b_c+d/", "s3://bucket/year=2026/a.b_c+d/X"),
    ],
)
def test_a_file_becomes_the_object_of_its_name_under_the_prefix(url: str, objects: str) -> None:
    assert Destination.parse(url).url("X") == objects
    assert Destination.parse(url) == Destination.parse(Destination.parse(url).url())


@pytest.mark.parametrize(
    "url",
    [
        *("", "bucket", "s3:/bucket", "s3://", "s3:///prefix", "S3://bucket", "https://bucket"),
        *("s3://b", "s3://-bucket", "s3://buc ket", "s3://key:secret@bucket", f"s3://{'b' * 64}"),
        *("s3://bucket//", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/./b"),
        *("s3://bucket/ä", "s3://bucket/a b", "s3://bucket/a?b", "s3://bucket/a\nb"),
    ],
)
def test_what_names_no_place_in_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not s3://bucket|has a prefix that"):
        Destination.parse(url)


def test_an_endpoint_is_the_url_of_a_server_and_holds_no_secret() -> None:
    for right in ("http://127.0.0.1:9000", "https://id.r2.cloudflarestorage.com", "http://[::1]:1"):
        assert is_endpoint(right)
    wrong = (
        "",
        "host:9000",
        "ftp://host",
        "http://",
        "http://[::1",
        "http://host:99999",
        "http://",
    )
    secret = ("http://key:secret@host", "http://key@host", "http://host?key=secret", "http://a b")
    assert not any(map(is_endpoint, wrong + secret))


def test_only_finished_warc_files_and_indexes_are_uploaded(tmp_path: Path) -> None:
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


@given(st.integers(0, 5 * 10**12))
def test_a_file_of_any_size_has_no_more_parts_than_s3_takes(size: int) -> None:
    assert -(-size // part_size(size)) <= 10_000
    assert part_size(size) >= 5 * 1024 * 1024


# --- which is next, and when ---


def test_files_go_in_the_order_of_their_names_an_index_before_its_warc_file() -> None:
    plan = UploadPlan()
    plan.see(map(a_file, ["b.warc.gz", "a.warc.gz", "b.cdxj", "a.cdxj"]))
    order = [taken(plan, 0).name for _ in range(4)]
    assert order == ["a.cdxj", "a.warc.gz", "b.cdxj", "b.warc.gz"]
    assert plan.take(0) is None
    assert plan.waiting == 4


def test_a_store_that_fails_is_left_alone_for_twice_as_long_each_time_up_to_five_minutes() -> None:
    plan, now, waits = UploadPlan(), 100.0, []
    plan.see([a_file("a"), a_file("b")])
    for _ in range(12):
        file = taken(plan, now)
        waits.append(plan.failed(file, Blame.STORE, now))
        assert plan.take(now + waits[-1] - 0.001) is None
        assert plan.wait(now) == waits[-1]
        now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert plan.down


def test_two_files_that_fail_together_count_once() -> None:
    plan = UploadPlan()
    plan.see([a_file("a"), a_file("b"), a_file("c")])
    first, second = taken(plan, 0), taken(plan, 0)
    assert plan.failed(first, Blame.STORE, 0) == 1
    assert plan.failed(second, Blame.STORE, 0.5) == 0.5
    assert plan.take(0.9) is None
    assert plan.take(1) == first


def test_a_success_ends_the_outage() -> None:
    plan = UploadPlan()
    plan.see([a_file("a"), a_file("b")])
    for now in (0, 1, 3):
        file = taken(plan, now)
        plan.failed(file, Blame.STORE, now)
    file = taken(plan, 7)
    plan.done(file)
    assert not plan.down
    file = taken(plan, 7)
    assert plan.failed(file, Blame.STORE, 7) == 1


def test_a_file_that_fails_holds_up_no_other() -> None:
    plan = UploadPlan()
    plan.see([a_file("a"), a_file("b")])
    bad = taken(plan, 0)
    assert [plan.failed(bad, Blame.FILE, 0), plan.take(0)] == [1, a_file("b")]
    plan.done(a_file("b"))
    assert (plan.waiting, plan.take(0.9), plan.wait(0.9)) == (1, None, pytest.approx(0.1))
    assert plan.take(1) == bad
    assert plan.failed(bad, Blame.FILE, 1) == 2
    plan.forgive()
    assert plan.take(1) == bad


def test_a_store_that_is_down_for_years_is_tried_every_five_minutes() -> None:
    plan, now = UploadPlan(), 0.0
    plan.see([a_file("a")])
    for _ in range(5000):
        file = taken(plan, now)
        now += plan.failed(file, Blame.STORE, now)
    assert plan.wait(now - 300) == 300


@given(st.lists(st.tuples(st.sampled_from("tsfdxl"), st.integers(0, 5), st.floats(0, 99))))
def test_whatever_happens_no_file_is_in_hand_twice_and_none_is_forgotten(
    steps: list[tuple[str, int, float]],
) -> None:
    plan, now = UploadPlan(), 0.0
    there = {f"{number}" for number in range(4)}
    in_hand: list[LocalFile] = []
    plan.see(map(a_file, there))
    for what, number, seconds in steps:
        now += seconds
        if what == "t" and (file := plan.take(now)):
            assert file not in in_hand
            in_hand.append(file)
        elif what in "sf" and in_hand:
            blame = Blame.STORE if what == "s" else Blame.FILE
            assert 0 < plan.failed(in_hand.pop(), blame, now) <= 300
        elif what == "d" and in_hand:
            there.discard(in_hand[0].name)
            plan.done(in_hand.pop(0))
        elif what == "l":
            plan.see(map(a_file, there))
        elif what == "x":
            there.add(f"{number}")
            plan.see(map(a_file, there))
        assert plan.waiting == len(there)
    # In the end each of them can be had.
    for file in in_hand:
        plan.failed(file, Blame.FILE, now)
    left = {file.name for _ in range(9) if (file := plan.take(now + 300)) is not None}
    assert left == there


# --- how long the store is waited for ---


def test_what_is_under_way_has_the_time_that_it_needs_on_the_slowest_uplink() -> None:
    progress = Progress()
    assert progress.until(60) == float("-inf")
    progress.moved(100)
    assert progress.until(60) == 160
    with progress.of(LocalFile("small", SLOWEST, 1)):
        assert progress.until(60) == 161
        with progress.of(LocalFile("large", 100 * PART, 1)):
            assert progress.until(60) == 161 + PARTS_AT_ONCE * PART / SLOWEST
            # A store that hangs is given up all the same: nothing of it is moved.
            assert progress.until(60) < 100 + 60 + 300
    assert progress.until(60) == 160


def test_no_request_is_broken_off_on_the_slowest_uplink_while_all_places_are_taken() -> None:
    assert REQUEST > FILES_AT_ONCE * PARTS_AT_ONCE * PART / SLOWEST
    # It is the megabit that the settings ask for.
    assert 8 * SLOWEST == 1_000_000


# --- what is noted ---

HERE = Destination("bucket", "prefix")


def test_a_note_outlives_the_process_and_holds_for_that_version_and_that_place(
    tmp_path: Path,
) -> None:
    file = LocalFile("a.warc.gz", 7, 123)
    notes = UploadLog(tmp_path, HERE)
    notes.open()
    notes.add(file, "etag")
    notes.close()
    for where, version, holds in [
        (HERE, file, True),
        (HERE, LocalFile("a.warc.gz", 8, 123), False),
        (HERE, LocalFile("a.warc.gz", 7, 124), False),
        (HERE, LocalFile("b.warc.gz", 7, 123), False),
        (Destination("bucket", "other"), file, False),
        (Destination("bucket", "prefix", "http://127.0.0.1:1"), file, False),
    ]:
        notes = UploadLog(tmp_path, where)
        notes.open()
        assert (notes.of(version) is not None) == holds
        notes.close()
    assert uploaded(tmp_path) == {"a.warc.gz": "s3://bucket/prefix/a.warc.gz"}


def test_a_file_on_its_way_is_not_uploaded_but_its_object_will_be_ours(tmp_path: Path) -> None:
    file = a_file("a.warc.gz")
    for etag in (None, "etag"):
        notes = UploadLog(tmp_path, HERE)
        notes.open()
        assert (notes.of(file), notes.began(file)) == (None, etag is not None)
        assert uploaded(tmp_path) == {}
        notes.add(file, etag)
        assert notes.began(file) == (etag is None)
        notes.close()
    assert uploaded(tmp_path).keys() == {"a.warc.gz"}


def test_without_notes_nothing_is_uploaded(tmp_path: Path) -> None:
    assert uploaded(tmp_path) == {}


def test_a_line_cut_anywhere_is_no_note_and_spoils_none_that_follows(tmp_path: Path) -> None:
    first, second = a_file("a.warc.gz"), a_file("b.warc.gz")
    notes = UploadLog(tmp_path, HERE)
    notes.open()
    notes.add(first, "etag")
    notes.close()
    path = tmp_path / NOTES
    whole = path.read_bytes()
    for cut in range(len(whole) - 1):
        path.write_bytes(whole[:cut])
        notes = UploadLog(tmp_path, HERE)
        notes.open()
        assert notes.of(first) is None
        notes.add(second, "etag")
        notes.close()
        assert uploaded(tmp_path).keys() == {"b.warc.gz"}


def test_two_processes_do_not_upload_one_folder(tmp_path: Path) -> None:
    notes, others = UploadLog(tmp_path, HERE), UploadLog(tmp_path, HERE)
    notes.open()
    with pytest.raises(ArchiveError, match="another process uploads"):
        others.open()
    notes.close()
    others.open()
    others.close()


def test_a_note_for_which_there_is_no_room_leaves_no_trace(tmp_path: Path) -> None:
    notes = UploadLog(tmp_path, HERE)
    notes.open()
    notes.add(a_file("a.warc.gz"), "etag")
    before = (tmp_path / NOTES).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            notes.add(a_file("b.warc.gz"), "etag")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / NOTES).read_bytes() == before
    assert notes.of(a_file("b.warc.gz")) is None
    notes.add(a_file("b.warc.gz"), "etag")
    notes.close()
    assert noted(tmp_path) == ["a.warc.gz", "b.warc.gz"]


def test_notes_are_not_closed_under_a_line(tmp_path: Path) -> None:
    """When they are closed, each line is durable, or not begun and refused."""
    files = [a_file(f"{number:04}.warc.gz") for number in range(3000)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            (tmp_path / NOTES).unlink(missing_ok=True)
            notes = UploadLog(tmp_path, HERE)
            notes.open()
            added = [threads.submit(notes.add, file, "etag") for file in files]
            added[20].result()
            notes.close()
            held = {file.name for file in files if notes.of(file)}
            errors = [future.exception() for future in added]
            assert {file.name for file in files if notes.of(file)} == held
            assert uploaded(tmp_path).keys() == held
            refused = [error for error in errors if error is not None]
            assert len(refused) == len(files) - len(held) > 0
            assert {getattr(error, "errno", error) for error in refused} == {errno.EBADF}


# The system calls of the notes and of a removal.
CHANGES = {"write", "fsync", "ftruncate", "unlink"}


@pytest.mark.parametrize(
    "fails", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sound", "failing"]
)
def test_a_warc_file_is_removed_only_when_its_note_and_the_name_of_the_notes_are_on_the_disk(
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


# --- to a real server ---


def test_every_finished_file_is_in_the_bucket_byte_for_byte_and_goes_once(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE, ccc=0)
    (tmp_path / "d.warc.gz.open").write_bytes(b"x")
    report = upload_folder(tmp_path, there)
    assert in_bucket(server, there) == files == contents(tmp_path)
    assert report == UploadReport(6, sum(map(len, files.values())), 0, 0)
    assert sorted(noted(tmp_path)) == sorted(files)
    assert uploaded(tmp_path) == {name: there.url(name) for name in files}
    before = len(proxy.sent)
    assert upload_folder(tmp_path, there) == UploadReport(0, 0, 0, 0)
    assert len(proxy.sent) == before


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART])
def test_the_etag_that_is_expected_is_the_servers(
    tmp_path: Path, there: Destination, size: int
) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(noise(size))

    async def upload() -> None:
        bucket = Bucket(there)
        expected = await bucket.put(path, size, lambda: None)
        assert await bucket.head(path.name) == (size, expected)
        assert await bucket.equals(path, size, lambda: None)
        assert local_etag(path, size) == expected

    asyncio.run(upload())


def test_an_etag_is_of_the_whole_or_of_its_parts() -> None:
    assert etag_of([md5(b"a")], whole=True) == md5(b"a").hex()
    # A single part is still a part.
    assert etag_of([md5(b"a")], whole=False) == f"{md5(md5(b'a')).hex()}-1"


def test_an_index_that_is_written_again_goes_again(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    index = tmp_path / "a.cdxj"
    index.write_bytes(b"com,other)/ 20260101000000 {}\n")
    assert upload_folder(tmp_path, there).files == 1
    assert in_bucket(server, there) == contents(tmp_path)


def test_an_index_without_a_warc_file_stays_where_it_is(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    """It is one that was merged, or its WARC file is not finished; of one that was removed it goes
    again."""
    files = put(tmp_path, a=10)
    for other in ("index.cdxj", "b.cdxj", "b.warc.gz.open"):
        (tmp_path / other).write_bytes(b"x")
    assert upload_folder(tmp_path, there, delete=True) == UploadReport(
        2, sum(map(len, files.values())), 0, 0
    )
    assert in_bucket(server, there) == files
    (tmp_path / "a.cdxj").write_bytes(b"other")
    assert upload_folder(tmp_path, there).files == 1
    assert in_bucket(server, there) == {**files, "a.cdxj": b"other"}


def test_an_object_that_is_there_already_is_only_noted(
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
def test_another_object_in_the_place_of_a_warc_file_is_never_written_over(
    tmp_path: Path, server: S3Server, there: Destination, other: bytes
) -> None:
    put(tmp_path, a=10)
    server.ask("PUT", f"/{there.bucket}/{there.prefix}/a.warc.gz", other)
    report = upload_folder(tmp_path, there, delete=True, patience=1.5)
    assert (report.files, report.left) == (1, 1)
    assert report.failed > 0
    assert in_bucket(server, there)["a.warc.gz"] == other
    assert contents(tmp_path).keys() == {"a.warc.gz", "a.cdxj"}
    assert noted(tmp_path) == ["a.cdxj"]


@pytest.mark.parametrize("size", [1, PART + 1], ids=["whole", "in parts"])
def test_a_bucket_that_has_gone_is_the_fault_of_the_store_and_not_of_the_file(
    tmp_path: Path, proxy: Proxy, size: int
) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(noise(size))
    bucket = Bucket(Destination("somebody-removed-it", "", proxy.url))
    with pytest.raises(BucketError, match="NoSuchBucket"):
        asyncio.run(bucket.put(path, size, lambda: None))


# --- removed only when verified ---


def test_a_warc_file_is_removed_when_it_is_verified_and_its_index_stays(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE)
    upload_folder(tmp_path, there, delete=True)
    assert in_bucket(server, there) == files
    assert contents(tmp_path).keys() == {"a.cdxj", "bb.cdxj"}
    assert uploaded(tmp_path) == {name: there.url(name) for name in files}


def test_files_noted_before_are_removed_once_that_is_wanted(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    """So is one whose process died between the note and the removal."""
    files = put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    before = len(proxy.sent)
    upload_folder(tmp_path, there, delete=True)
    assert len(proxy.sent) == before
    assert contents(tmp_path).keys() == {"a.cdxj"}
    assert in_bucket(server, there) == files


def test_a_noted_file_whose_object_is_gone_is_uploaded_again_before_it_is_removed(
    tmp_path: Path, server: S3Server, there: Destination
) -> None:
    files = put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    server.ask("DELETE", f"/{there.bucket}/{there.prefix}/a.warc.gz")
    upload_folder(tmp_path, there, delete=True)
    assert in_bucket(server, there) == files
    assert contents(tmp_path).keys() == {"a.cdxj"}


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS, ids=["size", "bytes"])
def test_a_noted_file_whose_object_has_become_another_is_kept(
    tmp_path: Path, server: S3Server, there: Destination, other: bytes
) -> None:
    put(tmp_path, a=10)
    upload_folder(tmp_path, there)
    server.ask("PUT", f"/{there.bucket}/{there.prefix}/a.warc.gz", other)
    assert upload_folder(tmp_path, there, delete=True, patience=1.5).left == 1
    assert in_bucket(server, there)["a.warc.gz"] == other
    assert contents(tmp_path).keys() == {"a.warc.gz", "a.cdxj"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, LARGE], ids=["whole", "in parts"])
@pytest.mark.parametrize("fate", [Fate.SPOILED, Fate.SPOILED_AND_OPAQUE])
def test_what_changes_on_the_way_is_neither_noted_nor_removed_and_goes_again(
    tmp_path: Path,
    server: S3Server,
    proxy: Proxy,
    there: Destination,
    *,
    size: int,
    fate: Fate,
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(size))
    files = dict(contents(tmp_path))
    proxy.fate = lambda request: fate if request.method in {"PUT", "HEAD"} else Fate.PASS
    report = upload_folder(tmp_path, there, delete=True, patience=1.5)
    assert (report.files, report.left) == (0, 1)
    assert report.failed > 0
    spoiled = in_bucket(server, there)["a.warc.gz"]
    assert len(spoiled) == size
    assert spoiled != files["a.warc.gz"]
    assert contents(tmp_path) == files
    assert noted(tmp_path) == []
    # The next process knows that it is ours, and sends it once more in vain.
    proxy.fate = only(fate, lambda request: request.method == "PUT")
    report = upload_folder(tmp_path, there, delete=True)
    assert (report.files, report.failed, report.left) == (1, 1, 0)
    assert in_bucket(server, there) == files
    assert contents(tmp_path) == {}


def test_a_store_whose_etags_are_no_md5_is_read_back(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE)
    proxy.fate = lambda _: Fate.OPAQUE
    report = upload_folder(tmp_path, there, delete=True)
    assert (report.files, report.failed, report.left) == (4, 0, 0)
    assert in_bucket(server, there) == files
    read = [request.target for request in proxy.requests if request.method == "GET"]
    assert sum("bb.warc.gz" in target for target in read) == 3
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
def test_a_store_that_takes_nothing_is_given_up_in_time_and_the_next_try_loses_nothing(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination, fate: Fate
) -> None:
    # What hangs has the time that its bytes need.
    files = put(tmp_path, a=10, bb=20 if fate is Fate.HUNG else LARGE)
    proxy.fate = lambda request: fate if request.sends else Fate.PASS
    started = time.monotonic()
    report = upload_folder(tmp_path, there, delete=True, patience=1)
    assert 1 <= time.monotonic() - started < 5
    assert (report.files, report.left) == (0, 4)
    assert contents(tmp_path) == files
    proxy.fate = lambda _: Fate.PASS
    assert upload_folder(tmp_path, there, delete=True).left == 0
    assert in_bucket(server, there) == files


def test_after_an_outage_the_files_go_by_themselves(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10, bb=LARGE)
    proxy.fate = lambda _: Fate.CUT

    async def crawl() -> None:
        uploader = Uploader(tmp_path, there, delete=False, look=0.05)
        await uploader.open()
        while uploader.stats.failed < 2:
            await uploader.step()
        assert (uploader.stats.files, uploader.waiting) == (0, 4)
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
def test_a_file_of_which_a_part_fails_goes_again_and_leaves_no_part_behind(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(LARGE))
    # The client tries it three times by itself.
    proxy.fate = only(Fate.ERROR, lambda request: request.is_part(2), times=3)
    report = upload_folder(tmp_path, there)
    assert (report.files, report.failed, report.left) == (1, 1, 0)
    assert in_bucket(server, there) == contents(tmp_path)
    assert server.unfinished(there.bucket) == 0


def test_a_file_that_takes_longer_than_the_patience_is_waited_for(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    """Be it of one part or of two, of which none tells that the other has arrived."""
    patience, in_flight = 1.5, 2.5
    files = put(tmp_path, a=400_000, bb=PART + 1000)

    def slow(request: Request) -> Fate:
        if request.method == "PUT" and ".warc.gz" in request.target:
            time.sleep(in_flight)
        return Fate.PASS

    proxy.fate = slow
    report = upload_folder(tmp_path, there, patience=patience)
    assert (report.files, report.failed, report.left) == (4, 0, 0)
    assert in_bucket(server, there) == files


def test_the_end_tries_at_once_what_has_failed_before(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    files = put(tmp_path, a=10)
    proxy.fate = lambda _: Fate.DENIED

    async def crawl() -> int:
        uploader = Uploader(tmp_path, there, delete=False)
        await uploader.open()
        while uploader.stats.failed < 4:
            await uploader.step()
        proxy.fate = lambda _: Fate.PASS
        # Two seconds have to pass before the next try.
        left = await uploader.finish(patience=1.9)
        await uploader.close()
        return left

    assert asyncio.run(crawl()) == 0
    assert in_bucket(server, there) == files


@pytest.mark.slow
def test_a_slow_store_is_waited_for_as_long_as_it_takes_parts(
    tmp_path: Path, server: S3Server, proxy: Proxy, there: Destination
) -> None:
    (tmp_path / "a.warc.gz").write_bytes(noise(8 * PART + 1))
    patience, one_by_one = 2.5, Lock()

    def slow(request: Request) -> Fate:
        if "partNumber" in request.target:
            with one_by_one:
                time.sleep(0.4)
        return Fate.PASS

    proxy.fate = slow
    started = time.monotonic()
    assert upload_folder(tmp_path, there, patience=patience).left == 0
    assert time.monotonic() - started > patience
    assert in_bucket(server, there) == contents(tmp_path)


def test_a_bucket_that_is_not_there_is_told_at_once_by_the_stores_own_word(
    tmp_path: Path, proxy: Proxy, there: Destination
) -> None:
    put(tmp_path, a=10)
    with pytest.raises(BucketError, match="NoSuchBucket") as caught:
        upload_folder(tmp_path, Destination("nobody-made-it", "", proxy.url))
    assert "\n" not in str(caught.value)
    proxy.fate = lambda _: Fate.DENIED
    with pytest.raises(BucketError, match="403"):
        upload_folder(tmp_path, there)


def test_a_file_that_cannot_be_read_holds_up_no_other(
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
def test_a_process_killed_on_the_way_leaves_no_loss_and_no_duplicate(
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
def test_processes_killed_at_any_moment_leave_no_loss_and_no_duplicate(
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
