"""Results are read in the order in which they were written, and none is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.cdxj import index_path
from krowlspider.errors import KrowlError
from krowlspider.rpc.results import ArchiveReader, HostFilter
from tests.archive.captures import capture, series, written

if TYPE_CHECKING:
    from pathlib import Path


def all_of(archive: ArchiveReader) -> list[str]:
    """Read to the end; return the URLs."""
    found: list[str] = []
    while True:
        some, is_on = archive.step()
        found += [each.line.url for each in some]
        if not is_on:
            return found


def urls(*numbers: int) -> list[str]:
    return [f"http://a.test/{number}" for number in numbers]


def test_a_stream_reads_open_and_finished_files_once(tmp_path: Path) -> None:
    archive, files = ArchiveReader({"": tmp_path}), series(tmp_path)
    assert all_of(archive) == []
    for number in (0, 1):
        files.append(capture(number, url=urls(number)[0]))
    assert all_of(archive) == urls(0, 1)
    files.append(capture(2, url=urls(2)[0]))
    # It has its index from now on.
    files.close()
    assert all_of(archive) == urls(2)
    again = series(tmp_path)
    again.append(capture(3, url=urls(3)[0]))
    assert all_of(archive) == urls(3)
    again.close()
    assert all_of(archive) == []
    assert archive.missed_files == 0
    assert all_of(ArchiveReader({"": tmp_path})) == urls(0, 1, 2, 3)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_token_goes_on_behind_the_last_result(tmp_path: Path, *, is_finished: bool) -> None:
    files = series(tmp_path)
    tokens = []
    archive = ArchiveReader({"": tmp_path})
    for number in range(5):
        files.append(capture(number, url=urls(number)[0]))
        assert all_of(archive) == urls(number)
        tokens.append(archive.token)
    if is_finished:
        files.close()
    for number, token in enumerate(tokens):
        archive = ArchiveReader({"": tmp_path})
        archive.go_to(token)
        assert all_of(archive) == urls(*range(number + 1, 5))
    if not is_finished:
        files.close()


def test_the_end_may_be_within_a_record_that_is_written(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture(0, url=urls(0)[0]))
    (path,) = tmp_path.glob("*.open")
    whole = path.read_bytes()
    files.append(capture(1, url=urls(1)[0]))
    files.append(capture(2, url=urls(2)[0]))
    every = path.read_bytes()
    path.write_bytes(every[: len(whole) + 20])
    archive = ArchiveReader({"": tmp_path})
    archive.go_to_end()
    assert all_of(archive) == []
    path.write_bytes(every)
    # The first one had begun before.
    assert all_of(archive) == urls(2)
    files.abandon()


def test_each_process_has_its_place(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("p1", "p2")}
    for number, folder in enumerate(folders.values()):
        folder.mkdir()
        files = series(folder)
        files.append(capture(number, url=urls(number)[0]))
        files.close()
    archive = ArchiveReader({"p1": folders["p1"]})
    assert all_of(archive) == urls(0)
    both = ArchiveReader(folders)
    both.go_to(archive.token)
    found, _ = both.step()
    while not found:
        found, _ = both.step()
    assert [(each.process, each.line.url) for each in found] == [("p2", urls(1)[0])]


def test_files_that_were_removed_are_counted(tmp_path: Path) -> None:
    for number in range(3):
        files = series(tmp_path)
        files.append(capture(number, url=urls(number)[0]))
        files.close()
    first, second, _ = sorted(tmp_path.glob("*.warc.gz"))
    archive = ArchiveReader({"": tmp_path})
    archive.step()
    archive.step()
    token = archive.token
    first.unlink()
    index_path(first).unlink()
    # It was uploaded: its index is there.
    second.unlink()
    archive = ArchiveReader({"": tmp_path})
    archive.go_to(token)
    assert all_of(archive) == urls(1, 2)
    assert archive.missed_files == 1


def test_bytes_behind_the_place_are_told(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture(0, url=urls(0)[0]))
    archive = ArchiveReader({"": tmp_path})
    (path,) = tmp_path.glob("*.open")
    assert archive.behind() == path.stat().st_size
    all_of(archive)
    assert archive.behind() == 0
    files.append(capture(1, url=urls(1)[0]))
    archive.go_to_end()
    assert archive.behind() == 0
    files.close()


@pytest.mark.parametrize(
    "token",
    [
        *("x", "[]", '{"p9":["a.warc.gz",0]}', '{"":["../a.warc.gz",0]}', '{"":["a.warc.gz",-1]}'),
        *("{" * 20_000, "\ud800", '{"":["/etc/passwd",0]}', '{"":["passwd",0]}', '{"":["",9]}'),
        *('{"":["\\u0000.warc.gz",0]}', f'{{"":["{"a" * 3000}.warc.gz",0]}}'),
        # Of a crawl that has begun later.
        '{"":["zzz.warc.gz",0]}',
    ],
)
def test_a_foreign_token_is_refused(tmp_path: Path, token: str) -> None:
    written(tmp_path, [capture(0, url=urls(0)[0])])
    with pytest.raises(KrowlError, match="is not of this crawl"):
        ArchiveReader({"": tmp_path}).go_to(token)


def test_a_name_covers_all_below_it() -> None:
    hosts = HostFilter(["Example.org", "b.test"])
    for url in ("http://example.org/", "https://www.example.org:8080/x", "http://u@b.test/"):
        assert hosts.has(url)
    for url in ("http://notexample.org/", "http://org/", "http://c.test/?http://b.test/"):
        assert not hosts.has(url)
    assert HostFilter([]).has("http://c.test/")
    given = ["http://É.test/x", "[::1]"]
    assert all(map(HostFilter(given).has, ("http://xn--9ca.test/", "http://[::1]:8080/")))


@pytest.mark.parametrize("name", ["", " ", "*", "a b", "ftp://a.test/", "a.test:80", "x" * 9000])
def test_a_host_that_no_result_can_have_is_refused(name: str) -> None:
    with pytest.raises(KrowlError, match="hosts: "):
        HostFilter(["a.test", name])
