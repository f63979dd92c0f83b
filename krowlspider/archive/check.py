"""Whether archive files are what they should be, to the byte.

Beyond what ``fastwarc check`` looks at: that the file ends where a gzip member ends, that a member
is one record, that payload digests are those of the entity with its transfer coding removed, that the lines of
an index lead to the captures they speak of, and that what revisits stand for is there.
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

from krowlspider.archive.cdxj import REVISIT, index_path, index_record, key_of, parse, timestamp
from krowlspider.archive.digests import has_digest
from krowlspider.archive.disk import OPEN
from krowlspider.archive.errors import RecordError
from krowlspider.archive.indexes import indexes_in, may_be_same, merged
from krowlspider.archive.lookup import parse_record
from krowlspider.archive.members import read_member
from krowlspider.archive.payload import payload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.cdxj import IndexLine

# More are counted, not kept: a broken disk must not fill the memory too.
_PROBLEMS_KEPT = 1000
_NEEDED = ("WARC-Type", "WARC-Record-ID", "WARC-Date", "Content-Length")
# As it stands in a line: within other text the quotation marks would be escaped.
_A_REVISIT = f'"{REVISIT}"'.encode()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the record at ``offset`` of ``file``."""

    file: str
    offset: int
    what: str


@dataclass(slots=True)
class CheckReport:
    """A folder checked: valid when ``problem_count`` is 0. Files still open are not looked into.

    ``warnings`` are of what is missing and can be made anew, or may be in another archive.
    """

    files: int = 0
    open_files: int = 0
    records: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    warning_count: int = 0
    warnings: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Count a problem, and keep it when it is among the first thousand."""
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(problem)

    def warn(self, warning: Problem) -> None:
        """The same for a warning."""
        self.warning_count += 1
        if len(self.warnings) < _PROBLEMS_KEPT:
            self.warnings.append(warning)


def check_folder(directory: Path, told: Callable[[int], object] | None = None) -> CheckReport:
    """Check every finished WARC file in ``directory``; ``told`` of each member's length.

    Memory holds a record, 100 bytes for each capture of one file, and the whole of one index that is out of order. A
    file that is gone when its turn comes, uploaded and removed, is passed over. Raises OSError when one cannot be read.
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
    """Check one file and add what is found to ``report``; what follows a broken member is lost.

    Returns what its revisits refer to, each as a line: key, time, and digest and place of the revisit.
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
    """What is found in one file; ``captures`` are the `_essence` of each, ``references`` as of `check_file`."""

    def __init__(self, name: str, report: CheckReport):
        self._name = name
        self._report = report
        self.captures: set[int] = set()
        self.references: list[bytes] = []

    def problem(self, offset: int, what: str) -> None:
        self._report.add(Problem(self._name, offset, what))

    def member(self, content: bytes, offset: int, length: int) -> None:
        """Look at the record that a member holds."""
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
            # Its payload is in another record.
            self.references += _references(record, said.digest if said else "", offset, self._name)
        elif not _has_payload_digest(record, block):
            self.problem(offset, "the payload does not have its digest")


def _has_payload_digest(record: WarcRecord, block: bytes) -> bool:
    """Whether the payload has the digest that its record says, if it says one."""
    claimed = record.headers.get("WARC-Payload-Digest")
    http = (record.headers.get("Content-Type") or "").startswith("application/http")
    return claimed is None or has_digest(payload_of(block) if http else block, claimed)


def _essence(line: IndexLine) -> int:
    """What must be right in a line for the capture to be found, in 64 bits."""
    return hash((line.key, line.timestamp, line.url, line.length, line.offset, line.filename))


def _references(revisit: WarcRecord, digest: str, offset: int, name: str) -> Iterator[bytes]:
    url = revisit.headers.get("WARC-Refers-To-Target-URI")
    date = revisit.headers.get("WARC-Refers-To-Date")
    if url and date:
        # In JSON there may be blanks in a name.
        yield f"{key_of(url)} {timestamp(date)} {json.dumps([digest, offset, name])}\n".encode()


def _check_index(path: Path, captures: set[int], report: CheckReport) -> None:
    """Whether each line of a file's index leads to a capture, and each of its ``captures`` has one."""
    index = index_path(path)
    if not index.exists():
        report.warn(Problem(index.name, 0, "there is no such index"))
        return
    size = _check_lines(index, captures, report)
    if captures:
        report.warn(Problem(index.name, size, f"{len(captures):,} captures have no line"))


def _check_lines(index: Path, captures: set[int] | None, report: CheckReport) -> int:
    """Whether lines are sorted, and lead each to one of the ``captures``, which is taken out; None when the file is
    away. Returns the index's size."""
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
    """An index to be merged: a sorted copy of one that is out of order, which is told of already."""
    with index.open("rb") as file:
        if all(one <= other for one, other in pairwise(file)):
            return index
        file.seek(0)
        copy = scratch / index.name
        copy.write_bytes(b"".join(sorted(line.rstrip(b"\n") + b"\n" for line in file)))
    return copy


def _wholes(indexes: list[Path], scratch: Path) -> Iterator[bytes]:
    """The lines of captures that are no revisits, sorted."""
    with TemporaryDirectory(dir=scratch) as parts:
        yield from (line for line in merged(indexes, Path(parts)) if _A_REVISIT not in line)


def _check_references(
    references: Iterator[bytes], wholes: Iterator[bytes], report: CheckReport
) -> None:
    """Whether what revisits refer to is among the captures; both come sorted by key and time."""
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
    """The digest that a line says, empty if none; nothing of a broken line, which is told of already."""
    try:
        return {parse(line).digest}
    except ValueError:
        return set()
