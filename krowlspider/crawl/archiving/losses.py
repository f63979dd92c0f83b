"""What the last process had synced of its open WARC file, and is no longer there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krowlspider.archive.index.cdxj import WARC, index_path, parse
from krowlspider.archive.reading import ignore_damage, read_readable
from krowlspider.archive.tools.mend import damaged_path

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.archive.reading import Synced
    from krowlspider.crawl.archiving.open_note import OpenWarcNote
    from krowlspider.frontier.frontier import Frontier


@dataclass(frozen=True, slots=True)
class Loss:
    """Synced records of a WARC file that are lost.

    ``records`` are lost of ``synced`` records, ``urls`` of their pages are queued again.
    ``kept`` is the damaged file, None if it is gone.
    """

    file: str
    records: int
    synced: int
    urls: int
    kept: Path | None


def settle_open_file(note: OpenWarcNote, frontier: Frontier, directory: Path) -> Loss | None:
    """Compare the note with the file that it names, mended before, and remove the note.

    The pages whose records are lost are queued again. Return the loss, None if nothing is lost.
    Raises OSError.
    """
    synced = note.last
    if synced is None:
        return None
    warc = directory / synced.file
    damaged = damaged_path(warc)
    kept = damaged if damaged.exists() else warc if warc.exists() else None
    if kept is warc and warc.stat().st_size >= synced.size:
        note.clear()
        return None
    if kept is None and index_path(warc).exists():
        # The file was finished, and then moved or uploaded: its index stays.
        note.clear()
        return None
    records, urls = (0, set[str]()) if kept is None else _readable(kept, synced)
    before = _file_before(warc)
    if before is not None:
        # The last pages of that file were acknowledged when this one was open already.
        urls |= _indexed(before)
    queued = note.queue_again(frontier, lambda url: url not in urls)
    return Loss(synced.file, synced.records - records, synced.records, queued, kept)


def _readable(path: Path, synced: Synced) -> tuple[int, set[str]]:
    """Return the number of whole records among the synced bytes, and the URLs of all records."""
    records, urls = 0, set[str]()
    with path.open("rb") as stream:
        for member in read_readable(stream, ignore_damage):
            records += member.offset < synced.size
            fields = member.record().headers
            if fields.get("WARC-Type") in {"response", "revisit"}:
                urls.add(fields.get("WARC-Target-URI") or "")
    return records, urls


def _file_before(warc: Path) -> Path | None:
    """Return the finished file that was begun last before ``warc``; None without one."""
    names = sorted(path.name for path in warc.parent.glob(f"*{WARC}") if path.name < warc.name)
    return warc.with_name(names[-1]) if names else None


def _indexed(warc: Path) -> set[str]:
    """Return the URLs in the index of a file; none if it has no index."""
    urls = set()
    with suppress(FileNotFoundError, ValueError), index_path(warc).open("rb") as lines:
        for line in lines:
            urls.add(parse(line).url)
    return urls
