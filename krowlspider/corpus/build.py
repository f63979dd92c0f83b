"""Build a corpus: worker processes read slices, and this process makes them final in order.

Make a slice final: drop its duplicates, and write its shard and its rejected pages. What a
duplicate repeats is in the list of rejected pages, and is read from there again.

Build a corpus: give WARC files to workers, and take their slices in order. Only this process drops
duplicates and writes final shards. A slice is final with its marker, which is written last; until
then it is done again, with the same outcome. If copies are kept by a rule, or the last versions
alone, all slices are read before the first is made final.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from krowlspider.archive.disk import OPEN, is_locked
from krowlspider.archive.tools.inputs import files_in, refuse_names
from krowlspider.corpus.copies.duplicates import (
    DUPLICATE,
    FIRST,
    KNOWN_VERSION,
    NEAR_DUPLICATE,
    Copies,
    DuplicateIndex,
    FirstCopies,
    RankedCopies,
)
from krowlspider.corpus.copies.place import PagePlace
from krowlspider.corpus.copies.versions import ALL, LAST
from krowlspider.corpus.folder import (
    LINES,
    Fatal,
    Folder,
    Slice,
    Summary,
    read_lines,
    read_summaries,
    write_lines,
)
from krowlspider.corpus.record import ENDINGS, CorpusRecord, Line, Refusal, write_shard
from krowlspider.corpus.sites.index import SiteIndex, findings_file
from krowlspider.corpus.tallies import HOSTS_OF_SLICE, Tallies
from krowlspider.corpus.worker import PROBLEMS_MAX, Task, WorkerTask, work
from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.process import BaseProcess
    from pathlib import Path

_COPIES = frozenset({DUPLICATE, NEAR_DUPLICATE, KNOWN_VERSION})
_decode = msgspec.json.Decoder(Line).decode
_record = msgspec.json.Decoder(CorpusRecord).decode
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
            place = PagePlace(part.file, line.offset, line.number)
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

    def _with_previous(self, place: PagePlace, line: Line) -> bytes:
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


# A place before the first page of a task.
_NOWHERE = -1
# fork would copy the parent's threads and its LevelDB.
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(slots=True, eq=False)
class _Worker:
    process: BaseProcess
    pipe: connection.Connection
    place: Any
    task: Task | None = None
    start: int = 0


class Scanned(NamedTuple):
    """A worker has written the findings in a WARC file."""

    file: str


class WorkerPool:
    """Runs tasks in up to ``processes`` workers, each of which is replaced when it dies."""

    def __init__(self, job: WorkerTask, processes: int):
        self._job = job
        self._workers = [self._started() for _ in range(processes)]

    def _started(self) -> _Worker:
        ours, theirs = _CONTEXT.Pipe()
        place = _CONTEXT.RawArray("q", (_NOWHERE, 0))
        process = _CONTEXT.Process(target=work, args=(theirs, place, self._job), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, place)

    @property
    def has_room(self) -> bool:
        return any(worker.task is None for worker in self._workers)

    def give(self, task: Task) -> None:
        """Give a task to a worker that has none."""
        worker = next(worker for worker in self._workers if worker.task is None)
        worker.place[:] = _NOWHERE, 0
        worker.task, worker.start = task, task.start
        worker.pipe.send(task)

    def bytes_read(self) -> int:
        """Return how many bytes have been read of the files that workers are reading."""
        reading = (each for each in self._workers if each.task is not None and not each.task.scan)
        return sum(max(worker.place[0], 0) for worker in reading)

    def wait(self, seconds: float) -> Iterator[tuple[Slice, Summary] | Fatal | Scanned]:
        """Yield finished slices and scans, and pages that killed a worker, after a wait for any.

        After a `Fatal`, the file must be given again: its slice was lost. Raises OSError.

        :raises KrowlError: a worker died before its first page
        """
        busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
        for pipe in connection.wait(list(busy), seconds):
            worker = busy[pipe]  # type: ignore[index]
            try:
                message = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                yield self._died(worker)
                continue
            assert worker.task is not None
            if message is None:
                if worker.task.scan:
                    yield Scanned(worker.task.path.name)
                worker.task = None
            elif isinstance(message, OSError):
                raise message
            else:
                start, summary = message
                worker.start = summary.following or 0
                yield Slice(worker.task.path.name, start), summary

    def _died(self, worker: _Worker) -> Fatal:
        worker.process.join()
        code = worker.process.exitcode or 0
        task = worker.task
        assert task is not None
        if worker.place[0] == _NOWHERE:
            raise KrowlError(f"a worker died at {task.path.name} (exit code {code})")
        reason = "took too long" if code == -signal.SIGPROF else f"crash, exit code {code}"
        offset, number = worker.place
        self._workers[self._workers.index(worker)] = self._started()
        return Fatal(task.path.name, worker.start, number, offset, reason)

    def close(self) -> None:
        """Kill the workers: what they had not handed over is read again the next time."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


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
        job: WorkerTask,
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
        pool = WorkerPool(self._job, processes)
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

    def _drain(self, pool: WorkerPool, *, patient: bool) -> None:
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

    def _give_all(self, pool: WorkerPool) -> None:
        """Give files to workers while they have room: to be scanned, and then to be read."""
        unscanned = [each for each in self._waiting if not each.scanned]
        if self._sites is not None and not unscanned:
            self._sites.publish(self._folder.sites)
        for progress in unscanned or self._waiting:
            if not progress.given and pool.has_room:
                self._give(pool, progress)

    def _give(self, pool: WorkerPool, progress: _Progress) -> None:
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
