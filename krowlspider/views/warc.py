"""The output of ``scrapy warc``, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.errors import scrapy_with
from krowlspider.frontier.admin.words import counted, printable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from krowlspider.archive.index.cdxj import IndexLine
    from krowlspider.archive.tools.check import CheckReport, Problem
    from krowlspider.archive.tools.mend import MendReport
    from krowlspider.archive.tools.stats import WarcStats

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


def captures(found: Iterable[IndexLine]) -> str:
    """Return a line for each capture: timestamp, status, media type, file:offset, URL."""
    return "\n".join(
        printable(
            f"{line.timestamp} {line.status or '-'} {line.mime or '-'}"
            f" {line.filename}:{line.offset} {line.url}"
        )
        for line in found
    )
