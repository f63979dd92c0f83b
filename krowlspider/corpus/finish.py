"""Make a slice final: drop its duplicates, and write its shard and its rejected pages.

What a duplicate repeats is in the list of rejected pages, and is read from there again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from krowlspider.corpus.copies.duplicates import Place
from krowlspider.corpus.folder import LINES, read_lines, write_lines
from krowlspider.corpus.record import ENDINGS, Line, Refusal, write_shard
from krowlspider.corpus.tallies import HOSTS_OF_SLICE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krowlspider.corpus.copies.keeping import Copies
    from krowlspider.corpus.folder import Folder, Slice, Summary
    from krowlspider.corpus.tallies import Tallies

# The rules for pages that repeat another; the value is the place of the other page.
DUPLICATE, NEAR_DUPLICATE = "duplicate", "near_duplicate"
_decode = msgspec.json.Decoder(Line).decode
_refusal = msgspec.json.Decoder(Refusal).decode
_encode = msgspec.json.Encoder().encode


class Copy(msgspec.Struct):
    """A page that is not in the corpus; ``kept`` is the file and offset of the one that is.

    ``overlap`` is the share of their sequences of words that both have; None if all words are the
    same.
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
            refusal = line.refusal
            if refusal is None:
                found = self._copies.repeated_by(Place(part.file, line.offset, line.number), line)
                if found is not None:
                    rule = DUPLICATE if found.overlap is None else NEAR_DUPLICATE
                    of = f"{found.place.file}:{found.place.offset}"
                    refusal = Refusal(part.file, line.offset, line.url, rule, of, found.overlap)
            tallies.count(line.url, line.language, line.chars, accepted=refusal is None)
            if refusal is not None:
                refused.append(refusal)
                counts[f"rejected/{refusal.rule}"] += 1
                continue
            counts["accepted"] += 1
            counts.update({f"masked/{name}": number for name, number in line.masked.items()})
            yield bytes(line.record)


def clusters(folder: Folder) -> Iterator[bytes]:
    """Yield the copies in all final slices as JSON; those of one cluster have the same ``kept``."""
    for found in map(_refusal, folder.refusals()):
        if found.rule in {DUPLICATE, NEAR_DUPLICATE}:
            place = f"{found.warc_file}:{found.warc_offset}"
            yield _encode(Copy(str(found.value), place, found.url, found.rule, found.overlap))
