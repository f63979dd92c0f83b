"""A note of an uploaded file survives the process, or is not made."""

from __future__ import annotations

import errno
import resource
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.uploads import NOTES, Destination, LocalFile, UploadLog, uploaded
from tests.archive.upload.s3 import noted

if TYPE_CHECKING:
    from pathlib import Path

HERE = Destination("bucket", "prefix")


def a_file(name: str) -> LocalFile:
    return LocalFile(name, 1, 1)


def test_note_survives_and_is_of_one_version_and_place(tmp_path: Path) -> None:
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


def test_file_in_flight_is_noted_as_begun(tmp_path: Path) -> None:
    file = a_file("a.warc.gz")
    for etag in (None, "etag"):
        notes = UploadLog(tmp_path, HERE)
        notes.open()
        assert (notes.of(file), notes.last(file.name) is None) == (None, etag is None)
        assert uploaded(tmp_path) == {}
        notes.add(file, etag)
        last = notes.last(file.name)
        assert last is not None
        assert last.etag == etag
        notes.close()
    assert uploaded(tmp_path).keys() == {"a.warc.gz"}


def test_without_notes_nothing_is_uploaded(tmp_path: Path) -> None:
    assert uploaded(tmp_path) == {}


def test_cut_line_is_ignored_and_spoils_no_other(tmp_path: Path) -> None:
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


def test_note_without_room_leaves_no_trace(tmp_path: Path) -> None:
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


def test_close_waits_for_a_line_that_is_being_written(tmp_path: Path) -> None:
    """After the close each line is durable, or was refused."""
    files = [a_file(f"{number:03}.warc.gz") for number in range(200)]
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
            assert len(refused) == len(files) - len(held)
            assert {getattr(error, "errno", error) for error in refused} <= {errno.EBADF}
            with pytest.raises(OSError, match="closed"):
                notes.add(a_file("late.warc.gz"), "etag")
