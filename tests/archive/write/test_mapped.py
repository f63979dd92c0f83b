"""Responses in files become the same records as those in memory, in pieces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import index_file, index_path
from krowlspider.archive.reading import read_members
from krowlspider.archive.write.series import OpenFile
from tests.archive.captures import CHUNKED, ODD, Odd, capture, deduplicating, finished, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# What differs between two captures of the same response.
UNLIKE = re.compile(rb"<urn:uuid:[^>]*>")


@pytest.mark.parametrize(
    ("odd", "compression"),
    [
        (CHUNKED, "isal-1"),
        (ODD["large"], "zlib-ng-6"),
        (ODD["cut off"], "isal-0"),
        (ODD["folded header"], "isal-3"),
    ],
)
def test_mapped_response_has_the_record_of_one_in_memory(
    tmp_path: Path, odd: Odd, compression: str
) -> None:
    """Also as the original of a revisit."""
    contents = []
    for name, make in (("memory", capture), ("mapped", lambda number, odd: mapped(odd, number))):
        folder = tmp_path / name
        with deduplicating(folder, compression=compression) as files:
            files.append(make(1, odd))
            files.append(make(2, odd))
            assert files.stats.bytes_written == files._file.size
        [path] = finished(folder)
        with path.open("rb") as stream:
            members = [member.content for member in read_members(stream)]
        contents.append([UNLIKE.sub(b"", each) for each in members[1:]])
        assert index_path(path).read_text() == "".join(sorted(index_file(path)))
    assert contents[0] == contents[1]


def test_failure_within_a_mapped_response_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    file = OpenFile(path)
    file.append(b"whole")

    def pieces() -> Iterator[bytes]:
        yield b"a part"
        raise OSError(28, "no room")

    with pytest.raises(OSError, match="no room"):
        file.append_pieces(pieces(), b"more")
    assert file.append_pieces(iter([b"an", b"other"]), b"!") == ("a.warc.gz", 5, 7)
    file.sync()
    file.finish()
    assert path.read_bytes() == b"wholeanother!"
