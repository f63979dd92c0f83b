"""Pack a folder of WARC files into one WACZ 1.1.1 (https://specs.webrecorder.net/wacz/1.1.1/).

The ``wacz`` package is not used. It reads all records again for an index that exists already. It
also keeps all pages in memory, and reads its output once more for the digests.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO
from uuid import NAMESPACE_URL, uuid5
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from krowlspider.archive.index.cdxj import index_path, timestamp, written_durably
from krowlspider.archive.index.indexes import merged, parsed
from krowlspider.archive.index.lookup import header, record_at
from krowlspider.archive.payloads.payload import payload_of
from krowlspider.urls.canonical import normalise
from krowlspider.urls.page.links import read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import IO

    # Begins a step of a name and a size in bytes; yields a function of the bytes of each part.
    Watch = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]
    # Returns a payload's body without these content codings; raises ValueError if it has others.
    Decode = Callable[[bytes, str], bytes]

VERSION = "1.1.1"
# Index lines compressed together, as in the ``wacz`` package; a reader fetches one such block.
_BLOCK = 1024
_PIECE = 1024 * 1024
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)
# Characters that the schema of Data Packages does not allow in the name of a resource.
_NOT_IN_NAME = re.compile("[^-a-z0-9._/]")


@dataclass(slots=True)
class Packed:
    """The WARC files in the WACZ, and the number of pages listed."""

    warcs: list[Path] = field(default_factory=list)
    pages: int = 0


def pack(
    warcs: Sequence[Path],
    out: Path,
    *,
    software: str,
    created: float,
    decode: Decode,
    watch: Watch,
) -> Packed:
    """Pack finished files, each with its index beside it, durably into ``out``.

    WARC files are stored unchanged. The index is stored in compressed blocks (``index.cdx.gz`` and
    ``index.idx``). HTML with status 200 is listed as pages. A file that was uploaded and removed in
    the meantime is skipped. ``created`` is in seconds since the epoch.

    Memory holds a megabyte, a record, about 250 bytes for each page of one file, and about 150 for
    1,000 captures. A temporary folder beside ``out`` holds the list of pages.

    :raises ArchiveError: an index is broken
    :raises RecordError: the record of a page is broken
    :raises OSError: a file cannot be read, or ``out`` cannot be written
    """
    packed = Packed()
    with (
        TemporaryDirectory(prefix=".packing-", dir=out.parent) as scratch,
        written_durably(out) as file,
        ZipFile(file, "w") as archive,
        Path(scratch, "pages").open("w+b") as pages,
    ):
        package = _Package(archive, created)
        for warc in warcs:
            try:
                stream = warc.open("rb")
            except FileNotFoundError:
                continue
            # An open file may be removed: its content stays readable.
            with stream:
                with watch(warc.name, os.fstat(stream.fileno()).st_size) as told:
                    package.copy(f"archive/{warc.name}", stream, told)
                packed.pages += _list_pages(warc, stream, pages, decode, watch)
            packed.warcs.append(warc)
        indexes = [index_path(warc) for warc in packed.warcs]
        _pack_index(package, merged(indexes, Path(scratch)), watch, indexes)
        _pack_pages(package, pages)
        package.finish(software)
    return packed


class _Package:
    """A ZIP file and the list of its resources."""

    def __init__(self, archive: ZipFile, created: float):
        self._archive = archive
        self._moment = time.gmtime(created)
        self._resources: list[dict[str, object]] = []
        self._names: set[str] = set()

    @contextmanager
    def entry(self, path: str, *, packed: bool) -> Iterator[_Hashed]:
        """Yield a stream to write an entry of any size; on exit list it as a resource."""
        with self._archive.open(self._info(path, packed=packed), "w", force_zip64=True) as stream:
            hashed = _Hashed(stream)
            yield hashed
        name = _NOT_IN_NAME.sub("-", Path(path).name.lower())
        if name in self._names:
            name = f"{len(self._names)}-{name}"
        self._names.add(name)
        self._resources.append(
            {"name": name, "path": path, "hash": hashed.digest, "bytes": hashed.size}
        )

    def copy(self, path: str, source: BinaryIO, told: Callable[[int], object]) -> None:
        """Store a file unchanged; ``told`` is called with the bytes of each piece."""
        with self.entry(path, packed=False) as target:
            while piece := source.read(_PIECE):
                target.write(piece)
                told(len(piece))

    def finish(self, software: str) -> None:
        """Write ``datapackage.json``, the list of the resources, and its digest."""
        package = {
            "profile": "data-package",
            "resources": self._resources,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", self._moment),
            "wacz_version": VERSION,
            "software": software,
        }
        text = json.dumps(package, indent=2).encode()
        digest = {"path": "datapackage.json", "hash": _sha256(text)}
        for path, content in (
            ("datapackage.json", text),
            ("datapackage-digest.json", json.dumps(digest, indent=2).encode()),
        ):
            self._archive.writestr(self._info(path, packed=True), content)

    def _info(self, path: str, *, packed: bool) -> ZipInfo:
        info = ZipInfo(path, self._moment[:6])
        info.compress_type = ZIP_DEFLATED if packed else ZIP_STORED
        info.external_attr = 0o644 << 16
        return info


class _Hashed:
    """The stream of an entry, with the size in bytes and the digest of all that was written."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, content: bytes) -> None:
        self._stream.write(content)
        self._hash.update(content)
        self.size += len(content)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def _pack_index(
    package: _Package, lines: Iterator[bytes], watch: Watch, indexes: Iterable[Path]
) -> None:
    """Write the lines in blocks, each a gzip member, and a list of the blocks (ZipNum).

    The list holds the key and time of the first line of each block.
    """
    size = sum(index.stat().st_size for index in indexes)
    meta = {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}
    blocks = [f"!meta 0 {json.dumps(meta)}\n"]
    with package.entry("indexes/index.cdx.gz", packed=False) as entry, watch("index", size) as told:
        while block := _some(lines):
            member = gzip.compress(b"".join(block), mtime=0)
            values = {"offset": entry.size, "length": len(member), "digest": _sha256(member)}
            first = block[0].decode().partition("{")[0]
            blocks.append(f"{first}{json.dumps(values)}\n")
            entry.write(member)
            told(sum(map(len, block)))
    with package.entry("indexes/index.idx", packed=True) as entry:
        entry.write("".join(blocks).encode())


def _some(lines: Iterator[bytes]) -> list[bytes]:
    return [line for line, _ in zip(lines, range(_BLOCK), strict=False)]


def _list_pages(warc: Path, stream: BinaryIO, out: BinaryIO, decode: Decode, watch: Watch) -> int:
    """Write a file's HTML pages with titles to ``out``, in the order of their records.

    Return the number of pages.
    """
    pages = _pages_of(index_path(warc))
    with watch(f"pages of {warc.name}", sum(page[1] for page in pages)) as told:
        for offset, length, url, stamp in pages:
            page = _page(url, stamp, title_of(stream, offset, url, decode))
            out.write(f"{json.dumps(page)}\n".encode())
            told(length)
    return len(pages)


def _pages_of(index: Path) -> list[tuple[int, int, str, str]]:
    """Return offset, length, URL and timestamp of a file's pages, sorted by offset."""
    with index.open("rb") as file:
        return sorted(
            (line.offset, line.length, line.url, line.timestamp)
            for line in parsed(index, file)
            if line.status == "200" and line.mime in _PAGES and not line.is_bare
        )


def _pack_pages(package: _Package, pages: BinaryIO) -> None:
    head = {"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}
    pages.seek(0)
    with package.entry("pages/pages.jsonl", packed=True) as entry:
        entry.write(f"{json.dumps(head)}\n".encode())
        while piece := pages.read(_PIECE):
            entry.write(piece)


def _page(url: str, stamp: str, title: str) -> dict[str, str]:
    full = timestamp(stamp)
    date = f"{full[:4]}-{full[4:6]}-{full[6:8]}"
    page = {
        "id": str(uuid5(NAMESPACE_URL, f"{stamp}/{url}")),
        "url": url,
        "ts": f"{date}T{full[8:10]}:{full[10:12]}:{full[12:]}Z",
    }
    return page | ({"title": title} if title else {})


def title_of(stream: BinaryIO, offset: int, url: str, decode: Decode) -> str:
    """Return the title of the page whose record is at ``offset``.

    Empty if it has no title, cannot be decoded, or has an invalid URL.

    :raises RecordError: the record is broken
    :raises OSError: the file cannot be read
    """
    _, message = record_at(stream, offset)
    known = normalise(url)
    try:
        body = decode(payload_of(message), header(message, "Content-Encoding"))
    except ValueError:
        return ""
    charset = _CHARSET.search(header(message, "Content-Type"))
    return read_page(body, known, charset[1] if charset else None).title if known else ""


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
