"""The JOBDIR of a crawl of several processes: a job folder for each, and what they share."""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krowlspider.archive.disk import is_draft
from krowlspider.crawl.folder import REGISTER, JobFolder, JobInUseError, lock_folder
from krowlspider.crawl.monitoring.access import CONTROL_TOKEN, METRICS, PAGE
from krowlspider.crawl.parts import warc_folder
from krowlspider.errors import JobError
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

# The most processes: each has some 100 MB of memory, and a core is kept busy by one.
PROCESSES_MAX = 64
_PROCESS = re.compile(r"p[1-9][0-9]*")
_LOCK, _REDIS, _REPORTS = "lock", "redis", "reports"
# Seconds for the processes of a supervisor that was killed to end, and between two looks.
_PATIENCE = 120.0
_LOOK = 0.2


def ids(count: int) -> list[str]:
    """Return the ids of so many processes, which are the names of their folders too."""
    return [f"p{number}" for number in range(1, count + 1)]


def processes(count: int) -> str:
    return counted(count, "process")


def process_warc_folder(settings: BaseSettings, folder: Path) -> Path:
    """Return the folder of the WARC files of the process that has this job folder."""
    chosen = warc_folder(settings, folder)
    return chosen / folder.name if settings["KROWL_WARC_DIR"] else chosen


def number_of(process: str) -> int:
    """Return the number of a process, from 1."""
    return int(process[1:])


def process_folders(path: Path) -> list[Path]:
    """Return the folders of processes in a JOBDIR, those of earlier starts too."""
    found = [each for each in path.glob("p*") if _PROCESS.fullmatch(each.name)]
    return sorted(found, key=lambda each: number_of(each.name))


class StoppedError(Exception):
    """The supervisor was stopped meanwhile."""


class Tree:
    """The folder ``path``, locked for this supervisor from `take` until the process ends."""

    def __init__(self, path: Path):
        self.path = path
        self.register = path / REGISTER
        self.redis = path / _REDIS
        self.reports = path / _REPORTS

    def folder(self, process: str) -> JobFolder:
        return JobFolder(self.path / process)

    def take(self) -> None:
        """Lock the folder; make it if it is new.

        :raises JobError: it is in use, of a crawl of one process, or cannot be used
        """
        with self._usable():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_content()
            # Until this process ends.
            lock_folder(self.path)
            for draft in self._drafts():
                draft.unlink()
            self.redis.mkdir(mode=0o700, exist_ok=True)

    def check(self) -> None:
        """Check, before anything is made, that the folder is not of something else.

        :raises JobError: as `take`
        """
        with self._usable():
            if self.path.exists():
                self._check_content()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JobError(f"JOBDIR {self.path} cannot be used: {error.strerror}") from error

    def _check_content(self) -> None:
        names = {each.name for each in self.path.iterdir()} - {each.name for each in self._drafts()}
        if "job.json" in names:
            raise JobError(
                f"JOBDIR {self.path} belongs to a crawl of one process: continue it with scrapy"
                " crawl, or give another JOBDIR"
            )
        own = {_LOCK, REGISTER, _REDIS, _REPORTS, CONTROL_TOKEN, PAGE, METRICS}
        if REGISTER not in names and any(map(_PROCESS.fullmatch, names)):
            raise JobError(
                f"JOBDIR {self.path} has folders of processes but no file {REGISTER!r}, which says"
                " whose each host is: put it back from a copy, or give another JOBDIR"
            )
        if strange := {name for name in names - own if not _PROCESS.fullmatch(name)}:
            raise JobError(
                f"JOBDIR {self.path} is not empty and not of a crawl of several processes (it holds"
                f" {min(strange)!r}): give a new or empty folder"
            )

    def _drafts(self) -> list[Path]:
        """Return the drafts of the register that killed supervisors have left."""
        return [each for each in self.path.iterdir() if is_draft(each, REGISTER)]

    def wait(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait for the processes that a killed supervisor has left, which are ending.

        :raises JobError: one does not end, or a folder cannot be used
        :raises StoppedError: ``is_stopped`` has returned true
        """
        end = time.monotonic() + _PATIENCE
        with self._usable():
            for path in process_folders(self.path):
                os.close(_locked(path, end, is_stopped))


def _locked(path: Path, end: float, is_stopped: Callable[[], bool]) -> int:
    is_told = False
    while True:
        try:
            return lock_folder(path)
        except JobInUseError as error:
            if is_stopped():
                raise StoppedError from error
            if time.monotonic() >= end:
                raise
            if not is_told:
                logger.info(
                    "Waiting for process %s of the last start, which still uses %s",
                    *(error.holder, path),
                )
            is_told = True
            time.sleep(_LOOK)
