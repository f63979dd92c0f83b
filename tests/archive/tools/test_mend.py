from __future__ import annotations

import gzip
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from isal import isal_zlib

from krowlspider.archive.cdxj import index_file, index_path
from krowlspider.archive.reading import Synced
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.tools.mend import MendReport, mend_folder
from tests.archive.captures import ROOT, Odd, capture, durable_steps, finished, series

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOISE = random.Random(7).randbytes(700)


def open_file(directory: Path, count: int = 3) -> tuple[Path, list[int]]:
    """Return a file as a dead process leaves it, and the ends of its records."""
    directory.mkdir(exist_ok=True)
    files = series(directory)
    # Noise, which does not compress, so that a member's own bytes are cut, not only its ends.
    odd = Odd(b"HTTP/1.1 200 OK\r\n\r\n" + NOISE, NOISE)
    where = [files.append(capture(number, odd)) for number in range(count)]
    files.abandon()
    path = next(directory.glob("*.open"))
    ends = [where[0].offset]
    for number, location in enumerate(where):
        ends.append(location.offset + location.length)
        ends.append(where[number + 1].offset if number + 1 < count else path.stat().st_size)
    return path, ends


def test_file_cut_anywhere_keeps_all_whole_records(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path / "whole")
    content = path.read_bytes()
    work = tmp_path / "work"
    work.mkdir()
    edges = [end + step for end in ends[-3:] for step in (-1, 0, 1)][1:-1]
    kept = {}
    for cut in {*range(ends[-3], ends[-1], 13), *edges}:
        (work / f"{cut}.warc.gz.open").write_bytes(content[:cut])
        kept[cut] = [end for end in ends if end <= cut]
    report = mend_folder(work)
    assert (report.files, report.removed) == (len(kept), 0)
    assert report.records == sum(map(len, kept.values()))
    assert report.bytes_cut == sum(cut - whole[-1] for cut, whole in kept.items())
    for cut, whole in kept.items():
        assert (work / f"{cut}.warc.gz").read_bytes() == content[: whole[-1]], cut
    checked = check_folder(work)
    # All files hold the same records.
    found = {each.what for each in checked.problems}
    assert found == {"another record has the same WARC-Record-ID"}
    assert (checked.open_files, checked.warnings) == (0, [])
    assert (checked.files, checked.records) == (report.files, report.records)


def test_a_file_without_a_whole_record_is_removed(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    content = path.read_bytes()
    for cut in (0, 1, 9, 10, ends[0] // 2, ends[0] - 1):
        path.write_bytes(content[:cut])
        assert mend_folder(tmp_path) == MendReport(files=0, removed=1, records=0, bytes_cut=cut)
        assert list(tmp_path.iterdir()) == []


def test_a_file_with_only_its_warcinfo_is_kept(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    path.write_bytes(path.read_bytes()[: ends[0]])
    assert mend_folder(tmp_path) == MendReport(files=1, removed=0, records=1, bytes_cut=0)
    assert check_folder(tmp_path).problem_count == 0


TAILS: dict[str, Callable[[bytes], bytes]] = {
    # A file system may leave zeros after a loss of power.
    "zeros": lambda content: content + bytes(5000),
    "no gzip": lambda content: content + b"not gzip",
    "half a header": lambda content: content + b"\x1f\x8b\x08",
    "a broken header": lambda content: content + b"\x1f\x8b\x08\xff",
    # What is stored in deflated data as it is looks like a member of the file.
    "a body of gzip": lambda content: (
        content + gzip.compress(gzip.compress(NOISE) + NOISE, 0)[:-20]
    ),
    "a record that is cut off": lambda content: content[:-20],
    "a wrong checksum": lambda content: content[:-6] + bytes([content[-6] ^ 1]) + content[-5:],
}


@pytest.mark.parametrize("tail", TAILS)
def test_tail_that_is_no_whole_record_is_cut_off(tmp_path: Path, tail: str) -> None:
    path, ends = open_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(found := TAILS[tail](content))
    kept = ends if found.startswith(content) else ends[:-1]
    cut = len(found) - kept[-1]
    assert mend_folder(tmp_path) == MendReport(1, 0, len(kept), bytes_cut=cut)
    assert check_folder(tmp_path).problem_count == 0


def test_tail_longer_than_any_record_is_put_aside(tmp_path: Path) -> None:
    """The tail is a hole of 70 MB with whole records behind it."""
    path, ends = open_file(tmp_path)
    content = path.read_bytes()
    with path.open("r+b") as stream:
        stream.seek(ends[-1] + 70_000_000)
        stream.write(content)
    mended = mend_folder(tmp_path)
    [damaged] = mended.damaged
    assert damaged.stat().st_size == ends[-1] + 70_000_000 + len(content)
    assert mended.salvaged == [(finished(tmp_path)[0], 2 * len(ends))]


def test_large_record_without_its_last_byte_is_cut_off(tmp_path: Path) -> None:
    """The record has 60 MB of zeros in one member."""
    path = tmp_path / "a.warc.gz.open"
    small = gzip.compress(b"small")
    large = isal_zlib.compress(bytes(60_000_000), 1, 31)
    path.write_bytes(small + large + large[:-1])
    lengths: list[int] = []
    mended = mend_folder(tmp_path, lengths.append)
    assert (mended.records, mended.bytes_cut) == (2, len(large) - 1)
    assert lengths == [len(small), len(large)]


def test_mended_file_is_synced_renamed_and_then_indexed(tmp_path: Path) -> None:
    open_file(tmp_path)
    assert durable_steps(lambda: mend_folder(tmp_path)) == ["fsync", "rename", "fsync"] * 2


def test_mended_file_has_its_index(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    path.write_bytes(path.read_bytes()[: ends[-2] + 10])
    mend_folder(tmp_path)
    [final] = finished(tmp_path)
    lines = list(index_file(final))
    assert len(lines) == 3
    assert index_path(final).read_text() == "".join(sorted(lines))


def test_file_with_a_member_that_is_no_record_is_not_indexed(tmp_path: Path) -> None:
    path, _ = open_file(tmp_path)
    with path.open("ab") as stream:
        stream.write(gzip.compress(b"small"))
    mend_folder(tmp_path)
    [final] = finished(tmp_path)
    assert not index_path(final).exists()


def test_draft_of_a_living_process_stays(tmp_path: Path) -> None:
    child = (
        "import sys; from pathlib import Path; from krowlspider.archive.disk import write_durably\n"
        "with write_durably(Path(sys.argv[1])) as file:\n"
        "    file.write(b'whole'); print(flush=True); sys.stdin.readline()"
    )
    path = tmp_path / "a.cdxj"
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", child, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        mend_folder(tmp_path)
        process.communicate(b"\n")
    assert process.returncode == 0
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.cdxj", b"whole")]


def test_drafts_of_a_dead_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a.cdxj.123.new").write_bytes(b"half")
    mend_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_file_is_mended_without_room_for_its_index(tmp_path: Path) -> None:
    """The kernel lets no file grow at all."""
    path, ends = open_file(tmp_path)
    child = (
        "import resource, signal, sys; from pathlib import Path;"
        "from krowlspider.archive.tools.mend import mend_folder;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "assert mend_folder(Path(sys.argv[1])).records == int(sys.argv[2])"
    )
    command = [sys.executable, "-B", "-c", child, str(tmp_path), str(len(ends))]
    subprocess.run(command, check=True, cwd=ROOT)
    assert [each.name for each in tmp_path.iterdir()] == [path.stem]


def test_mending_again_changes_nothing(tmp_path: Path) -> None:
    open_file(tmp_path)
    mend_folder(tmp_path)
    before = finished(tmp_path)[0].read_bytes()
    assert mend_folder(tmp_path) == MendReport()
    assert finished(tmp_path)[0].read_bytes() == before


def test_finished_file_is_not_overwritten(tmp_path: Path) -> None:
    path, _ = open_file(tmp_path)
    taken = path.with_suffix("")
    taken.write_bytes(b"finished")
    with pytest.raises(FileExistsError):
        mend_folder(tmp_path)
    assert taken.read_bytes() == b"finished"
    assert path.exists()


def test_only_an_open_file_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"cut")
    assert mend_folder(tmp_path) == MendReport()
    assert path.read_bytes() == b"cut"


def damage(path: Path, at: int) -> bytes:
    """Flip a bit; return the content then."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    return bytes(data)


def test_damaged_file_is_kept_and_its_records_salvaged(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    data = damage(path, ends[1] + 20)
    report = mend_folder(tmp_path)
    [kept] = report.damaged
    [salvaged] = finished(tmp_path)
    assert kept.read_bytes() == data
    assert report.salvaged == [(salvaged, len(ends) - 1)]
    assert salvaged.read_bytes() == data[: ends[1]] + data[ends[2] :]
    checked = check_folder(tmp_path)
    assert (checked.problems, checked.records) == ([], len(ends) - 1)
    assert [warning.file for warning in checked.warnings] == [kept.name]
    assert mend_folder(tmp_path) == MendReport()


def test_check_advises_to_mend_until_it_is_salvaged(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    damage(path, ends[1] + 20)
    path.rename(path.with_name(f"{path.name}.damaged"))
    [before] = check_folder(tmp_path).warnings
    mend_folder(tmp_path)
    [after] = check_folder(tmp_path).warnings
    assert "scrapy warc mend" in before.what
    assert after.what.endswith(f"its whole records are in {finished(tmp_path)[0].name}")


def test_records_are_salvaged_by_a_repeated_call(tmp_path: Path) -> None:
    """A process was killed before it had salvaged them, or the version before did not."""
    path, ends = open_file(tmp_path)
    damage(path, 20)
    path.rename(path.with_name(f"{path.name}.damaged"))
    assert [records for _, records in mend_folder(tmp_path).salvaged] == [len(ends) - 1]


@pytest.mark.parametrize("content", [bytes(5000), b"not gzip" * 100])
def test_file_that_does_not_begin_with_a_record_is_kept(tmp_path: Path, content: bytes) -> None:
    path, _ = open_file(tmp_path)
    path.write_bytes(content)
    [kept] = mend_folder(tmp_path).damaged
    assert kept.read_bytes() == content
    assert finished(tmp_path) == []


@pytest.mark.parametrize("cut", [0, 100])
def test_file_cut_below_its_sync_is_kept(tmp_path: Path, cut: int) -> None:
    path, ends = open_file(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    synced = Synced(path.name.removesuffix(".open"), ends[0], 1)
    assert len(mend_folder(tmp_path, synced=synced).damaged) == 1


def test_records_in_a_body_that_was_not_synced_are_not_damage(tmp_path: Path) -> None:
    """A WARC file was crawled, and the process killed while it wrote that as it is."""
    path, ends = open_file(tmp_path)
    synced = Synced(path.name.removesuffix(".open"), ends[-1], len(ends))
    crawled = path.read_bytes()
    with path.open("ab") as stream:
        stream.write(gzip.compress(crawled + NOISE, 0)[:-20])
    report = mend_folder(tmp_path, synced=synced)
    assert (report.damaged, report.records) == ([], len(ends))
    [final] = finished(tmp_path)
    assert final.read_bytes() == crawled


def test_damaged_file_is_kept_before_it_is_salvaged(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    damage(path, ends[1] + 20)
    aside, written = ["rename", "fsync"], ["fsync", "rename", "fsync"]
    assert durable_steps(lambda: mend_folder(tmp_path)) == [*aside, *written, *written]


def test_a_file_that_is_removed_stays_removed(tmp_path: Path) -> None:
    path, ends = open_file(tmp_path)
    path.write_bytes(path.read_bytes()[: ends[0] - 1])
    assert durable_steps(lambda: mend_folder(tmp_path)) == ["unlink", "fsync"]
