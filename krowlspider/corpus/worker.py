"""A worker process: makes lines of the pages in a WARC file, one slice after another.

A page that takes too much CPU ends the process by SIGPROF, whatever code is running. The shared
place tells the parent which page it was.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from fastwarc.warc import WarcRecordType
from xxhash import xxh3_64_intdigest

from krowlspider.archive.cdxj import payload_digest, target
from krowlspider.archive.surt import query_of
from krowlspider.corpus.copies.fingerprints import fingerprints
from krowlspider.corpus.folder import LINES, Slice, Summary, write_lines
from krowlspider.corpus.quality.measures import HostLines, without
from krowlspider.corpus.quality.personal_data import mask
from krowlspider.corpus.record import Fetch, Line, Refusal, record_of
from krowlspider.corpus.sites.index import SiteFile, findings, findings_file, signals_of
from krowlspider.corpus.tallies import name_of
from krowlspider.corpus.text.document import (
    Reading,
    document,
    gemtext_document,
    pdf_document,
    with_markdown,
)
from krowlspider.corpus.warc_pages import (
    CapturedPage,
    NoPage,
    Unreadable,
    is_record_start,
    page_of,
    records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from fastwarc.warc import WarcRecord

    from krowlspider.corpus.quality.rules import Rules

# Stored bytes of a slice: what a kill costs at most for each worker.
SLICE = 128 * 1024 * 1024
# Bytes of address space of a worker.
_MEMORY = 4 * 1024**3
PROBLEMS_MAX = 1000
# New objects between two searches for garbage. Pages leave none: each node of a tree is one.
_OBJECTS = 100_000
_WITH_REVISITS = WarcRecordType.response | WarcRecordType.revisit
# Bytes of a request that tell which resource it asks for.
_REQUEST_MAX = 64 * 1024
_NO_DIGIT = re.compile(r"[^0-9]")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class PageChoice:
    """Which pages are read: of ``host`` or below it, since 14 digits, and a share by URL."""

    since: str = ""
    host: str = ""
    sample: float = 1.0

    def fits(self, url: str, date: str) -> bool:
        return (
            (not self.host or f".{name_of(url)}".endswith(f".{self.host}"))
            and _NO_DIGIT.sub("", date)[:14] >= self.since
            and (self.sample >= 1 or xxh3_64_intdigest(url.encode()) < self.sample * 2**64)
        )


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a worker is to do with each page. ``decode`` raises ValueError for a bad body.

    ``sites`` is the published index of the answers of sites; None if they do not count. If
    ``revisits`` is set, they have lines too.
    """

    work: Path
    rules: Rules
    choice: PageChoice
    decode: Callable[[bytes, str], bytes]
    seconds: float
    limit: int | None = None
    slice_bytes: int = SLICE
    sites: Path | None = None
    reading: Reading = field(default_factory=Reading)
    revisits: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A WARC file to read from ``start``; ``fatal`` are pages of that slice to leave out.

    If ``scan`` is set, the file is read for the answers of sites only.
    """

    path: Path
    start: int = 0
    fatal: dict[int, str] = field(default_factory=dict)
    scan: bool = False


def work(connection: Connection, place: Any, job: WorkerTask) -> None:
    """Do the tasks that arrive until the parent is gone; send each slice's start and summary.

    After the last slice of a file, or a scan, send None; after an error of the disk, that, and end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # A page that crashes the extractor is named; its memory is of no use.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.set_threshold(_OBJECTS)
    parent = os.getppid()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task: Task = connection.recv()
            try:
                if task.scan:
                    found = map(_encode, findings(task.path, job.decode))
                    write_lines(job.work / findings_file(task.path.name), found)
                else:
                    for part in _slices(job, task, place, parent):
                        connection.send(part)
            except OSError as error:
                connection.send(error)
                return
            connection.send(None)


def _slices(job: WorkerTask, task: Task, place: Any, parent: int) -> Iterator[tuple[int, Summary]]:
    """Do a file; yield the start and the summary of each slice. Raises OSError."""
    sites = SiteFile(job.sites) if job.sites is not None else None
    following: int | None = task.start
    while following is not None:
        summary = SliceReader(job, task, place, parent, sites).run()
        yield task.start, summary
        following = summary.following
        task = Task(task.path, following or 0)
    if sites is not None:
        sites.close()


class SliceReader:
    """Makes the lines of one slice. ``place`` is set to the offset and number of each response.

    ``parent`` is the id of the process for which it works: reading ends once that is gone.
    """

    def __init__(
        self, job: WorkerTask, task: Task, place: Any, parent: int, sites: SiteFile | None = None
    ):
        self._job = job
        self._task = task
        self._place = place
        self._parent = parent
        self._sites = sites
        self._part = Slice(task.path.name, task.start)
        self._counts: Counter[str] = Counter()
        self._summary = Summary()
        pages = job.rules.boilerplate
        # Of this slice alone: reading it again after a kill gives the same text.
        self._host_lines = None if pages is None else HostLines(pages)

    def run(self) -> Summary:
        """Write the lines durably and return their summary. Raises OSError.

        :raises EOFError: the parent is gone
        """
        write_lines(self._job.work / (self._part.name + LINES), self._lines())
        self._summary.counts = dict(self._counts)
        return self._summary

    def _lines(self) -> Iterator[bytes]:
        accepted, number, job, start = 0, -1, self._job, self._task.start
        kinds = _WITH_REVISITS if job.revisits else WarcRecordType.response
        # A request may stand before or behind what answers it.
        before, request, line = _Beside(), "", None
        with self._task.path.open("rb") as stream:
            found = records(stream, start, self._damage, kinds | WarcRecordType.request)
            for offset, record in found:
                beside = _Beside.of(record)
                is_pair = beside.belongs_to(before)
                full = offset - start >= job.slice_bytes or accepted == job.limit
                if full and offset > start and not is_pair and is_record_start(stream, offset):
                    self._summary.following = offset
                    break
                before = beside
                if record.record_type == WarcRecordType.request:
                    request = _resource(record)
                    if is_pair and line is not None and line.fetch is not None:
                        line.fetch.resource, request = request, ""
                    continue
                if line is not None:
                    yield _encode(line)
                line = None
                number += 1
                self._place[:] = offset, number
                if os.getppid() != self._parent:
                    raise EOFError
                if record.record_type == WarcRecordType.revisit:
                    if self._fits(record):
                        line = _revisit(record, offset, number)
                else:
                    line = self._read(record, offset, number)
                    accepted += line is not None and line.refusal is None
                if is_pair and line is not None and line.fetch is not None:
                    line.fetch.resource = request
                request = ""
        if line is not None:
            yield _encode(line)

    def _read(self, record: WarcRecord, offset: int, number: int) -> Line | None:
        """Return the line of a response, in bounded time; None without one."""
        self._counts["responses"] += 1
        if number in self._task.fatal:
            reason = self._task.fatal[number]
            self._problem(offset, f"{target(record)}: {reason}")
            return self._refused(record, offset, number, reason)
        signal.setitimer(signal.ITIMER_PROF, self._job.seconds)
        line = self._line(record, offset, number)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return line

    def _damage(self, offset: int, reason: str) -> None:
        self._counts["skipped/damaged"] += 1
        self._problem(offset, reason)

    def _problem(self, offset: int, reason: str) -> None:
        if len(self._summary.problems) < PROBLEMS_MAX:
            self._summary.problems.append((offset, reason))

    def _line(self, record: WarcRecord, offset: int, number: int) -> Line | None:
        """Return the line of a response; if it has no page that was asked for, count why."""
        try:
            if not self._fits(record):
                raise NoPage("not asked for")
            pdf = self._job.reading.pdf
            return self._judged(page_of(record, self._job.decode, pdf=pdf), offset, number)
        except NoPage as error:
            self._counts[f"skipped/{error}"] += 1
            return None
        except Unreadable as error:
            reason = str(error)
        except OSError as error:
            if error.errno is not None:
                raise
            reason = "damaged"
        except MemoryError:
            reason = "out of memory"
        return self._refused(record, offset, number, reason)

    def _fits(self, record: WarcRecord) -> bool:
        return self._job.choice.fits(target(record), record.headers.get("WARC-Date") or "")

    def _refused(self, record: WarcRecord, offset: int, number: int, reason: str) -> Line:
        url = target(record)
        refusal = Refusal(self._part.file, offset, url, reason, "")
        return Line(number, offset, url, refusal=refusal)

    def _judged(self, page: CapturedPage, offset: int, number: int) -> Line:
        reading, rules = self._job.reading, self._job.rules
        if page.kind == "html":
            found = document(page, reading)
        else:
            found = pdf_document(page) if page.kind == "pdf" else gemtext_document(page, reading)
        repeated: set[str] = set()
        if self._host_lines is not None:
            repeated = self._host_lines.repeated(name_of(page.url), found.text)
            found.text = without(found.text, repeated)
        given = signals_of(page, found, self._sites)
        rejected = rules.judge(found, page.url, given)
        about = (number, offset, page.url, found.language, len(found.text))
        fetch = Fetch(page.date, page.record_id, page.digest)
        if rejected is not None:
            refusal = Refusal(self._part.file, offset, page.url, *rejected)
            return Line(
                *about, refusal=refusal, fetch=fetch if rejected.rule in rules.refused else None
            )
        masked = mask(found, rules.masked) if rules.masked else {}
        marks = fingerprints(
            found.text, minhash=rules.similarity is not None, numbers=rules.numbers
        )
        whole = with_markdown(found)
        if whole is not found:
            whole.text = without(whole.text, repeated)
            mask(whole, rules.masked)
        made = record_of(page, whole, given, (self._part.file, offset))
        raw = msgspec.Raw(_encode(made))
        return Line(*about, *marks, raw, masked=masked, fetch=fetch)


class _Beside(NamedTuple):
    """By what a request and its answer find each other: id, URL, and the id of the other one."""

    record_id: str = ""
    url: str = ""
    other: str = ""

    @classmethod
    def of(cls, record: WarcRecord) -> _Beside:
        other = record.headers.get("WARC-Concurrent-To") or ""
        return cls(record.headers.get("WARC-Record-ID") or "", target(record), other)

    def belongs_to(self, before: _Beside) -> bool:
        """Return whether this record and the one before it are request and answer."""
        return bool(self.other) and (self.other, self.url) == (before.record_id, before.url)


def _resource(record: WarcRecord) -> str:
    """Return what a request asks for, as `Fetch.resource`."""
    block = record.reader.read(_REQUEST_MAX)
    query = query_of(block)
    return "" if query is None else query.added_to(target(record))


def _revisit(record: WarcRecord, offset: int, number: int) -> Line:
    date, digest = record.headers.get("WARC-Date") or "", payload_digest(record, b"")
    return Line(number, offset, target(record), fetch=Fetch(date, "", digest, is_revisit=True))
