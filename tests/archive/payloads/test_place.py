"""A payload index is kept only while all WARC files that it refers to can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.write.composer import PayloadIndex, forget_others, note_place
from krowlspider.archive.write.series import WarcSeries
from tests.archive.captures import capture, finished, options
from tests.archive.payloads.keeper import digest_of, original_of

if TYPE_CHECKING:
    from pathlib import Path


def kept(index: Path, archive: Path, uploaded: set[str] | None = None) -> bool:
    """Return whether an index is still there after another start has compared its files."""
    forget_others(index, archive, uploaded or set())
    found = PayloadIndex(index, most=1000, warn=pytest.fail)
    known = found.find(digest_of(1)) == original_of(1)
    found.close()
    return known


@pytest.fixture
def placed(tmp_path: Path) -> tuple[Path, Path]:
    """Write two files with an index of their payloads, one of them begun in this run's course."""
    index, archive = tmp_path / "index", tmp_path / "warc"
    archive.mkdir()
    payloads = PayloadIndex(index, most=1000, warn=pytest.fail)
    files = WarcSeries(archive, options(), payloads)
    files.append(capture(1))
    files.close()
    note_place(index, archive, set())
    files.append(capture(2))
    files.close()
    payloads.add(digest_of(1), original_of(1))
    payloads.sync()
    payloads.close()
    return index, archive


def test_index_is_kept_while_its_files_are_in_place(placed: tuple[Path, Path]) -> None:
    assert kept(*placed)


@pytest.mark.parametrize("which", [0, 1])
def test_index_is_dropped_when_one_of_its_files_is_gone(
    placed: tuple[Path, Path], which: int
) -> None:
    finished(placed[1])[which].unlink()
    assert not kept(*placed)


def test_index_of_uploaded_files_is_kept(placed: tuple[Path, Path]) -> None:
    index, archive = placed
    names = {path.name for path in finished(archive)}
    for name in names:
        (archive / name).unlink()
    assert kept(index, archive, names)
    note_place(index, archive, names)
    assert not kept(index, archive)


def test_index_of_another_folder_is_dropped(placed: tuple[Path, Path]) -> None:
    """The other folder is a copy of the same name."""
    index, archive = placed
    names = [path.name for path in finished(archive)]
    archive.rename(archive.with_name("old"))
    archive.mkdir()
    for name in names:
        (archive / name).touch()
    assert not kept(index, archive)


def test_index_without_a_note_is_dropped(placed: tuple[Path, Path]) -> None:
    (placed[0] / "of").unlink()
    assert not kept(*placed)
