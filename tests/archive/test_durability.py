"""The files that real processes leave when they are killed or run out of room."""

from __future__ import annotations

import resource
import subprocess
import sys
from resource import RLIM_INFINITY
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.reading import read_members
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.tools.mend import mend_folder

from .captures import ROOT, finished

if TYPE_CHECKING:
    from pathlib import Path


def crawl(directory: Path, count: int, *, file_size: int = 0) -> subprocess.Popen[str]:
    """Start the archiving process, with a limit to the bytes of a file unless it is 0."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.archive.crawling", directory, str(count), str(file_size)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def pages_in(directory: Path) -> set[int]:
    """Return the pages whose responses are in the finished files."""
    pages = set()
    for path in finished(directory):
        with path.open("rb") as stream:
            for member in read_members(stream):
                fields = member.record().headers
                if fields["WARC-Type"] == "response":
                    pages.add(int(fields["WARC-Target-URI"].rpartition("/")[2]))
    return pages


@pytest.mark.parametrize("syncs", [1, 4, 9])
def test_killed_process_loses_no_synced_capture(tmp_path: Path, syncs: int) -> None:
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


def test_process_that_ends_by_itself_leaves_nothing_to_mend(tmp_path: Path) -> None:
    with crawl(tmp_path, 50) as process:
        process.communicate()
    assert process.returncode == 0
    assert list(tmp_path.glob("*.open")) == []
    assert pages_in(tmp_path) == set(range(50))
    assert check_folder(tmp_path).problem_count == 0


def stalled(process: subprocess.Popen[str]) -> int:
    """Wait until there is no room; return how many captures are durable then."""
    assert process.stdout is not None
    durable = 0
    while (line := process.stdout.readline()) != "stalled\n":
        durable = int(line)
    return durable


def records_in(path: Path) -> int:
    """Return how many whole records a file holds.

    :raises RecordError: it holds anything else"""
    with path.open("rb") as stream:
        return sum(1 for _ in read_members(stream))


# Room for some captures, for none, and not even for a file's first record.
@pytest.mark.parametrize(
    "size", [3_500, *(pytest.param(each, marks=pytest.mark.slow) for each in (50_000, 100))]
)
def test_full_disk_loses_and_repeats_nothing(tmp_path: Path, size: int) -> None:
    """The kernel cuts off a write in the middle and refuses the rest, as a full disk does."""
    with crawl(tmp_path, 40, file_size=size) as process:
        durable = stalled(process)
        before = sum(records_in(path) for path in tmp_path.glob("*.open"))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        process.communicate()
    assert process.returncode == 0
    assert before == (1 + 2 * durable if size > 1000 else 0)
    assert check_folder(tmp_path).problem_count == 0
    assert pages_in(tmp_path) == set(range(40))
    assert check_folder(tmp_path).records == 80 + len(finished(tmp_path))
    assert list(tmp_path.glob("*.open")) == []


def test_process_killed_on_a_full_disk_leaves_whole_records(tmp_path: Path) -> None:
    with crawl(tmp_path, 0, file_size=50_000) as process:
        durable = stalled(process)
        process.kill()
    report = mend_folder(tmp_path)
    assert report.bytes_cut == 0
    assert check_folder(tmp_path).problems == []
    assert pages_in(tmp_path) == set(range(durable))


def test_full_disk_leaves_finished_files_unchanged(tmp_path: Path) -> None:
    with crawl(tmp_path, 100) as process:
        process.communicate()
    before = {path.name: path.read_bytes() for path in finished(tmp_path)}
    assert len(before) > 1
    with crawl(tmp_path, 0, file_size=20_000) as process:
        stalled(process)
        process.kill()
    mend_folder(tmp_path)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    assert check_folder(tmp_path).problem_count == 0
