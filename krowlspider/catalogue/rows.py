"""The rows of one WARC file.

They are made of its records and of its index. A file without a current index is indexed first, in
memory. Rows of captures come in the order of records, those of hosts, pages and changes at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fastwarc.warc import WarcRecordType

from krowlspider.archive.cdxj import index_path, index_readable, parse, target
from krowlspider.archive.reading import ignore_damage
from krowlspider.catalogue.records.captures import CapturedRecord, Note, fetch_row, is_message
from krowlspider.catalogue.records.changes import change_rows
from krowlspider.catalogue.records.documents import link_rows, robots_row, sitemap_row
from krowlspider.catalogue.records.sums import Hosts, PageSums
from krowlspider.corpus.warc_pages import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.cdxj import IndexLine
    from krowlspider.catalogue.sinks import Row

    # Called with each fault of a file: where it is, and what is wrong.
    Fault = Callable[[str], object]

# Rows that wait for the metadata record of their fetch, which is written once its callback is over.
WAITING_MAX = 2_000
_NOTE_MAX = 64 * 1024
_KINDS = WarcRecordType.response | WarcRecordType.revisit | WarcRecordType.metadata
_SUMS = ("host_by_file", "page_by_file", "change")


class FileOrigin(NamedTuple):
    """Where a WARC file belongs: the name of its crawl, and the process that wrote it, "0" in a
    crawl of one process. ``earlier`` are the indexes of files that were begun before it."""

    crawl: str
    segment: str = "0"
    earlier: Sequence[Path] = ()


NOWHERE = FileOrigin("")


def ignore(fault: str) -> None:
    """Report no fault."""


def rows_of(
    path: Path, tables: frozenset[str], place: FileOrigin = NOWHERE, fault: Fault = ignore
) -> Iterator[tuple[str, Row]]:
    """Yield pairs of table and row of a finished WARC file; the same file gives the same rows.

    ``tables`` are keys of `columns.TABLES`. ``fault`` is called with each damaged stretch of the
    file, which is passed over, and with each capture that has no time.

    :raises ArchiveError: the index of an earlier file has a broken line
    :raises OSError: the file cannot be read, or is gone
    """
    lines = index_lines(path)
    reader = _Reader(path, tables, place, fault)
    for table, row in reader.read(lines):
        row["crawl"] = place.crawl
        yield table, row
    for table in (each for each in _SUMS if each in tables):
        for row in reader.sums(table, list(lines.values())):
            row["crawl"] = place.crawl
            yield table, row


def index_lines(path: Path) -> dict[int, bytes]:
    """Return the index lines of a file by offset, in their order: those beside it if they are
    current and whole, else lines made of the file."""
    index = index_path(path)
    with suppress(FileNotFoundError, ValueError):
        if index.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            with index.open("rb") as file:
                # An empty one may be cut, and is soon made again.
                if found := _by_offset(path, file):
                    return found
    made = index_readable(path, ignore_damage)
    return _by_offset(path, sorted(line.encode() for line in made))


def _by_offset(path: Path, lines: Iterable[bytes]) -> dict[int, bytes]:
    """:raises ValueError: a line is broken, or of another file"""
    found = {}
    for text in lines:
        line = parse(text)
        if line.filename != path.name:
            raise ValueError("a line of another file")
        # As bytes they take a third of the memory.
        found[line.offset] = text
    return found


class _Reader:
    """Makes the rows of one file, its records in one pass."""

    def __init__(self, path: Path, tables: frozenset[str], place: FileOrigin, fault: Fault):
        self._path = path
        self._tables = tables
        self._place = place
        self._fault = fault
        self._hosts, self._pages = Hosts(), PageSums(path.name)
        # The ids of captures, by the offset of their records.
        self._ids: dict[int, str] = {}
        self._waiting: OrderedDict[str, Row] = OrderedDict()

    def read(self, lines: Mapping[int, bytes]) -> Iterator[tuple[str, Row]]:
        """Yield the rows of captures that have one of these index lines."""

        def damage(offset: int, reason: str) -> None:
            self._fault(f"at byte {offset}: {reason}")

        with self._path.open("rb") as stream:
            for offset, record in records(stream, 0, damage, _KINDS):
                if record.record_type == WarcRecordType.metadata:
                    self._take_note(record)
                elif (line := lines.get(offset)) is not None and is_message(record):
                    yield from self._read_capture(record, parse(line))
        for row in self._waiting.values():
            yield "fetch", row

    def _read_capture(self, record: WarcRecord, line: IndexLine) -> Iterator[tuple[str, Row]]:
        try:
            capture = CapturedRecord(record, line)
        except ValueError as error:
            self._fault(f"at byte {line.offset}: {error}")
            return
        self._ids[line.offset] = capture.record_id
        self._hosts.add(capture)
        self._pages.add(capture)
        if "fetch" in self._tables:
            if (twin := self._waiting.pop(capture.record_id, None)) is not None:
                yield "fetch", twin
            self._waiting[capture.record_id] = fetch_row(capture, self._place.segment)
            if len(self._waiting) > WAITING_MAX:
                yield "fetch", self._waiting.popitem(last=False)[1]
        if capture.is_robots:
            if "robots" in self._tables:
                yield "robots", robots_row(capture)
            return
        if "sitemap" in self._tables and (row := sitemap_row(capture)) is not None:
            yield "sitemap", row
        if "link" in self._tables:
            for link in link_rows(capture):
                yield "link", link

    def _take_note(self, record: WarcRecord) -> None:
        of = (record.headers.get("WARC-Concurrent-To") or "").strip("<>")
        if not of or record.content_length > _NOTE_MAX:
            return
        url = target(record)
        note = Note.of(record.reader.read(), url)
        self._pages.add_seed(url, note.seed)
        if (row := self._waiting.get(of)) is not None:
            row |= note.columns()

    def sums(self, table: str, lines: Sequence[bytes]) -> Iterator[Row]:
        """Yield the rows of a table that are made at the end of the file."""
        if table == "change":
            return change_rows(self._path, lines, self._place.earlier, self._ids)
        return self._hosts.rows() if table == "host_by_file" else self._pages.rows()
