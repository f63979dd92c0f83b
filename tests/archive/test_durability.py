"""What real processes leave behind that were killed, or ran out of room."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.check import check_folder
from krowlspider.archive.lookup import read_record
from krowlspider.archive.members import read_member
from krowlspider.archive.mend import mend_folder

from .captures import ROOT, finished

if TYPE_CHECKING:
    from pathlib import Path


def crawl(directory: Path, count: int, *, file_size: int = 0) -> subprocess.Popen[str]:
    """Start the archiving process, if wanted with a limit to the bytes a file may have."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.archive.crawling", directory, str(count), str(file_size)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def pages_in(directory: Path) -> set[int]:
    """The pages whose responses lie in the finished files."""
    pages = set()
    for path in finished(directory):
        offset = 0
        with path.open("rb") as stream:
            while offset < path.stat().st_size:
                fields, _ = read_record(path, offset)
                if fields["WARC-Type"] == "response":
                    pages.add(int(fields["WARC-Target-URI"].rpartition("/")[2]))
                offset += read_member(stream, offset, len)
    return pages


@pytest.mark.parametrize("syncs", [1, 4, 9])
def test_a_killed_process_loses_no_capture_that_was_synced(tmp_path: Path, syncs: int) -> None:
    with crawl(tmp_path, 0) as process:
        assert process.stdout is not None
        for _ in range(syncs):
            durable = int(process.stdout.readline())
        process.kill()
        # Syncs that were done before the signal came count as well.
        for line in process.stdout:
            durable = int(line)
    mend_folder(tmp_path)
    assert check_folder(tmp_path).problems == []
    assert pages_in(tmp_path) >= set(range(durable))
    assert list(tmp_path.glob("*.open")) == []


def test_a_process_that_ends_by_itself_leaves_nothing_to_mend(tmp_path: Path) -> None:
    with crawl(tmp_path, 50) as process:
        process.communicate()
    assert process.returncode == 0
    assert list(tmp_path.glob("*.open")) == []
    assert pages_in(tmp_path) == set(range(50))
    assert check_folder(tmp_path).problem_count == 0


def test_no_room_stops_all_acknowledgements_and_harms_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    """The kernel cuts a write in the middle and refuses the rest, as a full disk does."""
    with crawl(tmp_path, 0, file_size=50_000) as process:
        output, _ = process.communicate()
    *synced, failed, still_failed = output.splitlines()
    assert (failed, still_failed) == ("failed OSError", "still failed")
    path = next(tmp_path.glob("*.open"))
    assert path.stat().st_size == 50_000
    report = mend_folder(tmp_path)
    assert report.bytes_cut > 0
    assert check_folder(tmp_path).problems == []
    assert pages_in(tmp_path) >= set(range(int(synced[-1])))


def test_a_failure_in_a_later_file_leaves_the_finished_ones_as_they_are(tmp_path: Path) -> None:
    with crawl(tmp_path, 100) as process:
        process.communicate()
    before = {path.name: path.read_bytes() for path in finished(tmp_path)}
    assert len(before) > 1
    with crawl(tmp_path, 0, file_size=20_000) as process:
        process.communicate()
    mend_folder(tmp_path)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    assert check_folder(tmp_path).problem_count == 0
