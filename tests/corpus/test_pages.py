"""Reading the records of WARC files of any writer."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from krowlspider.corpus.pages import records
from tests.corpus.warcs import html, response

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST, LAST = (response(f"http://a.example/{n}", html(n, words=2_000)) for n in range(2))


def damaged_places(path: Path, content: bytes) -> list[int]:
    """Return the offsets of the damage that is found in a file with this content."""
    path.write_bytes(content)
    places: list[int] = []
    with path.open("rb") as stream:
        for _, record in records(stream, 0, lambda offset, _: places.append(offset)):
            record.reader.read()
    return places


@pytest.mark.parametrize("kept", [12, 60, 150, 300, 1500, -5])
@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["gzip", "plain"])
def test_a_file_that_ends_within_a_record_is_damaged(
    tmp_path: Path, pack: Callable[[bytes], bytes], kept: int
) -> None:
    """Whether it ends in the fields of the record, in the HTTP head or in the body."""
    before, last = pack(FIRST), pack(LAST)
    assert damaged_places(tmp_path / "a", before + last[:kept]) == [len(before)]
    assert damaged_places(tmp_path / "a", before + last) == []


@pytest.mark.parametrize("kept", [60, 1500, -5])
def test_a_file_cut_and_compressed_as_one_is_damaged(tmp_path: Path, kept: int) -> None:
    content = gzip.compress(FIRST + LAST)
    assert damaged_places(tmp_path / "a", content[:kept]) == [0]
    assert damaged_places(tmp_path / "a", content) == []


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n\r\n\r\n"])
def test_lines_behind_a_record_of_another_tool_are_no_damage(tmp_path: Path, end: bytes) -> None:
    content = FIRST.removesuffix(b"\r\n\r\n") + b"\r\n\r\n" + LAST.removesuffix(b"\r\n\r\n") + end
    assert damaged_places(tmp_path / "a", content) == []
