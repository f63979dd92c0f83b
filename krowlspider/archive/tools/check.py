"""Check finished WARC files and their indexes to the byte.

Beyond ``fastwarc check`` this checks that the file ends where a gzip member ends and that a member
is one record. Payload digests must be those of the entity, transfer coding removed. Each index
line must lead to its capture, and the payload of each revisit must exist.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from krowlspider.archive.disk import OPEN
from krowlspider.archive.errors import RecordError
from krowlspider.archive.index.cdxj import (
    REVISIT,
    index_path,
    index_record,
    key_of,
    parse,
    timestamp,
)
from krowlspider.archive.index.indexes import indexes_in, may_be_same, merged
from krowlspider.archive.index.lookup import parse_record
from krowlspider.archive.members import read_member
from krowlspider.archive.payloads.digests import has_digest
from krowlspider.archive.payloads.payload import payload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.index.cdxj import IndexLine

# More problems are counted, but not kept: those of a broken disk would fill the memory.
_PROBLEMS_KEPT = 1000
_NEEDED = ("WARC-Type", "WARC-Record-ID", "WARC-Date", "Content-Length")
# The value in an index line: inside other text the quotation marks would be escaped.
_A_REVISIT = f'"{REVISIT}"'.encode()


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

    def add(self, problem: Problem) -> None:
        """Count a problem, and keep it if it is among the first thousand."""
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(problem)

    def warn(self, warning: Problem) -> None:
        """Count a warning, and keep it if it is among the first thousand."""
        self.warning_count += 1
        if len(self.warnings) < _PROBLEMS_KEPT:
            self.warnings.append(warning)


def check_folder(directory: Path, told: Callable[[int], object] | None = None) -> CheckReport:
    """Check every finished WARC file in ``directory``.

    ``told`` is called with each member's length in bytes. Memory holds a record, about 100 bytes
    for each capture of one file, and the whole of one unsorted index. A file that was uploaded and
    removed in the meantime is skipped.

    :raises OSError: a file cannot be read
    """
    report = CheckReport(open_files=len(list(directory.glob(f"*.warc.gz{OPEN}"))))
    with TemporaryDirectory(prefix="krowlspider-check-") as name:
        scratch, runs = Path(name), []
        for path in sorted(directory.glob("*.warc.gz")):
            try:
                references = check_file(path, report, told)
            except FileNotFoundError:
                continue
            if references:
                runs.append(scratch / path.name)
                runs[-1].write_bytes(b"".join(sorted(references)))
        indexes = indexes_in(directory)
        for away in indexes.away:
            _check_lines(index_path(directory / away), None, report)
        if runs:
            wholes = _wholes([_in_order(index, scratch) for index in indexes.there], scratch)
            _check_references(merged(runs, scratch), wholes, report)
    return report


def check_file(
    path: Path, report: CheckReport, told: Callable[[int], object] | None = None
) -> list[bytes]:
    """Check one file and add its problems to ``report``; a broken member ends the check.

    ``told`` is called with each member's length in bytes. Return a line for each revisit: key and
    time of its original, then a JSON list of the revisit's digest, offset and file name.

    :raises OSError: the file cannot be read
    """
    check = _FileCheck(path.name, report)
    offset = 0
    with path.open("rb") as stream:
        report.files += 1
        size = os.fstat(stream.fileno()).st_size
        if not size:
            check.problem(0, "the file is empty")
        while offset < size:
            content = BytesIO()
            try:
                length = read_member(stream, offset, content.write)
            except RecordError as error:
                check.problem(offset, error.reason)
                return check.references
            check.member(content.getvalue(), offset, length)
            offset += length
            if told is not None:
                told(length)
    _check_index(path, check.captures, report)
    return check.references


class _FileCheck:
    """The check of one file.

    ``captures`` holds the `_essence` of each capture, ``references`` the lines that `check_file`
    returns.
    """

    def __init__(self, name: str, report: CheckReport):
        self._name = name
        self._report = report
        self.captures: set[int] = set()
        self.references: list[bytes] = []

    def problem(self, offset: int, what: str) -> None:
        self._report.add(Problem(self._name, offset, what))

    def member(self, content: bytes, offset: int, length: int) -> None:
        """Check the record that a member holds."""
        self._report.records += 1
        try:
            record = parse_record(content, offset)
        except RecordError as error:
            self.problem(offset, error.reason)
            return
        for name in _NEEDED:
            if name not in record.headers:
                self.problem(offset, f"no {name}")
        if "WARC-Block-Digest" in record.headers and not record.verify_block_digest():
            self.problem(offset, "the block does not have its digest")
        block = record.reader.read()
        line = index_record(record, block, offset, length, self._name)
        said = None if line is None else parse(line.encode())
        if said is not None:
            self.captures.add(_essence(said))
        if record.headers.get("WARC-Type") == "revisit":
            # The payload of a revisit is in another record.
            self.references += _references(record, said.digest if said else "", offset, self._name)
        elif not _has_payload_digest(record, block):
            self.problem(offset, "the payload does not have its digest")


def _has_payload_digest(record: WarcRecord, block: bytes) -> bool:
    """Return whether the payload has the digest of its record; True without a digest."""
    claimed = record.headers.get("WARC-Payload-Digest")
    http = (record.headers.get("Content-Type") or "").startswith("application/http")
    return claimed is None or has_digest(payload_of(block) if http else block, claimed)


def _essence(line: IndexLine) -> int:
    """Return a 64-bit hash of the values in a line that are needed to find the capture."""
    return hash((line.key, line.timestamp, line.url, line.length, line.offset, line.filename))


def _references(revisit: WarcRecord, digest: str, offset: int, name: str) -> Iterator[bytes]:
    url = revisit.headers.get("WARC-Refers-To-Target-URI")
    date = revisit.headers.get("WARC-Refers-To-Date")
    if url and date:
        # JSON, because a file name may hold blanks.
        yield f"{key_of(url)} {timestamp(date)} {json.dumps([digest, offset, name])}\n".encode()


def _check_index(path: Path, captures: set[int], report: CheckReport) -> None:
    """Check that each line of a file's index leads to a capture, and each capture has a line.

    Removes from ``captures`` those that have a line.
    """
    index = index_path(path)
    if not index.exists():
        report.warn(Problem(index.name, 0, "there is no such index"))
        return
    size = _check_lines(index, captures, report)
    if captures:
        report.warn(Problem(index.name, size, f"{len(captures):,} captures have no line"))


def _check_lines(index: Path, captures: set[int] | None, report: CheckReport) -> int:
    """Check that lines are sorted and that each leads to a capture; return the bytes of the index.

    A found capture is removed from ``captures``. With None, for a file that was moved elsewhere,
    a line need only be valid.
    """
    last, offset = b"", 0
    with index.open("rb") as file:
        for line in file:
            if line < last:
                report.add(Problem(index.name, offset, "a line is not in its sorted place"))
            if not _leads(line, captures) and line != last:
                report.add(Problem(index.name, offset, "a line leads to no such capture"))
            last = line
            offset += len(line)
    return offset


def _leads(line: bytes, captures: set[int] | None) -> bool:
    try:
        found = _essence(parse(line))
    except ValueError:
        return False
    if captures is None:
        return True
    leads = found in captures
    captures.discard(found)
    return leads


def _in_order(index: Path, scratch: Path) -> Path:
    """Return the index, or a sorted copy of an unsorted one, which is in the report already."""
    with index.open("rb") as file:
        if all(one <= other for one, other in pairwise(file)):
            return index
        file.seek(0)
        copy = scratch / index.name
        copy.write_bytes(b"".join(sorted(line.rstrip(b"\n") + b"\n" for line in file)))
    return copy


def _wholes(indexes: list[Path], scratch: Path) -> Iterator[bytes]:
    """Yield the index lines of captures that are not revisits, sorted."""
    with TemporaryDirectory(dir=scratch) as parts:
        yield from (line for line in merged(indexes, Path(parts)) if _A_REVISIT not in line)


def _check_references(
    references: Iterator[bytes], wholes: Iterator[bytes], report: CheckReport
) -> None:
    """Check that the original of each revisit is in the indexes; else warn.

    Both ``references`` and ``wholes`` must be sorted by key and time.
    """
    seen, there = b"", set[str]()
    whole = next(wholes, None)
    for reference in references:
        key, time, said = reference.split(b" ", 2)
        digest, offset, file = json.loads(said)
        wanted = b"%b %b " % (key, time)
        if wanted != seen:
            seen, there = wanted, set()
        while whole is not None and (whole < wanted or whole.startswith(wanted)):
            there |= _digests(whole) if whole.startswith(wanted) else set()
            whole = next(wholes, None)
        if not any(may_be_same(each, digest) for each in there):
            report.warn(Problem(file, offset, "what this revisit stands for is not there"))


def _digests(line: bytes) -> set[str]:
    """Return the digest of a line, as a set; the digest is an empty text if the line has none.

    The set is empty for a broken line, which is in the report already.
    """
    try:
        return {parse(line).digest}
    except ValueError:
        return set()
