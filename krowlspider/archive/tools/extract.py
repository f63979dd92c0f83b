"""Copy captures and the records that belong to them into new WARC files.

`extract` copies those that a person chooses, `copy_originals` the records of other crawls to which
the revisits of a crawl refer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive import cdxj, gemini
from krowlspider.archive.cdxj import REVISIT, IndexLine, index_file, index_path, write_index
from krowlspider.archive.disk import ArchiveError, RecordError, write_durably
from krowlspider.archive.indexes import SoughtOriginals, parsed_lines
from krowlspider.archive.payload import Decode, media_type
from krowlspider.archive.reading import Advance, GzipMember, ignore, read_member
from krowlspider.archive.tools.inputs import records_of, refuse_same
from krowlspider.urls.gemini import host_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from fastwarc.warc import WarcRecord


_GZIP_MAGIC = b"\x1f\x8b"
_SUFFIX = re.compile(r"\.warc(\.gz|\.zst)?$")
# Records whose captures are chosen, beside which others are only taken along.
_CHOSEN = frozenset({"response", "revisit", "resource"})
_PORT = re.compile(r":[0-9]*$")


@dataclass(frozen=True, slots=True)
class CaptureChoice:
    """Which captures to extract: those that fit every value that is not empty.

    ``begin`` and ``end`` are timestamps of 14 digits, both included. ``surt`` is the beginning of a
    key, ``host`` a name or address, ``mime`` a media type or its beginning up to the slash. Without
    a port, a host is that of all ports; Gemini servers have names with the port always.
    """

    url: str = ""
    surt: str = ""
    host: str = ""
    mime: str = ""
    status: str = ""
    begin: str = ""
    end: str = ""

    def fits(self, line: IndexLine, mime: str) -> bool:
        return (
            line.url.startswith(self.url)
            and line.key.startswith(self.surt)
            and (not self.host or self.host in _hosts_of(line.url))
            and (self.mime in {"", mime} or (self.mime[-1] == "/" and mime.startswith(self.mime)))
            and self.status in {"", line.status}
            and self.begin <= line.timestamp <= (self.end or "9")
        )


def _hosts_of(url: str) -> set[str]:
    """Return the host of a URL without its port, with the port written in it, and as the name of a
    Gemini server."""
    scheme, _, rest = url.lower().partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    name = _PORT.sub("", authority)
    found = {name, authority}
    return found | {host_in(authority)} if scheme == "gemini" else found


@dataclass
class Extracted:
    """What was copied to ``files``; ``damaged`` are input files with place and reason.

    ``missing`` counts chosen revisits whose original is not in the input, or that name none.
    """

    files: list[Path] = field(default_factory=list)
    captures: int = 0
    records: int = 0
    missing: int = 0
    damaged: list[tuple[str, int, str]] = field(default_factory=list)


def extract(
    paths: Sequence[Path],
    choice: CaptureChoice,
    out: Path,
    compress: Callable[[bytes], bytes],
    *,
    decode: Decode,
    advance: Advance = ignore,
) -> Extracted:
    """Copy the chosen captures of finished files to the folder ``out``, with new indexes.

    gzip members are copied as they are; ``compress`` makes one of any other record. ``decode``
    undoes content codings, where a media type shows in a body alone. With a capture go its request
    and metadata, its warcinfo record, and the original of a revisit. The files are read three
    times; ``advance`` is called with each member's length in bytes. Memory holds about 200 bytes
    for each chosen capture. Raises OSError.

    :raises KrowlError: two input files would have the same name
    """
    names = [_SUFFIX.sub(cdxj.WARC, path.name) for path in paths]
    refuse_same(zip(names, map(str, paths), strict=True), " but for its ending")
    found = Extracted()
    wanted = _Wanted()
    for path in paths:
        for member, record in records_of(path, advance, found.damaged):
            line, block = _line(member, record, path.name)
            if line is None:
                continue
            # Found only if it is asked for.
            mime = _media_type(record, line, block, decode) if choice.mime else ""
            if choice.fits(line, mime):
                found.captures += 1
                wanted.add(record, line, path)
    for path in paths:
        for member, record in records_of(path, advance, []):
            line, _ = _line(member, record, path.name)
            if line is not None:
                wanted.add_original(record, line, path)
    found.missing = len(wanted.originals)
    for path, name in zip(paths, names, strict=True):
        if path in wanted.files:
            with write_durably(out / name) as file:
                for stored in _chosen(path, wanted, compress, advance):
                    file.write(stored)
                    found.records += 1
            found.files.append(out / name)
    for path in found.files:
        cdxj.write_index(path, sorted(cdxj.index_file(path)))
    return found


class _Wanted:
    """The records to copy, by their ids, and the files that have them."""

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.originals = SoughtOriginals()
        self._ids: set[str] = set()
        self._infos: set[str] = set()

    def add(self, record: WarcRecord, line: IndexLine, path: Path) -> None:
        self._take(record, path)
        if line.mime == cdxj.REVISIT:
            self.originals.add(record.headers, line.digest)

    def add_original(self, record: WarcRecord, line: IndexLine, path: Path) -> None:
        if self.originals.found(line):
            self._take(record, path)

    def _take(self, record: WarcRecord, path: Path) -> None:
        fields = record.headers
        self.files.add(path)
        # Other writers name the request in the response.
        self._ids.update(_ids(record, "WARC-Record-ID"), _ids(record, "WARC-Concurrent-To"))
        self._infos.add(fields.get("WARC-Warcinfo-ID") or "")

    def has(self, record: WarcRecord) -> bool:
        kind, ids = record.headers.get("WARC-Type"), _ids(record, "WARC-Record-ID")
        if kind == "warcinfo":
            return not self._infos.isdisjoint(ids)
        beside = _ids(record, "WARC-Concurrent-To") if kind not in _CHOSEN else []
        return not self._ids.isdisjoint([*ids, *beside])


def _ids(record: WarcRecord, name: str) -> list[str]:
    return list(record.headers.get_multiple(name))


def _line(member: GzipMember, record: WarcRecord, file: str) -> tuple[IndexLine | None, bytes]:
    """Return the index line of a record that may be chosen, and its block."""
    if record.headers.get("WARC-Type") not in _CHOSEN:
        return None, b""
    block = record.reader.read()
    return cdxj.capture_of(record, block, member, file), block


def _media_type(record: WarcRecord, line: IndexLine, block: bytes, decode: Decode) -> str:
    content = record.headers.get("Content-Type") or ""
    if gemini.is_gemini(content):
        return gemini.read(block).type.essence
    return media_type(block, decode) if content.startswith("application/http") else line.mime


def _chosen(
    path: Path, wanted: _Wanted, compress: Callable[[bytes], bytes], advance: Advance
) -> Iterator[bytes]:
    """Yield each wanted record of a file as a gzip member."""
    with path.open("rb") as stream:
        is_gzip = stream.read(2) == _GZIP_MAGIC
        for member, record in records_of(path, advance, []):
            if wanted.has(record):
                stream.seek(member.offset)
                yield stream.read(member.length) if is_gzip else compress(member.content)


@dataclass
class Originals:
    """Copied files, the number of records in them, and of revisits whose original is missing."""

    files: list[Path] = field(default_factory=list)
    copied: int = 0
    missing: int = 0


def copy_originals(
    warcs: Sequence[Path], indexes: Sequence[Path], others: Sequence[Path], out: Path
) -> Originals:
    """Copy to ``out`` the originals that the crawl of ``warcs`` lacks and ``others`` have.

    All are finished files with their indexes beside them. ``indexes`` are those of the crawl, also
    of files that are no longer there. Each copy has the name of its file, unless that is taken, and
    begins with its warcinfo record. Memory holds about 100 bytes for each body that only revisits
    have, and 300 for each original to copy. Raises OSError.

    :raises ArchiveError: an index is broken, or a record to copy is damaged
    """
    found = Originals()
    sought = _sought(warcs, indexes)
    names = {warc.name for warc in warcs}
    for other in others:
        lines = [line for line in _lines(index_path(other)) if sought.found(line)]
        if not lines:
            continue
        name = other.name
        while name in names:
            name = f"other-{name}"
        names.add(name)
        with other.open("rb") as stream, write_durably(out / name) as file:
            try:
                for member in _members(stream, sorted({line.offset for line in lines})):
                    file.write(member)
            except RecordError as error:
                raise ArchiveError(f"{other} is damaged {error}: mend or leave it out") from error
        found.files.append(out / name)
        found.copied += len(lines)
    for path in found.files:
        write_index(path, sorted(index_file(path)))
    found.missing = len(sought)
    return found


def _sought(warcs: Sequence[Path], indexes: Sequence[Path]) -> SoughtOriginals:
    """Return the originals that the revisits of ``warcs`` refer to and ``indexes`` lack."""
    alone = {line.digest for line in _all(indexes) if line.mime == REVISIT and line.digest}
    alone.difference_update(line.digest for line in _all(indexes) if line.mime != REVISIT)
    sought = SoughtOriginals()
    for warc in warcs if alone else ():
        with warc.open("rb") as stream:
            for line in _lines(index_path(warc)):
                if line.mime == REVISIT and line.digest in alone:
                    try:
                        fields = read_member(stream, line.offset).record().headers
                    except RecordError:
                        continue
                    sought.add(fields, line.digest, line.url)
    # A digest may be spelt in two ways.
    for line in _all(indexes) if sought else ():
        sought.found(line)
    return sought


def _all(indexes: Iterable[Path]) -> Iterator[IndexLine]:
    for index in indexes:
        yield from _lines(index)


def _lines(index: Path) -> Iterator[IndexLine]:
    with index.open("rb") as file:
        yield from parsed_lines(index, file)


def _members(stream: BinaryIO, offsets: Iterable[int]) -> Iterator[bytes]:
    """Yield the warcinfo at the beginning, and the gzip members at offsets, as they are stored."""
    for offset in (0, *offsets):
        member = read_member(stream, offset)
        if offset or member.record().headers.get("WARC-Type") == "warcinfo":
            stream.seek(offset)
            yield stream.read(member.length)
