"""Captures of archives, and reports about WARC files."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.archive import gemini
from krowlspider.archive.cdxj import REVISIT, IndexLine, timestamp
from krowlspider.archive.disk import OPEN, RecordError
from krowlspider.archive.indexes import captures_of, original_of
from krowlspider.archive.payload import Decode, body_of, lacks_chunk, without_head
from krowlspider.archive.reading import ALL, read_record
from krowlspider.archive.uploads import uploaded
from krowlspider.errors import KrowlError, counted, printable, scrapy_with
from krowlspider.urls.canonical import normalise_archived

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from krowlspider.archive.tools.check import CheckReport, Problem
    from krowlspider.archive.tools.inputs import WarcStats
    from krowlspider.archive.tools.mend import MendReport

# The end of the revisit profile for a 304, in any version of WARC.
_UNCHANGED = "/server-not-modified"
_SEGMENT = "it is the first of several segments, and the others are not printed"
# A year, and optionally further parts of a date, down to the second.
_DATE = re.compile(r"\d{4}(?:-?\d\d(?:-?\d\d(?:[T ]?\d\d(?::?\d\d(?::?\d\d(?:\.\d*)?)?)?)?)?)?Z?")
_STAMP = "%Y%m%d%H%M%S"


class NotThereError(KrowlError):
    """There is no such capture, or the original that a revisit refers to is missing."""


class DamagedError(KrowlError):
    """A record cannot be read: the message names its file and place."""


def wanted(url: str) -> str:
    """Return the URL as the archive stores it: normalised, or a ``dns:`` or ``urn:`` as it is.

    :raises KrowlError: ``url`` is not a URL that a crawl fetches
    """
    if url.startswith(("dns:", "urn:")):
        return url
    normal = normalise_archived(url)
    if normal is None:
        raise KrowlError(f"{url!r} is not a URL that is crawled: give https://...")
    return normal


def captures(indexes: Sequence[Path], url: str) -> list[IndexLine]:
    """Return the captures of a URL, and of URLs that replay treats as the same, oldest first.

    :raises NotThereError: there is no capture
    """
    found = captures_of(indexes, url)
    if not found:
        raise NotThereError(f"there is no capture of {url}")
    return found


def choose(found: Sequence[IndexLine], url: str, at: str | None) -> IndexLine:
    """Return the newest capture, or the one nearest to the date ``at``.

    Captures of exactly this URL take precedence. A capture with a payload is preferred to an answer
    to HEAD: always if there is no date, else among equally near ones.

    :raises KrowlError: ``at`` is no date
    """
    exact = [line for line in found if line.url == url] or found
    if at is None:
        return ([line for line in exact if not line.is_bare] or exact)[-1]
    moment = _moment(stamp(at))
    return min(exact, key=lambda line: (_distance(line, moment), line.is_bare))


def _distance(line: IndexLine, moment: float) -> float:
    try:
        return abs(_moment(line.timestamp) - moment)
    except ValueError:
        # The index of another tool may have text that is no date.
        return inf


def epoch_of(date: str) -> float:
    """Return the beginning of a date in UTC, in seconds since the epoch.

    :raises KrowlError: it is no date
    """
    return _moment(stamp(date))


def stamp(date: str, *, latest: bool = False) -> str:
    """Return the earliest 14 digits of a date; with ``latest`` the last ones, of a part of it.

    :raises KrowlError: ``date`` is no date
    """
    earliest = timestamp(date)
    try:
        if _DATE.fullmatch(date):
            _moment(earliest)
            digits = re.sub("[^0-9]", "", date)[:14]
            return digits + "9" * (14 - len(digits)) if latest else earliest
    except ValueError:
        pass
    raise KrowlError(f"{date!r} is not a date: give 2026-01-31, or 2026-01-31T12:00:00")


def _moment(stamp: str) -> float:
    return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp()


def read(folder: Path, indexes: Sequence[Path], line: IndexLine) -> tuple[bytes, str]:
    """Return the stored bytes of a capture, the HTTP message as it was on the wire, and why they
    are not all of it; empty if they are.

    A revisit is returned with its own head and the body of its original. A revisit for a 304 is
    returned as its original.

    :raises NotThereError: the WARC file is missing, or the original of a revisit
    :raises DamagedError: the record cannot be read
    """
    fields, block = stored(folder, indexes, line)
    return block, _SEGMENT if "WARC-Segment-Number" in fields else ""


def body(
    folder: Path, indexes: Sequence[Path], line: IndexLine, decode: Decode
) -> tuple[bytes, str]:
    """Return the decoded body of a capture, and as `read` why it is not all of that.

    If it cannot be decoded, return the body as it is stored, and why. Raises the errors of `read`.
    """
    fields, block = stored(folder, indexes, line)
    fault = _SEGMENT if "WARC-Segment-Number" in fields else ""
    content = fields.get("Content-Type", "")
    if gemini.is_gemini(content):
        return gemini.read(block).payload, fault
    if not content.startswith("application/http"):
        return block, fault
    try:
        found = body_of(block, decode)
    except ValueError as error:
        return without_head(block), f"it cannot be decoded, {error}: printed as it is stored"
    if not found and lacks_chunk(block):
        return without_head(block), "its first chunk is cut off: printed as it is stored"
    return found, fault


def stored(
    folder: Path, indexes: Sequence[Path], line: IndexLine, most: int = ALL
) -> tuple[Mapping[str, str], bytes]:
    """Return the fields of the record that has the body of a capture, and what `read` does; of a
    larger record about ``most`` bytes. Raises the errors of `read`."""
    fields, block = _record(folder, line, most)
    if line.mime != REVISIT:
        return fields, block
    revisit, head = fields, block
    original = original_of(indexes, line, revisit)
    if original is None:
        raise NotThereError(
            f"the capture of {line.url} at {line.timestamp} is a revisit, and the record"
            " that it refers to is missing"
        )
    fields, block = _record(folder, original, most)
    # Revisits written by other tools may have no head.
    if head and not revisit.get("WARC-Profile", "").endswith(_UNCHANGED):
        is_gemini = gemini.is_gemini(fields.get("Content-Type"))
        block = head + (gemini.read(block).payload if is_gemini else without_head(block))
    return fields, block


def _record(folder: Path, line: IndexLine, most: int) -> tuple[dict[str, str], bytes]:
    # Only the name of the file: an index must not lead out of the folder.
    path = folder / Path(line.filename).name
    try:
        if path.name.endswith(OPEN) and not path.exists():
            # The crawl has finished it since it was indexed.
            path = path.with_name(path.name.removesuffix(OPEN))
        return read_record(path, line.offset, most)
    except FileNotFoundError as error:
        there = uploaded(folder).get(path.name)
        raise NotThereError(
            f"{line.url} is in {line.filename}, which is not in {folder}"
            + (f": it was uploaded to {there}" if there else "")
        ) from error
    except RecordError as error:
        raise DamagedError(f"{line.filename} at byte {error.offset}: {error.reason}") from error


# Hosts, media types and statuses that a table lists; JSON has all.
_NAMES_SHOWN = 20


def checked(report: CheckReport, folder: Path) -> str:
    """Return each problem and warning with its file and byte offset, then their counts."""
    lines = [
        *_listed("", report.problems, report.problem_count),
        *_listed("warning: ", report.warnings, report.warning_count),
    ]
    lines.append(
        f"{counted(report.files, 'file')}, {counted(report.records, 'record')}:"
        f" {counted(report.problem_count, 'problem')}, {counted(report.warning_count, 'warning')}"
    )
    if report.open_files:
        lines.append(
            f"not checked: {counted(report.open_files, 'open file')}; if no crawl writes there,"
            f" {scrapy_with('warc', 'mend', folder)}"
        )
    return "\n".join(lines)


def _listed(label: str, problems: list[Problem], count: int) -> Iterator[str]:
    for problem in problems:
        yield f"{label}{problem.file} at byte {problem.offset}: {problem.what}"
    if count > len(problems):
        yield f"{label}and {count - len(problems):,} more"


def counts(stats: WarcStats) -> str:
    """Return the totals, then the most frequent names of each kind, as a table."""
    whole = f"{counted(stats.files, 'file')}, {counted(stats.records.total(), 'record')}"
    unsized = counted(stats.unsized_revisits, "revisit")
    lines = [
        f"{whole}: {counted(stats.stored_bytes, 'byte')}, uncompressed {stats.bytes:,}",
        f"revisits saved {counted(stats.saved_bytes, 'byte')}; {unsized} without a Content-Length",
    ]
    kinds = ("records", "statuses", "media_types", "hosts")
    for kind in kinds:
        found: Counter[str] = getattr(stats, kind)
        lines.append(f"{kind.replace('_', ' ')}: {len(found):,}")
        lines += [f"{n:>14,}  {printable(name)}" for name, n in found.most_common(_NAMES_SHOWN)]
    return "\n".join(lines)


def mended(report: MendReport, indexed: int) -> str:
    """Return what was mended; ``indexed`` is the number of files that lacked an index."""
    done = (
        f"mended {counted(report.files, 'file')} with {counted(report.records, 'record')};"
        f" removed {report.removed:,} without one; cut away {counted(report.bytes_cut, 'byte')}"
    )
    lines = [done, *(f"damaged, kept as {path}" for path in report.damaged)]
    lines += [
        f"salvaged {counted(records, 'record')} into {path}" for path, records in report.salvaged
    ]
    if indexed:
        lines.append(f"indexed {counted(indexed, 'file')} besides")
    return "\n".join(lines)


def verified(count: int, wrong: list[str]) -> str:
    """Return each uploaded file that is not as it was noted, then the counts."""
    return "\n".join(
        [*wrong, f"verified {counted(count, 'file')}: {len(wrong):,} missing or changed"]
    )


def left_out(folder: Path, away: int, places: Iterable[str], unfinished: int) -> str:
    """Return which files of ``folder`` a package lacks; empty if it lacks none.

    ``away`` is the number of files that are gone from the folder, some uploaded to ``places``.
    ``unfinished`` is the number of files that were still open when packing began.
    """
    parts = []
    if away:
        uploaded = ", uploaded to " + ", ".join(sorted(places)) if places else ""
        parts.append(f"{counted(away, 'file')} no longer in {folder}{uploaded}")
    if unfinished:
        parts.append(
            f"{counted(unfinished, 'open file')}: if no crawl writes there,"
            f" {scrapy_with('warc', 'mend', folder)}"
        )
    return "; ".join(parts)


def lines_of(found: Iterable[IndexLine]) -> str:
    """Return a line for each capture: timestamp, status, media type, file:offset, URL."""
    return "\n".join(
        printable(
            f"{line.timestamp} {line.status or '-'} {line.mime or '-'}"
            f" {line.filename}:{line.offset} {line.url}"
        )
        for line in found
    )
