"""Check finished WARC files, their records and their indexes to the byte.

Of a record, the named fields are checked, and the ids by which records refer to each other. The
fields are those of ISO 28500:2017, section 5; WARC 1.0 is accepted. The standard allows extensions,
so unknown fields and values are at most warned of.

Of a file, this checks beyond ``fastwarc check`` that it ends where a member ends and that a member
is one record, and the fields of each. A payload digest must be that of the entity, transfer coding
removed; other tools digest the chunks. Each index line must lead to its capture, each record id
must be of one record, and the records that others refer to must exist.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import xxhash

from krowlspider.archive import cdxj, gemini
from krowlspider.archive.disk import DAMAGED, OPEN, RecordError
from krowlspider.archive.indexes import (
    indexes_in,
    lines_with,
    may_be_same,
    merged,
    place_of_original,
)
from krowlspider.archive.payload import has_digest, is_checkable, payload_of, without_head
from krowlspider.archive.reading import Advance, GzipMember, ignore
from krowlspider.archive.tools.inputs import files_in, read_records
from krowlspider.archive.tools.mend import salvaged_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.cdxj import IndexLine

_NEEDED = ("WARC-Type", "WARC-Record-ID", "WARC-Date", "Content-Length")
_ABOUT_URIS = ("response", "resource", "request", "revisit", "conversion", "continuation")
# What a type needs besides (6.2 to 6.9).
_NEEDED_BY = {
    **dict.fromkeys(_ABOUT_URIS, ("WARC-Target-URI",)),
    "revisit": ("WARC-Target-URI", "WARC-Profile"),
    "continuation": ("WARC-Target-URI", "WARC-Segment-Number", "WARC-Segment-Origin-ID"),
}
_TYPES = {"warcinfo", "metadata", *_ABOUT_URIS}
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_ID = re.compile(rf"<(?:urn:uuid:{_UUID}|(?!urn:uuid:)[A-Za-z][A-Za-z0-9+.-]*:[!-;=?-~]+)>")
_IDS = ("WARC-Record-ID", "WARC-Concurrent-To", "WARC-Warcinfo-ID", "WARC-Refers-To")
# A W3C date in UTC, shortened or with fractions of a second (5.4).
_DATE = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})"
    r"(?:T([01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|60)(?:\.[0-9]{1,9})?)?Z)?)?)?"
)
_DATES = ("WARC-Date", "WARC-Refers-To-Date")
# Early versions of wget write a target in angle brackets, one reading of WARC 1.0.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*|<[A-Za-z][A-Za-z0-9+.-]*:[!-~]*>")
_URIS = ("WARC-Target-URI", "WARC-Refers-To-Target-URI", "WARC-Profile")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TRUNCATED = frozenset({"length", "time", "disconnect", "unspecified"})
# The fields that may be repeated (5.7, and an extension of 1.1).
_REPEATED = frozenset({"warc-concurrent-to", "warc-protocol"})
_DIGESTS = ("WARC-Block-Digest", "WARC-Payload-Digest")


def faults_in(record: WarcRecord) -> Iterator[tuple[bool, str]]:
    """Yield what is wrong with the fields of a record, each with whether it breaks the standard."""
    fields = record.headers
    for name in _NEEDED:
        if name not in fields:
            yield True, f"no {name}"
    kind = fields.get("WARC-Type") or ""
    for name in _NEEDED_BY.get(kind, ()):
        if name not in fields:
            yield True, f"no {name}, which a {kind} needs"
    if kind and kind not in _TYPES:
        yield False, f"the type {kind[:80]!r} is not known"
    counts = Counter(name.lower() for name, _ in fields.items())
    for name, count in counts.items():
        if count > 1 and name.startswith(("warc-", "content-")) and name not in _REPEATED:
            yield True, f"{count} fields {name}"
    for is_fault, name, valid in _FORMS:
        if name not in fields:
            continue
        for value in fields.get_multiple(name):
            if not valid(value):
                yield is_fault, f"{name} is {value[:200]!r}"


def _is_date(value: str) -> bool:
    found = _DATE.fullmatch(value)
    if found is None:
        return False
    year, month, day = (int(part or 1) for part in found.groups()[:3])
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _is_address(value: str) -> bool:
    try:
        ip_address(value)
    except ValueError:
        return False
    return True


# Whether a breach is a fault, the name of the field, and what is true for a valid value.
_FORMS: tuple[tuple[bool, str, Callable[[str], object]], ...] = (
    *((True, name, _ID.fullmatch) for name in _IDS),
    *((True, name, _is_date) for name in _DATES),
    # Other crawlers write URLs as they found them; readers find these all the same.
    *((False, name, _URI.fullmatch) for name in _URIS),
    (True, "WARC-IP-Address", _is_address),
    (True, "WARC-Truncated", _TOKEN.fullmatch),
    # 5.13 allows further reasons.
    (False, "WARC-Truncated", lambda value: value in _TRUNCATED or not _TOKEN.fullmatch(value)),
    *((False, name, is_checkable) for name in _DIGESTS),
)


_REFERENCES = {
    "WARC-Concurrent-To": "the record that it is concurrent to is missing",
    "WARC-Warcinfo-ID": "its warcinfo record is missing",
}
_REPEATED_ID = "another record has the same WARC-Record-ID"


class SortedRecordIds:
    """The record ids of a folder, kept in sorted files in ``scratch``.

    Memory holds about 250 bytes for each record of one file.
    """

    def __init__(self, scratch: Path):
        self._scratch = scratch
        self._lines: list[str] = []
        self._referred: set[tuple[str, str]] = set()
        self._parts: list[Path] = []

    def add(self, record: WarcRecord, file: str, offset: int) -> None:
        if identity := record.headers.get("WARC-Record-ID"):
            self._note(identity, file, offset, "")
        for name, what in _REFERENCES.items():
            for identity in record.headers.get_multiple(name):
                if (identity, name) not in self._referred:
                    self._referred.add((identity, name))
                    self._note(identity, file, offset, what)

    def _note(self, identity: str, file: str, offset: int, what: str) -> None:
        key = xxhash.xxh3_128_hexdigest(identity.encode(errors="replace"))
        self._lines.append(f"{key} {json.dumps([file, offset, what])}\n")

    def end_file(self) -> None:
        """Write what was added since the last call."""
        part = self._scratch / f"ids-{len(self._parts)}"
        part.write_text("".join(sorted(self._lines)), encoding="ascii")
        self._parts.append(part)
        self._lines, self._referred = [], set()

    def faults(self) -> Iterator[tuple[bool, str, int, str]]:
        """Yield repeated ids (True) and missing records (False), each with file and offset."""
        lines = merged(self._parts, self._scratch)
        for _, same in groupby(lines, key=lambda line: line.partition(b" ")[0]):
            places = [json.loads(line.partition(b" ")[2]) for line in same]
            owners = [place for place in places if not place[2]]
            for file, offset, _ in owners[1:]:
                yield True, file, offset, _REPEATED_ID
            if not owners:
                for file, offset, what in places:
                    yield False, file, offset, what


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
        ids = SortedRecordIds(scratch)
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

    def __init__(self, path: Path, report: CheckReport, revisits: BinaryIO, ids: SortedRecordIds):
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

    def _check_record(self, member: GzipMember, record: WarcRecord) -> None:
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

    def _note_revisit(self, record: WarcRecord, block: bytes, member: GzipMember) -> None:
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
    content = record.headers.get("Content-Type") or ""
    if gemini.is_gemini(content):
        # Of the body, or as tools that do not know Gemini have it.
        return any(has_digest(each, claimed) for each in (gemini.read(block).payload, block))
    if not content.startswith("application/http"):
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
