"""Check finished WARC files and their indexes to the byte.

Beyond ``fastwarc check`` this checks that the file ends where a member ends and that a member is
one record, and the fields of each. A payload digest must be that of the entity, transfer coding
removed; other tools digest the chunks. Each index line must lead to its capture, each record id
must be of one record, and the records that others refer to must exist.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from krowlspider.archive.disk import DAMAGED, OPEN
from krowlspider.archive.index import cdxj
from krowlspider.archive.index.indexes import indexes_in, merged
from krowlspider.archive.index.lookup import lines_with, may_be_same, place_of_original
from krowlspider.archive.payloads.digests import has_digest, is_checkable
from krowlspider.archive.payloads.payload import payload_of, without_head
from krowlspider.archive.reading import Advance, ignore
from krowlspider.archive.tools.inputs import files_in, read_records
from krowlspider.archive.tools.mend import salvaged_from
from krowlspider.archive.tools.record_checks import RecordIds, faults_in

if TYPE_CHECKING:
    from typing import BinaryIO

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.errors import RecordError
    from krowlspider.archive.index.cdxj import IndexLine
    from krowlspider.archive.reading import Member

# More problems are counted, but not kept: those of a broken disk would fill the memory.
_PROBLEMS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with the record, or the index line, at byte ``offset`` of ``file``."""

    file: str
    offset: int
    what: str


@dataclass(slots=True)
class CheckReport:
    """The result of a check: the folder is valid when ``problem_count`` is 0.

    Open files are counted, not checked. A warning names something missing that can be made again
    or may be in another archive. ``problems`` and ``warnings`` hold the first thousand each.
    """

    files: int = 0
    open_files: int = 0
    records: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    warning_count: int = 0
    warnings: list[Problem] = field(default_factory=list)

    def add(self, file: str, offset: int, what: str) -> None:
        """Count a problem, and keep it if it is among the first thousand."""
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(Problem(file, offset, what))

    def warn(self, file: str, offset: int, what: str) -> None:
        """Count a warning, and keep it if it is among the first thousand."""
        self.warning_count += 1
        if len(self.warnings) < _PROBLEMS_KEPT:
            self.warnings.append(Problem(file, offset, what))


def check_folder(directory: Path, advance: Advance = ignore) -> CheckReport:
    """Check every finished WARC file in ``directory``. Raises OSError.

    ``advance`` is called with each member's length in bytes. Memory holds a record, about 700 bytes
    for each capture of one file, and the whole of one index. A file that was uploaded and removed
    in the meantime is skipped.
    """
    report = CheckReport(open_files=len(list(directory.glob(f"*{cdxj.WARC}{OPEN}"))))
    for path in sorted(directory.glob(f"*{cdxj.WARC}{OPEN}{DAMAGED}")):
        out = salvaged_from(path)
        whole = "scrapy warc mend salvages its whole records"
        if out is not None:
            whole = f"its whole records are in {out.name}"
        report.warn(path.name, 0, f"a damaged file: {whole}")
    with TemporaryDirectory(prefix="krowlspider-check-") as name:
        scratch = Path(name)
        ids = RecordIds(scratch)
        captures: list[Path] = []
        with (scratch / "revisits").open("w+b") as revisits:
            for path in files_in(directory):
                try:
                    with path.open("rb") as stream:
                        report.files += 1
                        check = _FileCheck(path, report, revisits, ids)
                        check.run(stream, advance)
                except FileNotFoundError:
                    if path.is_symlink():
                        report.add(path.name, 0, "a link to a file that is missing")
                    continue
                if check.unindexed:
                    captures.append(scratch / f"{path.name}{cdxj.INDEX}")
                    captures[-1].write_text("".join(check.unindexed))
            indexes = indexes_in(directory)
            for away in indexes.away:
                _check_lines(cdxj.index_path(directory / away), None, report)
            if revisits.tell():
                revisits.seek(0)
                originals = _originals([*indexes.there, *captures], scratch)
                _check_revisits(revisits, originals, report)
        for is_fault, file, offset, what in ids.faults():
            (report.add if is_fault else report.warn)(file, offset, what)
    return report


class _FileCheck:
    """The check of one file and its index.

    ``revisits`` gets a line for each revisit: a JSON list of key and time of its original, then the
    revisit's digest, offset and file name. ``unindexed`` are the lines that an index would have, if
    there is none.
    """

    def __init__(self, path: Path, report: CheckReport, revisits: BinaryIO, ids: RecordIds):
        self._path = path
        self._report = report
        self._revisits = revisits
        self._ids = ids
        # The line of each capture, by its `_essence`.
        self._captures: dict[int, IndexLine] = {}
        self._lines = cdxj.LineMaker(path.name)
        self._is_whole = True
        self.unindexed: list[str] | None = None if cdxj.index_path(path).exists() else []

    def run(self, stream: BinaryIO, advance: Advance) -> None:
        """Check the records of the open file that can be read, and its index."""
        if not os.fstat(stream.fileno()).st_size:
            self._problem(0, "the file is empty")
        for member, record in read_records(stream, self._damage, advance):
            self._check_record(member, record)
        self._add_captures(self._lines.end())
        self._check_index()
        self._ids.end_file()

    def _damage(self, error: RecordError) -> None:
        self._is_whole = False
        self._problem(error.offset, error.reason)

    def _problem(self, offset: int, what: str) -> None:
        self._report.add(self._path.name, offset, what)

    def _check_record(self, member: Member, record: WarcRecord) -> None:
        self._report.records += 1
        for is_fault, what in faults_in(record):
            (self._report.add if is_fault else self._report.warn)(
                self._path.name, member.offset, what
            )
        self._ids.add(record, self._path.name, member.offset)
        block = record.reader.read()
        claimed = record.headers.get("WARC-Block-Digest") or ""
        if is_checkable(claimed) and not has_digest(block, claimed):
            self._problem(member.offset, "the block does not match its digest")
        self._add_captures(self._lines.take_record(record, block, member))
        if record.headers.get("WARC-Type") == "revisit":
            # The payload of a revisit is in another record.
            self._note_revisit(record, block, member)
        elif not _has_payload_digest(record, block):
            self._problem(member.offset, "the payload does not match its digest")

    def _add_captures(self, lines: list[str]) -> None:
        if self.unindexed is not None:
            self.unindexed += lines
        for text in lines:
            line = cdxj.parse(text.encode())
            self._captures[_essence(line)] = line

    def _note_revisit(self, record: WarcRecord, block: bytes, member: Member) -> None:
        line = cdxj.capture_of(record, block, member, self._path.name)
        if (original := place_of_original(record.headers)) is not None:
            digest = "" if line is None else line.digest
            values = [*original, digest, member.offset, self._path.name]
            self._revisits.write(json.dumps(values).encode() + b"\n")

    def _check_index(self) -> None:
        if not self._path.name.endswith(cdxj.WARC):
            return
        index = cdxj.index_path(self._path)
        if not index.exists():
            self._report.warn(index.name, 0, "the index is missing")
            return
        size = _check_lines(index, self._captures, self._report, is_whole=self._is_whole)
        if self._captures:
            number = len(self._captures)
            what = "1 capture has no line" if number == 1 else f"{number:,} captures have no line"
            self._report.warn(index.name, size, what)


def _has_payload_digest(record: WarcRecord, block: bytes) -> bool:
    """Return whether the payload has the digest of its record; True if that cannot be checked."""
    claimed = record.headers.get("WARC-Payload-Digest") or ""
    # A segment holds part of the payload.
    if not is_checkable(claimed) or "WARC-Segment-Number" in record.headers:
        return True
    if not (record.headers.get("Content-Type") or "").startswith("application/http"):
        return has_digest(block, claimed)
    return any(has_digest(find(block), claimed) for find in (payload_of, without_head))


def _essence(line: IndexLine) -> int:
    """Return a 64-bit hash of the values in a line that are needed to find the capture."""
    return hash((line.key, line.timestamp, line.url, line.length, line.offset, line.filename))


def _check_lines(
    index: Path,
    captures: dict[int, IndexLine] | None,
    report: CheckReport,
    *,
    is_whole: bool = True,
) -> int:
    """Check that lines are sorted and that each leads to a capture; return the bytes of the index.

    A found capture is removed from ``captures``. With None, for a file that was moved elsewhere,
    a line need only be valid; so of a file that is not whole, whose damaged records have lines too.
    """
    last, offset = b"", 0
    with index.open("rb") as file:
        for text in file:
            if text < last:
                report.add(index.name, offset, "a line is out of order")
            line = _valid(text)
            leads = line is not None and (
                captures is None or not is_whole or _essence(line) in captures
            )
            if not leads and text != last:
                report.add(index.name, offset, "a line points to no capture")
            elif captures is not None and line is not None:
                capture = captures.pop(_essence(line), None)
                if capture is not None and (wrong := _disagreement(line, capture)):
                    report.add(index.name, offset, f"the {wrong} of a line is not its record's")
            last = text
            offset += len(text)
    return offset


def _disagreement(line: IndexLine, capture: IndexLine) -> str | None:
    """Return the value of a line that the line of its record has otherwise; None if they agree.

    Other tools leave values out, and may digest the chunks of a chunked payload.
    """
    if line.status not in {"", "-", capture.status}:
        return "status"
    if capture.mime and line.mime.lower() not in {"", "-", "unk", capture.mime}:
        return "media type"
    return None


def _valid(text: bytes) -> IndexLine | None:
    """Return the parsed line of an index, or None if it is broken."""
    try:
        return cdxj.parse(text)
    except ValueError:
        return None


def _originals(indexes: list[Path], scratch: Path) -> Path:
    """Return a sorted index of the captures in all ``indexes`` but revisits and broken lines."""
    parts = []
    for index in indexes:
        part = scratch / index.name
        with index.open("rb") as file:
            lines = (text for text in file if (line := _valid(text)) and line.mime != cdxj.REVISIT)
            part.write_bytes(b"".join(sorted(text.rstrip(b"\n") + b"\n" for text in lines)))
        parts.append(part)
    originals = scratch / "originals"
    with originals.open("wb") as file:
        file.writelines(merged(parts, scratch))
    return originals


def _check_revisits(revisits: BinaryIO, originals: Path, report: CheckReport) -> None:
    """Warn of each revisit whose payload is in none of the ``originals``."""
    for text in revisits:
        key, time, digest, offset, file = json.loads(text)
        found = lines_with(originals, f"{key} {time} ")
        if not any(may_be_same(line.digest, digest) for line in found):
            report.warn(file, offset, "the record that this revisit refers to is missing")
