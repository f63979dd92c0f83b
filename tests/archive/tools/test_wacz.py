from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_STORED, ZipFile

import pytest
from msgspec.structs import replace

from krowlspider.archive.cdxj import index_path, parse
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.payload import header
from krowlspider.archive.tools.wacz import PackageFacts, Packed, Progress, pack
from krowlspider.archive.write.records import seeds_resource
from tests.archive.captures import ROOT, STARTED, Odd, capture, deduplicating, finished, series
from tests.replay.venv import tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


CREATED = 1767225600.0
HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=latin-1\r\n"
SAME = Odd(HTML + b"\r\n<title>Same</title>", b"<title>Same</title>")
ZIPPED = gzip.compress(b"<title>Packed</title>")
PAGES = {
    "title": (HTML + b"\r\n<title>\n caf\xe9 </title>", "café"),
    "gzip": (HTML + b"Content-Encoding: gzip\r\n\r\n" + ZIPPED, "Packed"),
    "chunked": (
        HTML + b"Transfer-Encoding: chunked\r\n\r\n11\r\n<title>In</title>\r\n0\r\n\r\n",
        "In",
    ),
    "untitled": (HTML + b"\r\n<p>nothing", None),
    "untyped": (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n<title>caf\xe9 \x96</title>", "café –"),
    "unusable": (b"HTTP/1.1 200 OK\r\nContent-Type: */*\r\n\r\n<title>Any</title>", "Any"),
    "broken": (HTML + b"Content-Encoding: gzip\r\n\r\n<title>no gzip</title>", None),
}
OTHERS = {
    "missing": b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n<title>No</title>",
    "text": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n<title>Text</title>",
    "unknown": b"HTTP/1.1 200 OK\r\nContent-Type: */*\r\n\r\nsee <title>Text</title>",
    # A viewer cannot open it by its URL.
    "posted": HTML + b"\r\n<title>The answer to a POST</title>",
}


def archive(directory: Path, count: int = 1) -> list[Path]:
    """Write files with pages and other responses, and ``count`` small pages in a file each."""
    directory.mkdir(exist_ok=True)
    files = series(directory)
    for name, response in [*((name, page[0]) for name, page in PAGES.items()), *OTHERS.items()]:
        kind = header(response, "Content-Type")
        page = capture(odd=Odd(response, response.partition(b"\r\n\r\n")[2]))
        asked = b"POST / HTTP/1.1\r\n\r\n" if name == "posted" else page.request_bytes
        url = f"http://example.org/{name}"
        files.append(replace(page, url=url, media_type=kind, request_bytes=asked))
    files.close()
    for number in range(count):
        files.append(capture(number))
        files.close()
    return finished(directory)


def decode(payload: bytes, codings: str) -> bytes:
    if codings != "gzip":
        return payload
    try:
        return gzip.decompress(payload)
    except gzip.BadGzipFile as error:
        raise ValueError(str(error)) from error


class Steps:
    """The progress that is reported during packing."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self.done: dict[str, int] = {}

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        self.total[what] = total
        self.done[what] = 0

        def advance(size: int) -> None:
            self.done[what] += size

        yield advance


def packed(
    warcs: list[Path],
    out: Path,
    progress: Progress | None = None,
    about: PackageFacts | None = None,
) -> Packed:
    return pack(
        warcs,
        out,
        software="test/1",
        created=CREATED,
        decode=decode,
        progress=progress or Steps(),
        about=about,
    )


def seeded(directory: Path) -> list[Path]:
    """Write three pages: of a seed, of one that was redirected twice, and of no seed."""
    directory.mkdir()
    files = series(directory)
    files.begin_with(
        seeds_resource(b"# ours\nhttp://example.org/page/1\nold.example\nno seed\n", STARTED)
    )
    files.append(capture(3))
    new = "https://new.example/"
    hops = {"http://old.example/": new.encode(), new: b"/page/2"}
    for number, (url, target) in enumerate(hops.items(), 10):
        moved = b"HTTP/1.1 301 Moved Permanently\r\nLocation: " + target + b"\r\n\r\n"
        files.append(capture(number, Odd(moved, b""), url=url))
        files.close()
    files.append(capture(2, url=f"{new}page/2"))
    files.append(capture(1))
    files.close()
    return finished(directory)


def listed(wacz: Path, name: str = "pages") -> list[dict[str, Any]]:
    """Return the pages in a list of a WACZ."""
    with ZipFile(wacz) as archive_file:
        lines = archive_file.read(f"pages/{name}.jsonl").splitlines()
    return list(map(json.loads, lines[1:]))


def pages_in(wacz: Path, name: str) -> list[tuple[str, bool]]:
    """Return the URL of each page in a list, and whether it is marked as a seed."""
    return [(page["url"], page.get("seed", False)) for page in listed(wacz, name)]


def about_in(wacz: Path) -> list[str | None]:
    """Return the title, the description, the main page and its date."""
    with ZipFile(wacz) as archive_file:
        package = json.loads(archive_file.read("datapackage.json"))
    return [package.get(key) for key in ("title", "description", "mainPageUrl", "mainPageDate")]


def test_seeds_are_pages_and_the_others_extra_pages(tmp_path: Path) -> None:
    warcs = seeded(tmp_path / "warc")
    out = tmp_path / "a.wacz"
    assert packed(warcs, out).pages == 3
    redirected, page = "https://new.example/page/2", "http://example.org/page/1"
    assert pages_in(out, "pages") == [(redirected, True), (page, True)]
    assert pages_in(out, "extraPages") == [("http://example.org/page/3", False)]
    date = "2026-01-01T00:00:00Z"
    assert about_in(out) == [None, None, redirected, date]
    packed(warcs, out, about=PackageFacts("A", "B", "http://example.org/page/3"))
    assert about_in(out) == ["A", "B", "http://example.org/page/3", date]
    with pytest.raises(ArchiveError, match=r"^http://example\.org/none is no page of the archive"):
        packed(warcs, tmp_path / "b.wacz", about=PackageFacts(main_page="http://example.org/none"))
    assert not (tmp_path / "b.wacz").exists()


def test_revisits_of_pages_are_pages(tmp_path: Path) -> None:
    """With title and text, if the payload is in the same file."""
    plain = Odd(HTML.replace(b"html", b"plain") + b"\r\nText", b"Text")
    with deduplicating(tmp_path / "warc") as files:
        for number in (1, 2):
            files.append(capture(number, SAME))
            files.append(capture(number + 10, plain))
        files.close()
        files.append(capture(3, SAME))
        files.append(capture(13, plain))
    out = tmp_path / "a.wacz"
    assert packed(finished(tmp_path / "warc"), out).pages == 3
    assert [(page["url"], page.get("title")) for page in listed(out)] == [
        ("http://example.org/page/1", "Same"),
        ("http://example.org/page/2", "Same"),
        ("http://example.org/page/3", None),
    ]


def test_revisits_without_a_digest_have_no_text(tmp_path: Path) -> None:
    """As other tools write them: another capture without a digest has nothing to do with them."""
    with deduplicating(tmp_path / "warc") as files:
        for number in (1, 2):
            files.append(capture(number, SAME))
    (warc,) = finished(tmp_path / "warc")
    index = index_path(warc)
    index.write_text(re.sub(r'"digest": "[^"]*", ', "", index.read_text()))
    out = tmp_path / "a.wacz"
    packed([warc], out)
    assert [page.get("title") for page in listed(out)] == ["Same", None]


def test_wacz_holds_the_files_an_index_and_pages(tmp_path: Path) -> None:
    warcs = archive(tmp_path / "warc")
    out = tmp_path / "a.wacz"
    steps = Steps()
    done = packed(warcs, out, steps)
    assert (done.warcs, done.pages) == (warcs, len(PAGES) + 1)
    assert steps.total == steps.done
    with ZipFile(out) as archive_file:
        assert archive_file.testzip() is None
        for warc in warcs:
            info = archive_file.getinfo(f"archive/{warc.name}")
            assert info.compress_type == ZIP_STORED
            assert archive_file.read(info) == warc.read_bytes()
        lines = [line for warc in warcs for line in index_path(warc).read_bytes().splitlines(True)]
        found = gzip.decompress(archive_file.read("indexes/index.cdx.gz")).splitlines(True)
        assert found == sorted(lines)
        pages = [json.loads(line) for line in archive_file.read("pages/pages.jsonl").splitlines()]
    head = {"format": "json-pages-1.0", "id": "pages", "title": "All Pages", "hasText": True}
    assert pages.pop(0) == head
    assert [(page["url"].rpartition("/")[2], page.get("title")) for page in pages] == [
        *((name, title) for name, (_, title) in PAGES.items()),
        ("0", None),
    ]
    assert {page["ts"] for page in pages} == {"2026-01-01T00:00:00Z"}
    assert len({page["id"] for page in pages}) == len(pages)
    texts = {page["url"].rpartition("/")[2]: page.get("text") for page in pages}
    assert texts == {**dict.fromkeys(PAGES), "untitled": "nothing", "0": "page 0"}


def test_package_lists_size_and_digest_of_each_entry(tmp_path: Path) -> None:
    out = tmp_path / "a.wacz"
    packed(archive(tmp_path / "warc"), out)
    with ZipFile(out) as archive_file:
        text = archive_file.read("datapackage.json")
        package = json.loads(text)
        digest = json.loads(archive_file.read("datapackage-digest.json"))
        assert digest == {
            "path": "datapackage.json",
            "hash": f"sha256:{hashlib.sha256(text).hexdigest()}",
        }
        assert package["wacz_version"] == "1.1.1"
        assert package["created"] == "2026-01-01T00:00:00Z"
        for resource in package["resources"]:
            content = archive_file.read(resource["path"])
            assert resource["bytes"] == len(content)
            assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        listed = {resource["path"] for resource in package["resources"]}
        about = {"datapackage.json", "datapackage-digest.json"}
        assert listed == set(archive_file.namelist()) - about


def test_each_block_of_the_index_is_found_by_its_first_line(tmp_path: Path) -> None:
    count = 3 * 1024 + 2
    files = series(tmp_path)
    for number in range(count):
        files.append(capture(number))
        if number == count // 2:
            files.close()
    files.close()
    out = tmp_path / "a.wacz"
    assert packed(finished(tmp_path), out).captures == count
    with ZipFile(out) as archive_file:
        index = archive_file.read("indexes/index.cdx.gz")
        meta, *blocks = archive_file.read("indexes/index.idx").decode().splitlines()
    assert meta == '!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}'
    assert len(blocks) == 4
    begins = 0
    urls: list[str] = []
    for block in blocks:
        key, stamp, values = block.split(" ", 2)
        place = json.loads(values)
        assert place["offset"] == begins
        member = index[begins : begins + place["length"]]
        assert place["digest"] == f"sha256:{hashlib.sha256(member).hexdigest()}"
        lines = gzip.decompress(member).decode()
        assert lines.startswith(f"{key} {stamp} ")
        urls += [json.loads(line.split(" ", 2)[2])["url"] for line in lines.splitlines()]
        begins += place["length"]
    assert begins == len(index)
    assert sorted(urls) == sorted(f"http://example.org/page/{number}" for number in range(count))


def test_index_that_lacks_captures_leaves_no_file(tmp_path: Path) -> None:
    warcs = archive(tmp_path / "warc")
    index = index_path(warcs[0])
    steps = Steps()

    @contextmanager
    def progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
        if what == "index":
            index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:-1]))
        with steps(what, total) as advance:
            yield advance

    count = len(PAGES) + len(OTHERS) + 1
    lost = f"would have {count - 1} of {count} captures"
    with pytest.raises(ArchiveError, match=lost):
        packed(warcs, tmp_path / "a.wacz", progress)
    assert [path.name for path in tmp_path.iterdir()] == ["warc"]


def test_failed_packing_leaves_no_file(tmp_path: Path) -> None:
    [first, *_] = warcs = archive(tmp_path / "warc")
    index = index_path(first)
    index.write_bytes(b"".join(reversed(index.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ArchiveError, match="is not sorted"):
        packed(warcs, tmp_path / "a.wacz")
    assert [path.name for path in tmp_path.iterdir()] == ["warc"]


def test_damaged_page_is_packed_and_named(tmp_path: Path) -> None:
    """The damage came after the index was made."""
    [warc] = archive(tmp_path / "warc", 0)
    at = min(parse(line).offset for line in index_path(warc).read_bytes().splitlines())
    content = bytearray(warc.read_bytes())
    content[at + 100] ^= 1
    warc.write_bytes(content)
    done = packed([warc], tmp_path / "a.wacz")
    assert [(path, error.offset) for path, error in done.damaged] == [(warc, at)]
    assert (done.pages, done.captures) == (len(PAGES), len(PAGES) + len(OTHERS))


def test_answer_to_head_is_no_page(tmp_path: Path) -> None:
    files = series(tmp_path)
    files.append(capture(odd=Odd(HTML + b"Content-Length: 99\r\n\r\n", b"")))
    files.append(capture(1))
    files.close()
    assert packed(finished(tmp_path), tmp_path / "a.wacz").pages == 1


def test_file_removed_during_packing_is_left_out(tmp_path: Path) -> None:
    first, second, third = archive(tmp_path / "warc", 2)
    steps = Steps()

    @contextmanager
    def progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
        # The first as well, whose pages are read then: it is open.
        first.unlink(missing_ok=True)
        second.unlink(missing_ok=True)
        with steps(what, total) as advance:
            yield advance

    out = tmp_path / "a.wacz"
    done = packed([first, second, third], out, progress)
    assert (done.warcs, done.pages) == ([first, third], len(PAGES) + 1)
    with ZipFile(out) as archive_file:
        names = archive_file.namelist()
        index = gzip.decompress(archive_file.read("indexes/index.cdx.gz")).decode()
    assert [name for name in names if name.startswith("archive/")] == [
        f"archive/{warc.name}" for warc in done.warcs
    ]
    assert {json.loads(line.split(" ", 2)[2])["filename"] for line in index.splitlines()} == {
        warc.name for warc in done.warcs
    }


@pytest.mark.parametrize("stamp", ["2026", "20269999999999"])
def test_broken_line_stops_packing_and_a_wrong_date_does_not(tmp_path: Path, stamp: str) -> None:
    [warc] = archive(tmp_path / "warc", 0)
    index = index_path(warc)
    content = index.read_bytes()
    index.write_bytes(content.replace(b"20260101000000", stamp.encode()))
    assert packed([warc], tmp_path / "a.wacz").pages == len(PAGES)
    lines = content.splitlines(keepends=True)
    index.write_bytes(b"".join([*lines[:2], lines[2][:60] + b"\n", *lines[3:]]))
    with pytest.raises(ArchiveError, match=f"^{index} has a line that is broken: remove it, and"):
        packed([warc], tmp_path / "b.wacz")
    assert not (tmp_path / "b.wacz").exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    """The files have 120 MB, and the process may grow by 40 MB."""
    warc = archive(tmp_path, 0)[0]
    content = warc.read_bytes()
    noise = gzip.compress(bytes(10), mtime=0) + b"\x1f\x8b" + bytes(40_000_000)
    for number in range(3):
        other = tmp_path / f"{number}.warc.gz"
        other.write_bytes(content + noise)
        text = index_path(warc).read_text().replace(warc.name, other.name)
        index_path(other).write_text(text)
    child = (
        "import resource, sys; from pathlib import Path;"
        "from tests.archive.tools.test_wacz import packed;"
        "size = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 40_000_000,) * 2);"
        "folder = Path(sys.argv[1]);"
        "packed(sorted(folder.glob('*.warc.gz')), folder / 'a.wacz')"
    )
    subprocess.run([sys.executable, "-c", child, str(tmp_path)], check=True, cwd=ROOT)
    assert (tmp_path / "a.wacz").stat().st_size > 120_000_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_wacz_tool_finds_it_valid(tmp_path: Path) -> None:
    warcs = [*seeded(tmp_path / "warc"), *archive(tmp_path / "warc")]
    # Names that a resource of a package may not have, alike but for case.
    for name in ("UPPER_case.warc.gz", "upper_CASE.warc.gz"):
        other = warcs[0].with_name(name)
        other.write_bytes(warcs[0].read_bytes())
        lines = index_path(warcs[0]).read_text()
        index_path(other).write_text(lines.replace(warcs[0].name, name))
    out = tmp_path / "a.wacz"
    packed(finished(tmp_path / "warc"), out, about=PackageFacts("A", "B"))
    done = subprocess.run(
        [tool("wacz"), "validate", "-f", out], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "valid" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "the passed WACZ is valid" in done.stdout
