"""Find the captures of a URL in sorted indexes, and the original of a revisit."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING, BinaryIO

from krowlspider.archive.index.cdxj import REVISIT, key_of, parse, timestamp
from krowlspider.archive.index.indexes import parsed
from krowlspider.archive.payloads.digests import are_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from fastwarc.warc import HeaderMap

    from krowlspider.archive.index.cdxj import IndexLine

# Sorts after every line, because lines are ASCII.
_AFTER_ALL = b"\xff"


def captures_of(
    indexes: Iterable[Path], url: str, others: Callable[[str], Iterable[str]] = lambda _: ()
) -> list[IndexLine]:
    """Return the captures whose URL has the key of ``url``, oldest first.

    ``others`` returns the index lines that start with a text and are not in ``indexes``.
    """
    beginning = f"{key_of(url)} "
    found = [line for index in indexes for line in lines_with(index, beginning)]
    found += [parse(line.encode()) for line in others(beginning)]
    return sorted(found, key=lambda line: (line.timestamp, line.filename, line.offset))


def lines_with(index: Path, beginning: str) -> Iterator[IndexLine]:
    """Yield the lines of a sorted index that start with ``beginning``, found by binary search.

    :raises ArchiveError: one of these lines is broken
    :raises OSError: the index cannot be read
    """
    wanted = beginning.encode()
    with index.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = bisect_left(range(size), wanted, key=lambda at: _line_from(file, at))
        _seek_line(file, first)
        yield from parsed(index, takewhile(lambda line: line.startswith(wanted), file))


def _line_from(file: BinaryIO, offset: int) -> bytes:
    _seek_line(file, offset)
    return file.readline() or _AFTER_ALL


def _seek_line(file: BinaryIO, offset: int) -> None:
    """Go to the first line that begins at ``offset`` or after it."""
    file.seek(max(offset - 1, 0))
    if offset:
        file.readline()


def original_of(
    indexes: Iterable[Path], revisit: IndexLine, fields: Mapping[str, str]
) -> IndexLine | None:
    """Return the capture that holds a revisit's payload; None if it is not in the indexes.

    ``fields`` are those of the revisit's record. Dates in indexes are in whole seconds, so the
    digest selects among captures of one second. A revisit for an answer 304 names no original. It
    stands for the last response with status 200 not after it, if possible one with a payload: an
    answer to GET, not to HEAD.
    """
    target, date = fields.get("WARC-Refers-To-Target-URI"), fields.get("WARC-Refers-To-Date")
    found = [line for line in captures_of(indexes, target or revisit.url) if line.mime != REVISIT]
    if target:
        found = [
            line
            for line in found
            if (not date or line.timestamp == timestamp(date))
            and may_be_same(line.digest, revisit.digest)
        ]
        # Prefer an equal digest to a missing one, then the same URL to another with the same key.
        return max(
            found,
            key=lambda line: (are_equal(line.digest, revisit.digest), line.url == target),
            default=None,
        )
    before = [
        line
        for line in found
        if (line.url, line.status) == (revisit.url, "200") and line.timestamp <= revisit.timestamp
    ]
    return max(before, key=lambda line: (not line.is_bare, line.timestamp), default=None)


def place_of_original(revisit: HeaderMap, url: str | None = None) -> tuple[str, str] | None:
    """Return key and timestamp of the capture that a revisit refers to; None if it names none.

    ``url`` is that of the capture if the revisit names only its date.
    """
    url = revisit.get("WARC-Refers-To-Target-URI") or url
    date = revisit.get("WARC-Refers-To-Date")
    return (key_of(url), timestamp(date)) if url and date else None


class SoughtOriginals:
    """The originals of revisits that are not found yet, those that no revisit names included."""

    def __init__(self) -> None:
        # The digest of each revisit, by the place of its original.
        self._digests: defaultdict[tuple[str, str] | None, list[str]] = defaultdict(list)

    def add(self, revisit: HeaderMap, digest: str, url: str | None = None) -> None:
        self._digests[place_of_original(revisit, url)].append(digest)

    def found(self, line: IndexLine) -> int:
        """Return of how many revisits a capture is the original, which is sought no more."""
        digests = self._digests.get((line.key, line.timestamp))
        if not digests or line.mime == REVISIT:
            return 0
        left = [digest for digest in digests if not may_be_same(line.digest, digest)]
        self._digests[line.key, line.timestamp] = left
        return len(digests) - len(left)

    def __len__(self) -> int:
        return sum(map(len, self._digests.values()))


def may_be_same(one: str, other: str) -> bool:
    """Return whether two payloads may be equal: only digests of one algorithm disprove it."""
    if not one or not other or one.partition(":")[0] != other.partition(":")[0]:
        return True
    return are_equal(one, other)
