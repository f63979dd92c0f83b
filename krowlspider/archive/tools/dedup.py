"""Build the index of payloads that other crawls have stored, from their CDXJ indexes.

The head of each record tells what an index line does not: whether the body has chunk sizes, the
record id, the exact date, ETag and Last-Modified. A record in a file that was uploaded is known by
its line only.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from msgspec.structs import replace

from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.index.cdxj import INDEX, REVISIT
from krowlspider.archive.index.indexes import indexes_in, parsed
from krowlspider.archive.payloads.dedup_index import DedupWriter, Stored
from krowlspider.archive.payloads.payload import head_bytes, header, is_chunked
from krowlspider.archive.reading import Advance, ignore
from krowlspider.archive.upload.notes import uploaded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from krowlspider.archive.index.cdxj import IndexLine

# Bytes read of a record, compressed, and those of its heads that they may become.
_READ = 16 * 1024
_HEADS_MAX = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS
# WARC files that are open at a time.
_OPEN_MAX = 64
# Fields of records that have part of a payload.
_PARTS = frozenset({"warc-truncated", "warc-segment-number"})
_ID = re.compile("<[!-;=?-~]{1,200}>")
_URL = re.compile("https?://[!-~]{1,16000}")
# WARC 1.1, section 5.4. Python reads more forms, some of which have blanks.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z")


@dataclass(slots=True)
class Built:
    """Numbers of captures: in the index, and left out.

    ``gone`` are in files that are neither there nor noted as uploaded, ``unreadable`` have a record
    that is damaged, ``unknown`` a digest of an unknown form.
    """

    captures: int = 0
    gone: int = 0
    unreadable: int = 0
    unknown: int = 0

    @property
    def left_out(self) -> str:
        """Return which captures are left out, as text; empty if there are none."""
        counts = {
            "in files that are gone": self.gone,
            "cannot be read": self.unreadable,
            "with an unknown digest": self.unknown,
        }
        return ", ".join(f"{count:,} {why}" for why, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class Source:
    """The CDXJ ``indexes`` of a crawl. The ``trusted`` names of WARC files need not be there."""

    indexes: tuple[Path, ...]
    trusted: frozenset[str] | None


def source_at(path: Path) -> Source:
    """Return the indexes of a JOBDIR, of a folder of WARC files, or a CDXJ file.

    Files that are still open are not in it, so another process may be crawling.

    :raises ArchiveError: it is none of these, has no index, or lacks some
    """
    if path.is_file():
        return Source((path,), None)
    for folder in (path / "warc", path):
        if not folder.is_dir():
            continue
        found = indexes_in(folder)
        if found.missing:
            raise ArchiveError(
                f"{found.missing[0]} has no index: scrapy warc index {path} makes it"
            )
        if there := found.there or sorted(folder.glob(f"*{INDEX}")):
            return Source(tuple(there), frozenset(uploaded(folder)))
    raise ArchiveError(
        f"{path} is no JOBDIR with finished WARC files, no CDXJ file, no dedup index"
    )


def build(sources: Sequence[Source], out: Path, advance: Advance = ignore) -> Built:
    """Write the index of the payloads of ``sources`` as the new folder ``out``.

    ``advance`` is called with the length of each index line. Revisits are left out, so that no
    revisit refers to one, and answers to POST, which pywb does not find by their URL.

    :raises ArchiveError: a source is broken
    :raises OSError: a source cannot be read, or ``out`` cannot be written
    """
    built = Built()
    writer = DedupWriter(out)
    try:
        for source in sources:
            for index in source.indexes:
                with index.open("rb") as file, _Heads(index.parent) as heads:
                    _add_all(writer, _lines(index, file, advance), heads, source, built)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return built


def _lines(index: Path, file: BinaryIO, advance: Advance) -> Iterator[IndexLine]:
    def counted_lines() -> Iterator[bytes]:
        for line in file:
            yield line
            advance(len(line))

    return parsed(index, counted_lines())


def _add_all(
    writer: DedupWriter, lines: Iterable[IndexLine], heads: _Heads, source: Source, built: Built
) -> None:
    for line in lines:
        if not _may_be_original(line):
            continue
        try:
            stored = heads.stored(line)
        except FileNotFoundError:
            if source.trusted is not None and line.filename not in source.trusted:
                built.gone += 1
                continue
            stored = _by_line(line)
        except RecordError:
            built.unreadable += 1
            continue
        if stored is None:
            continue
        if writer.add(stored):
            built.captures += 1
        else:
            built.unknown += 1


def _may_be_original(line: IndexLine) -> bool:
    is_post = "__wb_method=" in line.key
    known = bool(line.digest) and _URL.fullmatch(line.url) is not None
    return known and line.mime != REVISIT and not is_post


class _Heads:
    """Reads the heads of records in the WARC files of ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def stored(self, line: IndexLine) -> Stored | None:
        """Return the response at a line; None if no revisit may refer to it.

        :raises FileNotFoundError: its file is not there
        :raises RecordError: it cannot be read
        """
        # Only the name of the file: an index must not lead out of the folder.
        name = Path(line.filename).name
        file = self._files.get(name)
        if file is None:
            if len(self._files) >= _OPEN_MAX:
                self.__exit__()
            file = self._files[name] = (self._folder / name).open("rb")
        file.seek(line.offset)
        return _by_heads(line, file.read(_READ))


def _by_heads(line: IndexLine, member: bytes) -> Stored | None:
    try:
        content = zlib.decompressobj(_GZIP).decompress(member, _HEADS_MAX)
    except zlib.error as error:
        raise RecordError(line.offset, f"not a gzip member: {error}") from error
    head, _, block = content.partition(b"\r\n\r\n")
    if not head.startswith(b"WARC/"):
        raise RecordError(line.offset, "not a WARC record")
    fields = {
        name.lower(): value.strip()
        for name, _, value in (
            each.partition(":") for each in head.decode("latin-1").split("\r\n")[1:]
        )
    }
    if fields.get("warc-type") != "response" or not _PARTS.isdisjoint(fields):
        return None
    found = _by_line(line)
    http = head_bytes(block)
    if found is None or fields.get("warc-target-uri") != line.url or not http:
        return found
    date, identity = fields.get("warc-date", ""), fields.get("warc-record-id", "")
    return replace(
        found,
        date=date if _is_date(date) else found.date,
        identity=identity if _ID.fullmatch(identity) else "",
        chunked=is_chunked(http),
        validators=tuple(filter(None, (header(block, "ETag"), header(block, "Last-Modified")))),
    )


def _by_line(line: IndexLine) -> Stored | None:
    time = line.timestamp
    date = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:{time[10:12]}:{time[12:]}Z"
    # Older indexers leave the label of SHA-1 away.
    digest = line.digest if ":" in line.digest else f"sha1:{line.digest}"
    printable = digest.isascii() and digest.isprintable() and " " not in digest
    return Stored(line.url, date, digest) if printable and _is_date(date) else None


def _is_date(text: str) -> bool:
    """Return whether a date has a time in UTC that can be computed with."""
    try:
        return _DATE.fullmatch(text) is not None and datetime.fromisoformat(text) is not None
    except ValueError:
        return False
