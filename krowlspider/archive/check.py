"""Whether archive files are what they should be, to the byte.

Beyond what ``fastwarc check`` looks at: that the file ends where a gzip member ends, that a member
is one record, and that payload digests are those of the entity with its transfer coding removed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING

from krowlspider.archive.disk import OPEN
from krowlspider.archive.errors import RecordError
from krowlspider.archive.lookup import parse_record
from krowlspider.archive.members import read_member
from krowlspider.archive.payload import payload_of
from krowlspider.archive.records import digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# More are counted, not kept: a broken disk must not fill the memory too.
_PROBLEMS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the record at ``offset`` of ``file``."""

    file: str
    offset: int
    what: str


@dataclass(slots=True)
class CheckReport:
    """A folder checked: valid when ``problem_count`` is 0. Files still open are not looked into."""

    files: int = 0
    open_files: int = 0
    records: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Count a problem, and keep it when it is among the first thousand."""
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(problem)


def check_folder(directory: Path) -> CheckReport:
    """Check every finished WARC file in ``directory``. Raises OSError when one cannot be read."""
    report = CheckReport(open_files=len(list(directory.glob(f"*.warc.gz{OPEN}"))))
    for path in sorted(directory.glob("*.warc.gz")):
        check_file(path, report)
    return report


def check_file(path: Path, report: CheckReport) -> None:
    """Check one file and add what is found to ``report``; what follows a broken member is lost."""
    report.files += 1
    offset = 0
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if not size:
            report.add(Problem(path.name, 0, "the file is empty"))
        while offset < size:
            content = BytesIO()
            try:
                length = read_member(stream, offset, content.write)
            except RecordError as error:
                report.add(Problem(path.name, offset, error.reason))
                return
            for what in _record_problems(content.getvalue(), offset):
                report.add(Problem(path.name, offset, what))
            report.records += 1
            offset += length


def _record_problems(content: bytes, offset: int) -> Iterator[str]:
    try:
        record = parse_record(content, offset)
    except RecordError as error:
        yield error.reason
        return
    for name in ("WARC-Type", "WARC-Record-ID", "WARC-Date", "Content-Length"):
        if name not in record.headers:
            yield f"no {name}"
    if "WARC-Block-Digest" in record.headers and not record.verify_block_digest():
        yield "the block does not have its digest"
    claimed = record.headers.get("WARC-Payload-Digest")
    if claimed is not None and claimed != digest(payload_of(record.reader.read())):
        yield "the payload does not have its digest"
