"""A folder of WARC files packed into one WACZ 1.1.1 (https://specs.webrecorder.net/wacz/1.1.1/).

Not by the ``wacz`` package: that reads all records again for an index that is here already, keeps
all pages in memory, and reads what it has written once more for its digests.
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

from krowlspider.archive.cdxj import index_path, timestamp, written_durably
from krowlspider.archive.indexes import merged, parsed
from krowlspider.archive.lookup import header, record_at
from krowlspider.archive.payload import payload_of
from krowlspider.urls.canonical import normalise
from krowlspider.urls.links import read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import IO

    # A step of long work begins, of so many bytes: what is called with the bytes of each part done.
    Watch = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]
    # The body of a payload in these content codings; ValueError when it is not in them.
    Decode = Callable[[bytes, str], bytes]

VERSION = "1.1.1"
# Lines of the index that are compressed together, as in the ``wacz`` package: what a reader fetches for one URL.
_BLOCK = 1024
_PIECE = 1024 * 1024
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)
# Names of resources, by the schema of Data Packages.
_NOT_IN_NAME = re.compile("[^-a-z0-9._/]")


@dataclass(slots=True)
class Packed:
    """The files that are in it, and how many pages are listed."""

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
    """Pack finished files, each with its index beside it, into ``out``, durably.

    The files are stored as they are, the index in compressed blocks (``index.cdx.gz`` and ``index.idx``), HTML
    with status 200 as pages. One that is gone when its turn comes, uploaded and removed, is passed over. In memory are
    a megabyte, a record, 250 bytes for each page of one file, and 150 for a thousand captures; the list of pages waits
    beside ``out``. ``created`` is in seconds since the epoch. Raises ArchiveError when an index is broken, OSError.
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
            # Once it is open, it may go.
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
    """A ZIP file and the list of what is in it."""

    def __init__(self, archive: ZipFile, created: float):
        self._archive = archive
        self._moment = time.gmtime(created)
        self._resources: list[dict[str, object]] = []
        self._names: set[str] = set()

    @contextmanager
    def entry(self, path: str, *, packed: bool) -> Iterator[_Hashed]:
        """Something of any size that goes in, to be written."""
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
        """Put a file in as it is."""
        with self.entry(path, packed=False) as target:
            while piece := source.read(_PIECE):
                target.write(piece)
                told(len(piece))

    def finish(self, software: str) -> None:
        """Say what is in it."""
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
    """A stream of an entry, and the size and digest of what was written to it."""

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
    """The lines in blocks, each a gzip member, and a list of the blocks by their first lines (ZipNum)."""
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
    """List a file's HTML pages with their titles, in the order of their records; how many."""
    pages = _pages_of(index_path(warc))
    with watch(f"pages of {warc.name}", sum(page[1] for page in pages)) as told:
        for offset, length, url, stamp in pages:
            page = _page(url, stamp, title_of(stream, offset, url, decode))
            out.write(f"{json.dumps(page)}\n".encode())
            told(length)
    return len(pages)


def _pages_of(index: Path) -> list[tuple[int, int, str, str]]:
    """Offset, length, URL and time of a file's pages, in order."""
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
    """The title of the page whose record is at ``offset``, empty when it has none or cannot be decoded."""
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
