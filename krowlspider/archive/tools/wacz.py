"""Pack a folder of WARC files into one WACZ, with a list of its pages.

The format is WACZ 1.1.1 (https://specs.webrecorder.net/wacz/1.1.1/). The ``wacz`` package is not
used. It reads all records again for an index that exists already. It also keeps all pages in
memory, and reads its output once more for the digests.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from uuid import NAMESPACE_URL, uuid5
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from krowlspider.archive.cdxj import REVISIT, SEEDS_URI, index_path, timestamp
from krowlspider.archive.disk import ArchiveError, RecordError, write_durably
from krowlspider.archive.indexes import FileDamage, lines_with, merged, parsed_lines
from krowlspider.archive.payload import Decode, body_of, header, type_of
from krowlspider.archive.reading import Advance, ignore, read_member, read_record
from krowlspider.urls.canonical import normalise
from krowlspider.urls.encoding import HTML, computed_type
from krowlspider.urls.page.headers import escape_octets
from krowlspider.urls.page.links import read_text
from krowlspider.urls.seeds import BadSeed, parse_seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Begins a step of a name and a size in bytes.
Progress = Callable[[str, int], AbstractContextManager[Advance]]


class PageLists:
    """The lists of pages: seeds and others. Without known seeds all pages are in the first list.

    ``main`` is the first page of the URL ``wanted``, else of a seed; None without such a page.
    """

    def __init__(self, listed: BinaryIO, others: BinaryIO, seeds: set[str], wanted: str) -> None:
        self._listed, self._others = listed, others
        self._seeds = seeds
        self._wanted = wanted
        self.count = 0
        self.main: dict[str, str] | None = None
        _write_json(listed, _head("pages", "Seed Pages" if seeds else "All Pages"))
        _write_json(others, _head("extra-pages", "Non-Seed Pages"))

    def add(self, page: dict[str, str]) -> None:
        is_seed = page["url"] in self._seeds
        is_main = page["url"] == self._wanted if self._wanted else is_seed
        if is_main and self.main is None:
            self.main = page
        self.count += 1
        file = self._listed if is_seed or not self._seeds else self._others
        _write_json(file, {**page, "seed": True} if is_seed else page)

    def lists(self) -> Iterator[tuple[str, BinaryIO]]:
        """Yield the file name of each list in the package, and its content."""
        lists = {"pages.jsonl": self._listed}
        if self._seeds:
            lists["extraPages.jsonl"] = self._others
        for name, file in lists.items():
            file.seek(0)
            yield name, file


def _head(identity: str, title: str) -> dict[str, object]:
    return {"format": "json-pages-1.0", "id": identity, "title": title, "hasText": True}


def list_pages(
    warc: Path,
    stream: BinaryIO,
    out: PageLists,
    decode: Decode,
    progress: Progress,
    *,
    damage: FileDamage,
) -> None:
    """Add a file's HTML pages to ``out``, by the order of their records."""
    pages = _pages_of(index_path(warc))
    with progress(f"pages of {warc.name}", sum(page.length for page in pages)) as advance:
        for page in pages:
            found: tuple[str, str] | None = ("", "")
            try:
                found = _read(stream, page, decode)
            except RecordError as error:
                damage(warc, error)
            if found is not None:
                out.add(_page(page.url, page.stamp, *found))
            advance(page.length)


class _Listed(NamedTuple):
    """The place of a capture in a file, and that of its payload: None if it is in no known place.

    A doubtful one may be of anything: a revisit, or a response without a usable media type.
    """

    offset: int
    length: int
    url: str
    stamp: str
    content: int | None
    is_doubtful: bool


def _pages_of(index: Path) -> list[_Listed]:
    """Return a file's pages, and what is doubtful, sorted by offset."""
    found: list[_Listed] = []
    # The places of the revisits in ``found``, and their digests.
    revisits: dict[int, str] = {}
    with index.open("rb") as file:
        for line in parsed_lines(index, file):
            if line.status != "200" or line.is_bare or line.method:
                continue
            is_revisit = line.mime == REVISIT
            if is_revisit and line.digest:
                revisits[len(found)] = line.digest
            named = computed_type([line.mime.encode()], (), b"").essence
            if is_revisit or not named or named in HTML:
                content = None if is_revisit else line.offset
                place = (line.offset, line.length, line.url, line.timestamp)
                found.append(_Listed(*place, content, is_revisit or not named))
        if revisits:
            file.seek(0)
            wanted = set(revisits.values())
            originals = {
                line.digest: line.offset
                for line in parsed_lines(index, file)
                if line.digest in wanted and line.mime != REVISIT
            }
            for at, digest in revisits.items():
                found[at] = found[at]._replace(content=originals.get(digest))
    return sorted(found)


def _page(url: str, stamp: str, title: str, text: str) -> dict[str, str]:
    full = timestamp(stamp)
    date = f"{full[:4]}-{full[4:6]}-{full[6:8]}"
    page = {
        "id": str(uuid5(NAMESPACE_URL, f"{stamp}/{url}")),
        "url": url,
        "ts": f"{date}T{full[8:10]}:{full[10:12]}:{full[12:]}Z",
    }
    return page | {name: value for name, value in (("title", title), ("text", text)) if value}


def _read(stream: BinaryIO, page: _Listed, decode: Decode) -> tuple[str, str] | None:
    """Return the title and the text of a page, None if it is no page.

    They are empty if it has none, cannot be decoded, or is not in this file.
    """
    head, body = _message(stream, page.offset), b""
    if page.content is not None:
        message = head if page.content == page.offset else _message(stream, page.content)
        with suppress(ValueError):
            body = body_of(message, decode)
    media_type, charset = type_of(head, body)
    if page.is_doubtful and media_type not in HTML:
        return None
    return read_text(body, charset)


def _message(stream: BinaryIO, offset: int) -> bytes:
    message: bytes = read_member(stream, offset).record().reader.read()
    return message


def _write_json(file: BinaryIO, values: Mapping[str, object]) -> None:
    file.write(f"{json.dumps(values)}\n".encode())


_REDIRECT = re.compile(rb'"status": ?"30[12378]"')
# Redirects followed from a seed, as by a crawl.
_REDIRECTS_MAX = 10


def seed_urls(warcs: Sequence[Path], damage: FileDamage) -> set[str]:
    """Return the seeds that the files hold, and the URLs that these were redirected to.

    The set is empty if no crawl has archived its seeds. A file that is gone is skipped. A damaged
    record is skipped too, and ``damage`` is called with its file and its error.

    :raises ArchiveError: an index is broken
    """
    found = new = set(_archived_seeds(warcs, damage))
    for _ in range(_REDIRECTS_MAX):
        if not new:
            break
        new = set(_targets(warcs, new, damage)) - found
        found = found | new
    return found


def _archived_seeds(warcs: Sequence[Path], damage: FileDamage) -> Iterator[str]:
    for warc in warcs:
        for line in lines_with(index_path(warc), f"{SEEDS_URI} "):
            for each in _block(warc, line.offset, damage).splitlines():
                yield from _urls_in(each)


def _urls_in(line: bytes) -> Iterator[str]:
    """Yield the URL of a seed, and also that with http if the seed has no scheme."""
    try:
        seed = parse_seed(line)
    except BadSeed:
        return
    if seed is not None:
        yield seed.url
        if seed.bare and (plain := normalise(f"http{seed.url.removeprefix('https')}")):
            yield plain


def _targets(warcs: Sequence[Path], urls: set[str], damage: FileDamage) -> Iterator[str]:
    """Yield where ``urls`` were redirected to."""
    for warc in warcs:
        index = index_path(warc)
        with index.open("rb") as file:
            for line in parsed_lines(index, filter(_REDIRECT.search, file)):
                if line.url not in urls:
                    continue
                message = _block(warc, line.offset, damage)
                location = escape_octets(header(message, "Location").encode("latin-1"))
                if target := normalise(location, line.url):
                    yield target


def _block(warc: Path, offset: int, damage: FileDamage) -> bytes:
    """Return the block of a record; empty if it is damaged, or its file is gone."""
    try:
        return read_record(warc, offset)[1]
    except FileNotFoundError:
        return b""
    except RecordError as error:
        damage(warc, error)
        return b""


VERSION = "1.1.1"
# Index lines compressed together, as in the ``wacz`` package; a reader fetches one such block.
_BLOCK = 1024
_PIECE = 1024 * 1024
# Characters that the schema of Data Packages does not allow in the name of a resource.
_NOT_IN_NAME = re.compile("[^-a-z0-9._/]")


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """What ``datapackage.json`` says of the package; what is empty is left out.

    ``main_page`` is the URL that a viewer opens first. Without it, it is the first seed's page.
    """

    title: str = ""
    description: str = ""
    main_page: str = ""


@dataclass(slots=True)
class Packed:
    """The WARC files in the WACZ, and the numbers of captures indexed and of pages listed.

    ``damaged`` are records that could not be read: their file, and the error.
    """

    warcs: list[Path] = field(default_factory=list)
    captures: int = 0
    pages: int = 0
    damaged: list[tuple[Path, RecordError]] = field(default_factory=list)

    def add_damage(self, warc: Path, error: RecordError) -> None:
        self.damaged.append((warc, error))


def pack(
    warcs: Sequence[Path],
    out: Path,
    *,
    software: str,
    created: float,
    decode: Decode,
    progress: Progress,
    about: PackageFacts | None = None,
) -> Packed:
    """Pack finished files, each with its index beside it, durably into ``out``.

    WARC files are stored unchanged. The index is stored in compressed blocks (``index.cdx.gz`` and
    ``index.idx``). HTML with status 200 is listed as pages: the seeds in ``pages.jsonl``, the
    others in ``extraPages.jsonl``; all in the first if no seeds are known. Each has its title and
    the beginning of its text. A page whose record is damaged has neither, nor has a revisit whose
    payload is in another file. A file that was uploaded and removed in the meantime is skipped.
    ``created`` is in seconds since the epoch.

    Memory holds a megabyte, a record, the seeds, about 250 bytes for each page of one file, and
    about 150 for 1,000 captures. A temporary folder beside ``out`` holds the lists of pages.

    The index in the package is read again and its lines are counted before ``out`` gets its name.

    :raises ArchiveError: an index is broken, the index in the package lacks captures, or there is
        no page of the given main page
    :raises OSError: a file cannot be read, or ``out`` cannot be written
    """
    about = about or PackageFacts()
    packed = Packed()
    with (
        TemporaryDirectory(prefix=".packing-", dir=out.parent) as scratch,
        write_durably(out) as file,
    ):
        with (
            ZipFile(file, "w") as archive,
            Path(scratch, "pages").open("w+b") as seeds,
            Path(scratch, "extra").open("w+b") as others,
        ):
            package = _Package(archive, created)
            pages = PageLists(seeds, others, seed_urls(warcs, packed.add_damage), about.main_page)
            for warc in warcs:
                try:
                    stream = warc.open("rb")
                except FileNotFoundError:
                    continue
                # An open file may be removed: its content stays readable.
                with stream:
                    with progress(warc.name, os.fstat(stream.fileno()).st_size) as advance:
                        package.add(f"archive/{warc.name}", _pieces(stream, advance), store=True)
                    packed.captures += _count(index_path(warc))
                    list_pages(warc, stream, pages, decode, progress, damage=packed.add_damage)
                packed.warcs.append(warc)
            indexes = [index_path(warc) for warc in packed.warcs]
            size = sum(index.stat().st_size for index in indexes)
            with progress("index", size) as advance:
                _pack_index(package, merged(indexes, Path(scratch)), advance)
            for name, listed in pages.lists():
                package.add(f"pages/{name}", _pieces(listed))
            packed.pages = pages.count
            if about.main_page and pages.main is None:
                raise ArchiveError(f"{about.main_page} is no page of the archive: give one that is")
            package.finish(software, about, pages.main)
        found = _count_packed(Path(file.name))
        if found != packed.captures:
            raise ArchiveError(
                f"{out} is not written: its index would have {found:,} of"
                f" {packed.captures:,} captures: pack them again"
            )
    return packed


class _Package:
    """A ZIP file and the list of its resources."""

    def __init__(self, archive: ZipFile, created: float):
        self._archive = archive
        self._moment = time.gmtime(created)
        self._resources: list[dict[str, object]] = []
        self._names: set[str] = set()

    def add(self, path: str, pieces: Iterable[bytes], *, store: bool = False) -> None:
        """Write an entry, compressed unless ``store``, and list it as a resource."""
        digest, size = hashlib.sha256(), 0
        info = self._info(path, ZIP_STORED if store else ZIP_DEFLATED)
        with self._archive.open(info, "w", force_zip64=True) as stream:
            for piece in pieces:
                stream.write(piece)
                digest.update(piece)
                size += len(piece)
        name = _NOT_IN_NAME.sub("-", Path(path).name.lower())
        if name in self._names:
            name = f"{len(self._names)}-{name}"
        self._names.add(name)
        labelled = f"sha256:{digest.hexdigest()}"
        self._resources.append({"name": name, "path": path, "hash": labelled, "bytes": size})

    def finish(self, software: str, about: PackageFacts, main: dict[str, str] | None) -> None:
        """Write ``datapackage.json``, the list of the resources, and its digest.

        ``main`` is the entry of the main page in the list of pages: its URL and date are used.
        """
        texts = {"title": about.title, "description": about.description}
        texts |= {"mainPageUrl": main["url"], "mainPageDate": main["ts"]} if main else {}
        package = {
            "profile": "data-package",
            **{name: text for name, text in texts.items() if text},
            "resources": self._resources,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", self._moment),
            "wacz_version": VERSION,
            "software": software,
        }
        text = json.dumps(package, indent=2).encode()
        digest = {"path": "datapackage.json", "hash": _sha256(text)}
        self._archive.writestr(self._info("datapackage.json"), text)
        text = json.dumps(digest, indent=2).encode()
        self._archive.writestr(self._info("datapackage-digest.json"), text)

    def _info(self, path: str, compression: int = ZIP_DEFLATED) -> ZipInfo:
        info = ZipInfo(path, self._moment[:6])
        info.compress_type = compression
        info.external_attr = 0o644 << 16
        return info


def _pieces(stream: BinaryIO, advance: Advance = ignore) -> Iterator[bytes]:
    for piece in iter(partial(stream.read, _PIECE), b""):
        yield piece
        advance(len(piece))


def _pack_index(package: _Package, lines: Iterator[bytes], advance: Advance) -> None:
    """Write the lines in blocks, each a gzip member, and a list of their first lines (ZipNum)."""
    meta = {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}
    places = [f"!meta 0 {json.dumps(meta)}\n"]

    def members() -> Iterator[bytes]:
        offset = 0
        while block := list(islice(lines, _BLOCK)):
            member = gzip.compress(b"".join(block), mtime=0)
            place = {"offset": offset, "length": len(member), "digest": _sha256(member)}
            first = block[0].decode().partition("{")[0]
            places.append(f"{first}{json.dumps(place)}\n")
            offset += len(member)
            yield member
            advance(sum(map(len, block)))

    package.add("indexes/index.cdx.gz", members(), store=True)
    package.add("indexes/index.idx", ["".join(places).encode()])


def _count(index: Path) -> int:
    """Return the number of captures in a sorted index; equal lines are one."""
    with index.open("rb") as lines:
        return sum(1 for _ in groupby(lines, bytes.rstrip))


def _count_packed(wacz: Path) -> int:
    """Return the number of captures that a reader finds by the list of blocks."""
    with ZipFile(wacz) as archive, archive.open("indexes/index.cdx.gz") as index:
        count = 0
        for block in archive.read("indexes/index.idx").splitlines()[1:]:
            place = json.loads(block[block.index(b"{") :])
            index.seek(place["offset"])
            count += gzip.decompress(index.read(place["length"])).count(b"\n")
    return count


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
