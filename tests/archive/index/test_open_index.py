"""The index of files that are being written: by reading them, and by the process that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import index_path, index_whole_records
from krowlspider.archive.open_index import OpenFiles, WriterLines
from tests.archive.captures import capture, series
from tests.archive.index.lines import every_kind

if TYPE_CHECKING:
    from pathlib import Path

POST = (
    b"POST /x HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 3\r\n\r\na=1"
)


def nothing() -> None:
    pass


def whole(path: Path) -> list[bytes]:
    return sorted(line.encode() for line in index_whole_records(path))


def test_open_file_is_read_on_as_it_grows(tmp_path: Path):
    """At each record, and where one is half written, both have what a whole reading has."""
    files, found = series(tmp_path), OpenFiles(tmp_path)
    by_writer = WriterLines(lambda: files.open_lines)
    assert found.read_on(nothing) == by_writer.read_on(nothing) == {}
    for number in range(12):
        files.append(capture(number, request=POST if number % 3 else None))
        [path] = tmp_path.iterdir()
        expected = {path.name.removesuffix(".open"): whole(path)}
        assert found.read_on(nothing) == by_writer.read_on(nothing) == expected
        assert len(expected[path.name.removesuffix(".open")]) == number + 1
    files.close()
    assert found.read_on(nothing) == {}
    files.append(capture(99))
    files.abandon()
    [(_, [last])] = by_writer.read_on(nothing).items()
    assert last.startswith(b"org,example)/page/99 ")


def test_half_written_and_cut_back_records(tmp_path: Path):
    path = tmp_path / "a.warc.gz.open"
    written = every_kind(tmp_path / "other")
    whole_bytes = written.read_bytes()
    found = OpenFiles(tmp_path)
    for size in (*range(0, len(whole_bytes), 997), len(whole_bytes), 5000, 0, 9000):
        path.write_bytes(whole_bytes[:size])
        assert found.read_on(nothing)["a.warc.gz"] == whole(path), size
    path.unlink()
    path.write_bytes(whole_bytes)
    [lines] = found.read_on(nothing).values()
    of_file = index_path(written).read_text().replace(written.name, path.name).splitlines(True)
    assert [line.decode() for line in lines] == sorted(of_file)


def test_reading_ends_when_its_client_goes_and_goes_on_later(tmp_path: Path):
    path = tmp_path / "a.warc.gz.open"
    path.write_bytes(every_kind(tmp_path / "other").read_bytes())
    left = [5, 0, 1000]

    def go_on() -> None:
        if not left[0]:
            left.pop(0)
            raise InterruptedError
        left[0] -= 1

    found = OpenFiles(tmp_path)
    for _ in range(2):
        with pytest.raises(InterruptedError):
            found.read_on(go_on)
    assert found.read_on(go_on)["a.warc.gz"] == whole(path)
