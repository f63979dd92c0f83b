"""Make a slice final: drop its duplicates, and write its shard and its rejected pages.

What a duplicate repeats is in the list of rejected pages, and is read from there again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from krowlspider.corpus.copies.duplicates import DUPLICATE, KNOWN_VERSION, NEAR_DUPLICATE
from krowlspider.corpus.copies.place import Place
from krowlspider.corpus.folder import LINES, read_lines, write_lines
from krowlspider.corpus.record import ENDINGS, Line, Record, Refusal, write_shard
from krowlspider.corpus.tallies import HOSTS_OF_SLICE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.corpus.copies.keeping import Copies
    from krowlspider.corpus.folder import Folder, Slice, Summary
    from krowlspider.corpus.tallies import Tallies

_COPIES = frozenset({DUPLICATE, NEAR_DUPLICATE, KNOWN_VERSION})
_decode = msgspec.json.Decoder(Line).decode
_record = msgspec.json.Decoder(Record).decode
_refusal = msgspec.json.Decoder(Refusal).decode
_encode = msgspec.json.Encoder().encode


class Copy(msgspec.Struct):
    """A page that is not in the corpus; ``kept`` is the file and offset of the one that is.

    ``overlap`` is the share of their sequences of words that near duplicates have in common.
    """

    kept: str
    copy: str
    url: str
    rule: str
    overlap: float | None


class Finisher:
    """Writes shards of a form, a key of ENDINGS, with at most ``limit`` pages in all."""

    def __init__(self, folder: Folder, copies: Copies, form: str, limit: int | None):
        self._folder = folder
        self._copies = copies
        self._form = form
        self._limit = limit

    def finish(self, part: Slice, summary: Summary, before: int) -> None:
        """Make a slice final, and complete its summary; ``before`` pages are accepted already.

        Raises OSError.
        """
        counts = Counter(summary.counts)
        refused: list[Refusal] = []
        most = None if self._limit is None else self._limit - before
        accepted = self._accepted(part, most, counts, refused, summary.tallies)
        shard = self._folder.data / (part.name + ENDINGS[self._form])
        write_shard(shard, self._form, accepted)
        write_lines(self._folder.rejected / (part.name + LINES), map(_encode, refused))
        self._copies.sync()
        summary.counts = dict(counts)
        summary.tallies.keep_hosts(HOSTS_OF_SLICE)
        self._folder.finish(part, summary)

    def _accepted(
        self,
        part: Slice,
        most: int | None,
        counts: Counter[str],
        refused: list[Refusal],
        tallies: Tallies,
    ) -> Iterator[bytes]:
        """Yield the records of a slice that repeat no other; count them, and those refused."""
        for each in read_lines(self._folder.work / (part.name + LINES)):
            if most is not None and counts["accepted"] >= most:
                return
            line = _decode(each)
            if line.is_revisit:
                continue
            place = Place(part.file, line.offset, line.number)
            refusal = line.refusal
            if refusal is None:
                found = self._copies.repeated_by(place, line)
                if found is not None:
                    of = f"{found.place.file}:{found.place.offset}"
                    refusal = Refusal(*place[:2], line.url, found.rule, of, found.overlap)
            tallies.count(line.url, line.language, line.chars, accepted=refusal is None)
            if refusal is not None:
                refused.append(refusal)
                counts[f"rejected/{refusal.rule}"] += 1
                continue
            counts["accepted"] += 1
            counts.update({f"masked/{name}": number for name, number in line.masked.items()})
            yield self._with_previous(place, line)

    def _with_previous(self, place: Place, line: Line) -> bytes:
        previous = self._copies.previous(place, line)
        if previous is None:
            return bytes(line.record)
        record = _record(line.record)
        record.previous = previous
        return _encode(record)


def clusters(folder: Folder) -> Iterator[bytes]:
    """Yield the copies in all final slices as JSON; those of one cluster have the same ``kept``."""
    for found in map(_refusal, folder.refusals()):
        if found.rule in _COPIES:
            place = f"{found.warc_file}:{found.warc_offset}"
            yield _encode(Copy(str(found.value), place, found.url, found.rule, found.overlap))
