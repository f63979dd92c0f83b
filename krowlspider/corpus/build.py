"""Build a corpus: give WARC files to workers, and take their slices in order.

Only this process drops duplicates and writes final shards. A slice is final with its marker, which
is written last; until then it is done again, with the same outcome.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_128_digest

from krowlspider.archive.tools.inputs import files_in
from krowlspider.corpus.clusters import DUPLICATE, NEAR_DUPLICATE
from krowlspider.corpus.duplicates import DuplicateIndex, Place
from krowlspider.corpus.fingerprints import Fingerprints
from krowlspider.corpus.folder import (
    LINES,
    Fatal,
    Slice,
    Summary,
    read_lines,
    read_summaries,
    write_lines,
)
from krowlspider.corpus.pool import Pool, Scanned
from krowlspider.corpus.record import Line, Refusal
from krowlspider.corpus.shards import ENDINGS, write_shard
from krowlspider.corpus.sites.collect import Collector
from krowlspider.corpus.tallies import HOSTS_OF_SLICE
from krowlspider.corpus.worker import PROBLEMS_MAX, Job, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from krowlspider.corpus.folder import Folder
    from krowlspider.corpus.tallies import Tallies

# Seconds between two looks at the workers, and at the folder while a crawl is followed.
_LOOK = 0.2
_decode = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Contents:
    """What a corpus holds: counts by name, accepted pages by language, and problems.

    A problem is a file, an offset and a reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, file: str, summary: Summary) -> None:
        self.counts.update(summary.counts)
        for name, (accepted, _) in summary.tallies.languages.items():
            self.languages[name] += accepted
        room = PROBLEMS_MAX - len(self.problems)
        self.problems += [(file, *each) for each in summary.problems[:room]]


@dataclass(slots=True)
class _Progress:
    """A WARC file that is not finished: the next slice to take, and whether a worker has it.

    It is ``scanned`` once its robots.txt and ai.txt are in the index of sites.
    """

    path: Path
    scanned: bool
    start: int = 0
    given: bool = False


class Build:
    """One run over a folder of WARC files.

    ``show`` is called with the bytes read and the bytes there are, a few times a second.
    """

    def __init__(self, folder: Folder, job: Job, form: str, show: Callable[[int, int], object]):
        self._folder = folder
        self._job = job
        self._form = form
        self._show = show
        self._waiting: list[_Progress] = []
        self._sizes: dict[str, int] = {}
        self._read = 0
        self._sites = Collector(folder) if job.sites is not None else None
        self.built = Contents()
        for file, summary in read_summaries(folder.path):
            self.built.add(file, summary)

    def run(self, source: Path, processes: int, *, follow: bool = False) -> None:
        """Read all finished files of ``source``; with ``follow`` until no file there is open.

        Raises OSError.

        :raises KrowlError: a worker cannot run
        """
        rules = self._job.rules
        index = DuplicateIndex(self._folder.index, rules.near, rules.similarity)
        pool = Pool(self._job, processes)
        try:
            while True:
                # Looked at first: a file finished in between is among those found.
                still_open = follow and any(source.glob("*.open"))
                self._find(files_in(source))
                self._drain(pool, index, patient=not still_open)
                if self._is_full or not (still_open or self._waiting):
                    return
        finally:
            pool.close()
            index.close()
            if self._sites is not None:
                self._sites.close()

    @property
    def _is_full(self) -> bool:
        limit = self._job.limit
        return limit is not None and self.built.counts["accepted"] >= limit

    def _find(self, paths: Iterable[Path]) -> None:
        """Add the files that are not known yet, each from its first slice that is not final."""
        for path in paths:
            if path.name in self._sizes:
                continue
            self._sizes[path.name] = path.stat().st_size
            progress = _Progress(path, self._sites is None or self._sites.has(path.name))
            if self._go_on(progress):
                self._waiting.append(progress)
            else:
                self._read += self._sizes[path.name]

    def _go_on(self, progress: _Progress) -> bool:
        """Move to the next slice that is not final; return whether there is one."""
        while summary := self._folder.finished(Slice(progress.path.name, progress.start)):
            if summary.following is None:
                return False
            progress.start = summary.following
        return True

    def _drain(self, pool: Pool, index: DuplicateIndex, *, patient: bool) -> None:
        """Read what is waiting. Unless ``patient``, return soon, so that new files are found."""
        while self._waiting and not self._is_full:
            self._give_all(pool)
            taken = self._take_next(index)
            for message in pool.wait(0 if taken else _LOOK):
                if isinstance(message, Fatal):
                    self._folder.note_fatal(message)
                    self._progress(message.file).given = False
                elif isinstance(message, Scanned):
                    assert self._sites is not None
                    self._sites.take(message.file)
                    progress = self._progress(message.file)
                    progress.given, progress.scanned = False, True
                else:
                    self._folder.hand_over(*message)
            now = sum(place for _, place in pool.places())
            self._show(self._read + now, sum(self._sizes.values()))
            if not patient and not taken:
                return
        if not patient and not self._is_full:
            list(pool.wait(_LOOK))

    def _progress(self, file: str) -> _Progress:
        return next(each for each in self._waiting if each.path.name == file)

    def _give_all(self, pool: Pool) -> None:
        """Give files to workers while they have room: to be scanned, and then to be read."""
        unscanned = [each for each in self._waiting if not each.scanned]
        if self._sites is not None and not unscanned:
            self._sites.publish()
        for progress in unscanned or self._waiting:
            if not progress.given and pool.has_room:
                self._give(pool, progress)

    def _give(self, pool: Pool, progress: _Progress) -> None:
        """Give a file to a worker from its first slice that no worker has done."""
        progress.given = True
        if not progress.scanned:
            pool.give(Task(progress.path, scan=True))
            return
        start: int | None = progress.start
        while start is not None:
            part = Slice(progress.path.name, start)
            ready = self._folder.ready(part)
            if ready is None:
                pool.give(Task(progress.path, start, self._folder.fatal(part)))
                return
            start = ready.following

    def _take_next(self, index: DuplicateIndex) -> bool:
        """Make the next slice final, if it is ready; return whether it was."""
        progress = self._waiting[0]
        part = Slice(progress.path.name, progress.start)
        summary = self._folder.ready(part)
        if summary is None:
            return False
        self._finish(part, summary, index)
        self.built.add(part.file, summary)
        if summary.following is None:
            self._waiting.pop(0)
            self._read += self._sizes[part.file]
        else:
            progress.start = summary.following
        return True

    def _finish(self, part: Slice, summary: Summary, index: DuplicateIndex) -> None:
        counts = Counter(summary.counts)
        refused: list[Refusal] = []
        accepted = self._accepted(part, index, counts, refused, summary.tallies)
        write_shard(self._folder.data / (part.name + ENDINGS[self._form]), self._form, accepted)
        write_lines(self._folder.rejected / (part.name + LINES), map(_encode, refused))
        index.sync()
        summary.counts = dict(counts)
        summary.tallies.keep_hosts(HOSTS_OF_SLICE)
        self._folder.finish(part, summary)

    def _accepted(
        self,
        part: Slice,
        index: DuplicateIndex,
        counts: Counter[str],
        refused: list[Refusal],
        tallies: Tallies,
    ) -> Iterator[bytes]:
        """Yield the records of a slice that repeat no other; count them, and those refused."""
        rules, limit = self._job.rules, self._job.limit
        before = self.built.counts["accepted"]
        for each in read_lines(self._folder.work / (part.name + LINES)):
            if limit is not None and before + counts["accepted"] >= limit:
                return
            line = _decode(each)
            refusal = line.refusal
            if refusal is None:
                place = Place(part.file, line.offset, line.number)
                key = line.exact if rules.exact else xxh3_128_digest(place.dump())
                found = index.take(place, Fingerprints(key, line.simhash, line.minhash))
                if found is not None:
                    rule = NEAR_DUPLICATE if found.distance else DUPLICATE
                    of = f"{found.place.file}:{found.place.offset}"
                    refusal = Refusal(part.file, line.offset, line.url, rule, of)
            tallies.count(line.url, line.language, line.chars, accepted=refusal is None)
            if refusal is not None:
                refused.append(refusal)
                counts[f"rejected/{refusal.rule}"] += 1
                continue
            counts["accepted"] += 1
            counts.update({f"masked/{name}": number for name, number in line.masked.items()})
            yield bytes(line.record)
