"""Build a corpus: give WARC files to workers, and take their slices in order.

Only this process drops duplicates and writes final shards. A slice is final with its marker, which
is written last; until then it is done again, with the same outcome. If copies are kept by a rule,
or the last versions alone, all slices are read before the first is made final.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krowlspider.archive.disk import OPEN, is_locked
from krowlspider.archive.tools.inputs import files_in, refuse_names
from krowlspider.corpus.copies.duplicates import DuplicateIndex
from krowlspider.corpus.copies.keeping import FIRST, FirstCopies, RankedCopies
from krowlspider.corpus.copies.versions import ALL, LAST
from krowlspider.corpus.finish import Finisher
from krowlspider.corpus.folder import Fatal, Slice, Summary, read_lines, read_summaries
from krowlspider.corpus.pool import Pool, Scanned
from krowlspider.corpus.sites.index import SiteIndex
from krowlspider.corpus.sites.scan import findings_file
from krowlspider.corpus.worker import PROBLEMS_MAX, Job, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from krowlspider.corpus.folder import Folder

# Seconds between two looks at the workers, and at the folder while a crawl is followed.
_LOOK = 0.2
# Pages between two calls of ``show`` while copies are chosen.
_CHOSEN = 10_000


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

    It is ``scanned`` once the answers in it are in the index of sites.
    """

    path: Path
    part: Slice
    scanned: bool
    given: bool = False


class Build:
    """One run over a folder of WARC files. Of several copies, the one by ``keep`` stays, and of
    each URL ``versions``.

    ``show`` is called with the bytes read and the bytes there are, a few times a second. ``late``
    are files that came after copies were chosen by a rule: they are not in the corpus.
    """

    def __init__(
        self,
        folder: Folder,
        job: Job,
        form: str,
        show: Callable[[int, int], object],
        *,
        keep: str = FIRST,
        versions: str = ALL,
    ):
        self._folder = folder
        self._job = job
        self._show = show
        self._waiting: list[_Progress] = []
        # The first slice of each file that is to be made final.
        self._taken: list[Slice] = []
        self._sizes: dict[str, int] = {}
        self._read = 0
        self._sites = SiteIndex(folder.answers) if job.sites is not None else None
        rules = job.rules
        self._index = DuplicateIndex(folder.index, rules.similarity)
        self._ranked: RankedCopies | None = None
        if keep != FIRST or versions == LAST:
            self._ranked = RankedCopies(self._index, keep, versions, exact=rules.exact)
        copies = self._ranked or FirstCopies(self._index, exact=rules.exact)
        self._finisher = Finisher(folder, copies, form, job.limit)
        self.late: set[str] = set()
        self.built = Contents()
        for file, summary in read_summaries(folder.path):
            self.built.add(file, summary)

    @property
    def unknown_answers(self) -> tuple[int, str]:
        """Return how many answers of hosts are revisits of responses in no WARC file, with the host
        and path of one."""
        return (0, "") if self._sites is None else (self._sites.unknown, self._sites.example)

    def run(self, source: Path, processes: int, *, follow: bool = False) -> None:
        """Read all finished files of ``source``; with ``follow`` until no crawl writes there.

        Raises OSError.

        :raises KrowlError: a worker cannot run, or the name of a file is not in UTF-8
        """
        pool = Pool(self._job, processes)
        try:
            while True:
                # Looked at first: a file finished in between is among those found.
                is_closed = self._ranked is not None and self._ranked.is_closed
                still_open = follow and not is_closed and _is_written(source)
                refuse_names(found := files_in(source))
                self._find(found)
                self._drain(pool, patient=not still_open)
                if self._is_full or not (still_open or self._waiting):
                    break
            if self._ranked is not None:
                self._finish_ranked(self._ranked)
        finally:
            pool.close()
            self._index.close()
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
            if self._ranked is not None and not self._ranked.admits(Slice(path.name, 0)):
                self.late.add(path.name)
                continue
            self._sizes[path.name] = path.stat().st_size
            part: Slice | None = Slice(path.name, 0)
            while part is not None and (summary := self._folder.finished(part)) is not None:
                part = summary.after(part)
            if part is None:
                self._read += self._passes * self._sizes[path.name]
                continue
            scanned = self._sites is None or self._sites.has(path.name)
            self._waiting.append(_Progress(path, part, scanned))
            self._taken.append(part)

    def _drain(self, pool: Pool, *, patient: bool) -> None:
        """Read what is waiting. Unless ``patient``, return soon, so that new files are found."""
        while self._waiting and not self._is_full:
            self._give_all(pool)
            taken = self._take_next()
            for message in pool.wait(0 if taken else _LOOK):
                if isinstance(message, Fatal):
                    self._folder.note_fatal(message)
                    self._progress(message.file).given = False
                elif isinstance(message, Scanned):
                    self._take_findings(message.file)
                else:
                    self._folder.hand_over(*message)
            self._shown(pool.bytes_read())
            if not patient and not taken:
                return
        if not patient and not self._is_full:
            list(pool.wait(_LOOK))

    def _take_findings(self, file: str) -> None:
        """Add the answers of sites that a worker has found in a WARC file."""
        assert self._sites is not None
        path = self._folder.work / findings_file(file)
        self._sites.add(file, read_lines(path))
        path.unlink()
        progress = self._progress(file)
        progress.given, progress.scanned = False, True

    def _progress(self, file: str) -> _Progress:
        return next(each for each in self._waiting if each.path.name == file)

    def _give_all(self, pool: Pool) -> None:
        """Give files to workers while they have room: to be scanned, and then to be read."""
        unscanned = [each for each in self._waiting if not each.scanned]
        if self._sites is not None and not unscanned:
            self._sites.publish(self._folder.sites)
        for progress in unscanned or self._waiting:
            if not progress.given and pool.has_room:
                self._give(pool, progress)

    def _give(self, pool: Pool, progress: _Progress) -> None:
        """Give a file to a worker from its first slice that no worker has done."""
        progress.given = True
        if not progress.scanned:
            pool.give(Task(progress.path, scan=True))
            return
        part: Slice | None = progress.part
        while part is not None and (ready := self._folder.ready(part)) is not None:
            part = ready.after(part)
        if part is not None:
            pool.give(Task(progress.path, part.start, self._folder.fatal(part)))

    def _take_next(self) -> bool:
        """Take the next slice, if it is ready; return whether it was."""
        progress = self._waiting[0]
        part = progress.part
        summary = self._folder.ready(part)
        if summary is None:
            return False
        if self._ranked is None:
            self._finish(part, summary)
        elif not self._ranked.has(part):
            self._ranked.add(part, self._folder.work)
        following = summary.after(part)
        if following is None:
            self._waiting.pop(0)
            self._read += self._sizes[part.file]
        else:
            progress.part = following
        return True

    def _finish(self, part: Slice, summary: Summary) -> None:
        self._finisher.finish(part, summary, self.built.counts["accepted"])
        self.built.add(part.file, summary)

    def _finish_ranked(self, ranked: RankedCopies) -> None:
        """Choose among the copies in all slices that were read, then make these final."""
        for number, _ in enumerate(ranked.choose()):
            if number % _CHOSEN == 0:
                self._shown()
        for first in self._taken:
            part: Slice | None = first
            while part is not None and (summary := self._folder.ready(part)) is not None:
                self._finish(part, summary)
                part = summary.after(part)
            self._read += self._sizes[first.file]
            self._shown()

    @property
    def _passes(self) -> int:
        return 1 if self._ranked is None else 2

    def _shown(self, now: int = 0) -> None:
        """Show the progress; ``now`` are bytes that were read of files not yet finished."""
        self._show(self._read + now, self._passes * sum(self._sizes.values()))


def _is_written(source: Path) -> bool:
    """Return whether a WARC file is open in a folder, or a crawl will open the next one there.

    A crawl that waits until pages are due has no open file. One that was killed has left its own.
    """
    return source.is_dir() and (any(source.glob(f"*{OPEN}")) or is_locked(source))
