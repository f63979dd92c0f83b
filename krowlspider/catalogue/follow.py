"""Find the finished WARC files of a crawl, and put their rows into a sink."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from krowlspider.archive.cdxj import index_path
from krowlspider.archive.disk import ArchiveError
from krowlspider.archive.finished import PROCESS, finished, folders_of, is_being_written
from krowlspider.archive.indexes import indexes_in
from krowlspider.catalogue.rows import FileOrigin, rows_of
from krowlspider.errors import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from krowlspider.catalogue.sinks import Row, Sink

# Seconds between two looks at the folders of a crawl that runs.
LOOK = 2.0
# Files of which a fault is kept, and faults of a file; further ones are counted.
FAULTS_MAX = 1_000
_OF_FILE_MAX = 20
# Offsets in Common Crawl's schema have 32 bits.
SIZE_MAX = 2**31 - 1


class Followed(Struct):
    """What was put into a sink: files and rows. ``faults`` are lines for a person, ``left_out``
    names files without rows in the sink; ``away`` are those of them that are gone."""

    files: int = 0
    rows: int = 0
    faults: dict[str, None] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)


def segment_of(path: Path) -> str:
    """Return the process that wrote a WARC file: "p1" ... of ``scrapy node``, else "0"."""
    names = (path.parent.name, path.parent.parent.name)
    return next((name for name in names if PROCESS.fullmatch(name)), "0")


class Follower:
    """Puts the files of a job into ``sink``, with these tables, as those of the crawl ``crawl``.

    ``tell`` is called with the name of each file and its number of rows.
    """

    def __init__(
        self,
        jobdir: Path,
        crawl: str,
        tables: frozenset[str],
        sink: Sink,
        tell: Callable[[str, int], object] = lambda _, __: None,
    ):
        self._jobdir = jobdir
        self._crawl = crawl
        self._tables = tables
        self._sink = sink
        self._tell = tell
        self.found = Followed()

    def run(self, *, follow: bool = False, sleep: Callable[[float], object] = time.sleep) -> None:
        """Take all finished files; with ``follow`` until no crawl writes there.

        Raises what the sink does, and OSError.
        """
        done = self._sink.done()
        while True:
            # Asked first: a file that is finished in between is among those found.
            goes_on = follow and is_being_written(self._jobdir)
            waiting = self._waiting(done)
            if follow and (waiting or not goes_on):
                # A database may have been restored from a backup meanwhile.
                done = self._sink.done()
                waiting = self._waiting(done)
            folders = folders_of(self._jobdir) if waiting else []
            indexes = [index for each in folders for index in indexes_in(each).there]
            for path in waiting:
                if self._take(path, indexes):
                    done.add(path.name)
            if not goes_on:
                break
            sleep(LOOK)
        gone = (name for each in folders_of(self._jobdir) for name in indexes_in(each).away)
        self.found.away = {name for name in gone if name not in done}

    def _waiting(self, done: set[str]) -> list[Path]:
        past = done | self.found.left_out
        return [path for path in finished(self._jobdir) if path.name not in past]

    def _take(self, path: Path, indexes: Sequence[Path]) -> bool:
        """Take a file; return whether its rows are in the sink."""
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            if path.is_symlink():
                self._leave_out(path, "it is a link to a file that is not there")
            # Else it was uploaded and removed meanwhile.
            return False
        except OSError as error:
            self._leave_out(path, f"it cannot be read: {error.strerror}")
            return False
        if size > SIZE_MAX:
            self._leave_out(path, "over 2 GiB, and offsets have 32 bits: lower KROWL_WARC_MAX_SIZE")
            return False
        faults: list[str] = []
        earlier = [index for index in indexes if index.name < index_path(path).name]
        place = FileOrigin(self._crawl, segment_of(path), earlier)
        before = self.found.rows
        try:
            rows = rows_of(path, self._tables, place, faults.append)
            self._sink.write(path.name, self._counted(rows))
        except ArchiveError as error:
            self._leave_out(path, str(error))
            return False
        except FileNotFoundError:
            if path.exists():
                raise
            # It was uploaded and removed meanwhile.
            return False
        self.found.files += 1
        self._tell(path.name, self.found.rows - before)
        for fault in faults[:_OF_FILE_MAX]:
            self._note(f"{path.name} {fault}")
        if more := len(faults[_OF_FILE_MAX:]):
            self._note(f"{path.name}: {counted(more, 'more damaged place')}")
        return True

    def _counted(self, rows: Iterator[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
        for each in rows:
            self.found.rows += 1
            yield each

    def _leave_out(self, path: Path, reason: str) -> None:
        self.found.left_out.add(path.name)
        self._note(f"{path.name} is not in the catalogue: {reason}")

    def _note(self, fault: str) -> None:
        if len(self.found.faults) < FAULTS_MAX:
            self.found.faults[fault] = None
