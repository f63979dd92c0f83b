"""Copy the records of other crawls to which the revisits of a crawl refer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.disk import write_durably
from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.index.cdxj import REVISIT, index_path, key_of, timestamp
from krowlspider.archive.index.indexes import make_indexes, parsed
from krowlspider.archive.index.lookup import may_be_same
from krowlspider.archive.reading import read_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from krowlspider.archive.index.cdxj import IndexLine

# Key and timestamp of a capture.
_Place = tuple[str, str]


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
    wanted = _wanted(warcs, indexes)
    names = {warc.name for warc in warcs}
    for other in others:
        lines = [line for line in _lines(index_path(other)) if _take(line, wanted)]
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
    make_indexes(found.files, _raise)
    found.missing = sum(map(len, wanted.values()))
    return found


def _wanted(warcs: Sequence[Path], indexes: Sequence[Path]) -> dict[_Place, list[str]]:
    """Return the digests of the revisits whose original ``indexes`` lack, by its place."""
    alone = {line.digest for line in _all(indexes) if line.mime == REVISIT and line.digest}
    alone.difference_update(line.digest for line in _all(indexes) if line.mime != REVISIT)
    wanted: defaultdict[_Place, list[str]] = defaultdict(list)
    for warc in warcs if alone else ():
        with warc.open("rb") as stream:
            for line in _lines(index_path(warc)):
                if line.mime == REVISIT and line.digest in alone:
                    try:
                        fields = read_member(stream, line.offset).record().headers
                    except RecordError:
                        continue
                    url = fields.get("WARC-Refers-To-Target-URI") or line.url
                    date = fields.get("WARC-Refers-To-Date") or ""
                    wanted[key_of(url), timestamp(date)].append(line.digest)
    # A digest may be spelt in two ways.
    for line in _all(indexes) if wanted else ():
        _take(line, wanted)
    return wanted


def _take(line: IndexLine, wanted: dict[_Place, list[str]]) -> bool:
    """Return whether revisits that refer to a capture are left, and count them as found."""
    digests = wanted.get((line.key, line.timestamp))
    if not digests or line.mime == REVISIT:
        return False
    left = [digest for digest in digests if not may_be_same(line.digest, digest)]
    wanted[line.key, line.timestamp] = left
    return len(left) < len(digests)


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


def _raise(_: Path, error: RecordError) -> None:
    raise error
