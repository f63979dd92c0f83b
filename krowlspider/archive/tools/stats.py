"""Count what WARC files hold: records, hosts, media types, statuses, bytes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krowlspider.archive.index import cdxj
from krowlspider.archive.payloads.payload import header, media_type
from krowlspider.archive.reading import Advance, ignore
from krowlspider.archive.tools.inputs import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fastwarc.warc import WarcRecord

    from krowlspider.archive.payloads.payload import Decode
    from krowlspider.archive.reading import Member

# Different hosts, or media types, that are counted by name.
NAMES_MAX = 100_000
OTHERS = "(others)"
_CAPTURES = frozenset({"response", "revisit"})


@dataclass
class WarcStats:
    """The counts of some files.

    ``records`` are by type. ``hosts``, ``media_types`` and ``statuses`` are of responses and
    revisits. ``stored_bytes`` are those of the files, ``bytes`` those of the records uncompressed.
    ``saved_bytes`` are the bodies that revisits left out, by their Content-Length;
    ``unsized_revisits`` have none. ``damaged`` are files with the place and reason where reading
    stopped.
    """

    files: int = 0
    records: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    media_types: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    stored_bytes: int = 0
    bytes: int = 0
    saved_bytes: int = 0
    unsized_revisits: int = 0
    damaged: list[tuple[str, int, str]] = field(default_factory=list)


def count_files(paths: Iterable[Path], decode: Decode, advance: Advance = ignore) -> WarcStats:
    """Return the counts of finished files; a damaged one is read up to the damage. Raises OSError.

    ``decode`` undoes content codings, where a media type shows in a body alone. ``advance`` is
    called with each member's length in bytes. A file that was uploaded and removed in the meantime
    is skipped.
    """
    stats = WarcStats()
    for path in paths:
        with suppress(FileNotFoundError):
            for member, record in records_of(path, advance, stats.damaged):
                _count(stats, member, record, path.name, decode)
            stats.files += 1
    return stats


def _count(stats: WarcStats, member: Member, record: WarcRecord, file: str, decode: Decode) -> None:
    kind = record.headers.get("WARC-Type") or ""
    stats.records[kind] += 1
    stats.stored_bytes += member.length
    stats.bytes += len(member.content)
    if kind not in _CAPTURES:
        return
    block = record.reader.read()
    line = cdxj.capture_of(record, block, member, file)
    if line is None:
        return
    _add(stats.hosts, _host(line.url))
    _add(stats.statuses, line.status or "-")
    _add(stats.media_types, media_type(block, decode) or "-")
    if kind == "revisit" and line.status != "304":
        length = header(block, "Content-Length")
        if length.isdecimal() and len(length) < 16:
            stats.saved_bytes += int(length)
        else:
            stats.unsized_revisits += 1


def _add(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < NAMES_MAX else OTHERS] += 1


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "-"
    except ValueError:
        return "-"
