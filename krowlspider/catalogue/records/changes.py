"""The rows of changes: fetches of a WARC file that found another version of a page.

The version before may be in any file that was begun earlier: the indexes of all are read, and only
the lines of URLs that the file has count.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from krowlspider.archive.cdxj import REVISIT, WARC, index_path
from krowlspider.archive.disk import RecordError
from krowlspider.archive.indexes import merged, original_of
from krowlspider.archive.reading import read_record
from krowlspider.catalogue.records.captures import time_of
from krowlspider.catalogue.records.hosts import split
from krowlspider.changes.pairs import (
    BODY_MAX,
    GONE,
    READ_MAX,
    Compared,
    body_in,
    compared,
    pairs_of,
)
from krowlspider.fetch.http.decode import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from krowlspider.archive.cdxj import IndexLine
    from krowlspider.catalogue.sinks import Row
    from krowlspider.changes.pairs import Body, VersionPair

_DECODE = partial(decoded, cap=BODY_MAX)


def change_rows(
    warc: Path, lines: Sequence[bytes], earlier: Sequence[Path], records: Mapping[int, str]
) -> Iterator[Row]:
    """Yield the rows of the changes that a file found.

    ``lines`` are those of its index, sorted. ``earlier`` are the indexes of files that were begun
    before it, each beside its file. ``records`` has the record id of each capture, by offset.

    :raises ArchiveError: an index is broken, or not sorted
    :raises OSError: an index cannot be read
    """
    if not earlier and len(lines) == len({line.partition(b" ")[0] for line in lines}):
        return
    with TemporaryDirectory(prefix="krowlspider-catalogue-") as name:
        scratch = Path(name)
        parts = list(_lines_of_same(lines, earlier, scratch))
        versions = _Versions(warc, [*earlier, index_path(warc)])
        for pair in pairs_of(merged(parts, scratch)):
            if pair.after.filename != warc.name or pair.after.offset not in records:
                continue
            found = versions.compared(pair)
            if found is not None:
                yield _row(pair, found, records[pair.after.offset])


def _lines_of_same(
    lines: Sequence[bytes], earlier: Sequence[Path], scratch: Path
) -> Iterator[Path]:
    """Yield sorted files that have ``lines``, and the lines with one of their keys elsewhere."""
    keys = {line[: line.find(b" ")] for line in lines}
    own = scratch / "own"
    own.write_bytes(b"".join(lines))
    yield own
    for number, index in enumerate(earlier):
        with index.open("rb") as file:
            same = [line for line in file if line[: line.find(b" ")] in keys]
        if same:
            part = scratch / f"earlier-{number}"
            part.write_bytes(b"".join(same))
            yield part


class _Versions:
    """Reads and compares versions of pages in files that stand beside these indexes."""

    def __init__(self, warc: Path, indexes: Sequence[Path]):
        self._indexes = [index for index in indexes if index.exists()]
        self._files = {index.stem + WARC: index.with_suffix(WARC) for index in indexes}
        self._files[warc.name] = warc

    def compared(self, pair: VersionPair) -> Compared | None:
        """Return how two versions differ, as far as it is known; None if they do not."""
        if not GONE.isdisjoint((pair.before.status, pair.after.status)):
            return Compared()
        before, after = self._body(pair.before), self._body(pair.after)
        if before is None or after is None:
            return Compared()
        return compared(before, after, with_difference=False)

    def _body(self, line: IndexLine) -> Body | None:
        """Return the body of a capture; None if it cannot be read."""
        try:
            fields, block = read_record(self._files[line.filename], line.offset, READ_MAX)
            if line.mime == REVISIT:
                original = original_of(self._indexes, line, fields)
                if original is None:
                    return None
                place = self._files[original.filename]
                fields, block = read_record(place, original.offset, READ_MAX)
        except (KeyError, OSError, RecordError):
            return None
        return body_in(fields, block, _DECODE)


def _row(pair: VersionPair, found: Compared, record_id: str) -> Row:
    before, after = pair.before, pair.after
    return {
        "url_surtkey": after.key,
        "url": after.url,
        "url_host_name": split(after.url)[0].name,
        "media_type": found.media_type,
        "similarity": found.similarity,
        "text_changed": found.text_changed,
        "truncated": found.is_truncated,
        "fetched_between": pair.fetched_between,
        "unchanged_until": time_of("", pair.unchanged_until),
        "before_time": time_of("", before.timestamp),
        "before_status": int(before.status),
        "before_digest": before.digest.removeprefix("sha1:") or None,
        "before_filename": before.filename,
        "before_offset": before.offset,
        "fetch_time": time_of("", after.timestamp),
        "fetch_status": int(after.status),
        "digest": after.digest.removeprefix("sha1:") or None,
        "warc_record_offset": after.offset,
        "record_id": record_id,
        "warc_filename": after.filename,
    }
