"""The texts of results, which are read from the archive."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING

from krowlspider.archive.disk import ArchiveError, RecordError
from krowlspider.archive.reading import read_record
from krowlspider.errors import KrowlError
from krowlspider.search.documents import BLOCK_MAX, NoDocument, answer_of, content_of
from krowlspider.search.snippets import TEXT_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from krowlspider.search.schema import CapturePlace

# Texts that are kept for the next query, of TEXT_MAX characters at most.
KEPT = 100


class Texts:
    """Reads texts, and keeps the last ones. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int, int], str] = OrderedDict()

    def read(self, url: str, place: CapturePlace, jobdirs: Sequence[Path]) -> str | None:
        """Return the beginning of the text of a capture; None if the archive has it no more."""
        key = (place.file, place.offset, place.jobdir)
        with self._lock:
            if (known := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return known
        text = _text(url, place, jobdirs)
        if text is not None:
            with self._lock:
                self._kept[key] = text
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return text


def file_of(place: CapturePlace, jobdirs: Sequence[Path]) -> Path | None:
    """Return the WARC file of a place; None for one outside of the JOBDIRs."""
    name = PurePosixPath(place.file)
    if name.is_absolute() or ".." in name.parts or not 0 <= place.jobdir < len(jobdirs):
        return None
    return jobdirs[place.jobdir] / name


def _text(url: str, place: CapturePlace, jobdirs: Sequence[Path]) -> str | None:
    if (path := file_of(place, jobdirs)) is None:
        return None
    try:
        fields, block = read_record(path, place.offset, BLOCK_MAX)
        return content_of(url, answer_of(fields, block)).text[:TEXT_MAX]
    except (OSError, ArchiveError, RecordError, NoDocument, KrowlError):
        # The file was removed or is damaged, or an extra is not installed: there is the title.
        return None
