"""Copy the records of other crawls to which the revisits of a crawl refer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import write_durably
from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.index.cdxj import REVISIT, index_file, index_path, write_index
from krowlspider.archive.index.indexes import parsed
from krowlspider.archive.index.lookup import SoughtOriginals
from krowlspider.archive.reading import read_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from krowlspider.archive.index.cdxj import IndexLine


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
        yield from parsed(index, file)


def _members(stream: BinaryIO, offsets: Iterable[int]) -> Iterator[bytes]:
    """Yield the warcinfo at the beginning, and the gzip members at offsets, as they are stored."""
    for offset in (0, *offsets):
        member = read_member(stream, offset)
        if offset or member.record().headers.get("WARC-Type") == "warcinfo":
            stream.seek(offset)
            yield stream.read(member.length)
