"""The JOBDIR of a crawl of several processes: a job folder for each, and what they share."""

from __future__ import annotations

import logging
import re
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krowlspider.archive.disk import sync_directory
from krowlspider.cluster.membership import static_seed
from krowlspider.cluster.ring.ring import Member, Ring
from krowlspider.crawl.folder import (
    RING_SECRET,
    JobFolder,
    JobInUseError,
    lock_folder,
    write_private,
)
from krowlspider.crawl.monitoring.access import CONTROL_TOKEN, METRICS, PAGE
from krowlspider.crawl.parts import warc_folder
from krowlspider.errors import JobError
from krowlspider.frontier.admin.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from krowlspider.crawl.folder import JobHead

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

    def __init__(self, path: Path, cluster: str):
        self.path = path
        self._cluster = cluster
        self.secret = path / RING_SECRET
        self.redis = path / _REDIS
        self.reports = path / _REPORTS

    def folder(self, process: str) -> JobFolder:
        return JobFolder(self.path / process)

    def take(self) -> None:
        """Lock the folder; make it, and the secret of its ring, if it is new.

        :raises JobError: it is in use, of a crawl of one process, or cannot be used
        """
        with self._usable():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_content()
            # Until this process ends.
            lock_folder(self.path)
            if not self.secret.exists():
                write_private(self.secret, secrets.token_hex(16))
                sync_directory(self.path)
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
        names = {each.name for each in self.path.iterdir()}
        if "job.json" in names:
            raise JobError(
                f"JOBDIR {self.path} belongs to a crawl of one process: continue it with scrapy"
                " crawl, or give another JOBDIR"
            )
        own = {_LOCK, RING_SECRET, _REDIS, _REPORTS, CONTROL_TOKEN, PAGE, METRICS}
        if strange := {name for name in names - own if not _PROCESS.fullmatch(name)}:
            raise JobError(
                f"JOBDIR {self.path} is not empty and not of a crawl of several processes (it holds"
                f" {min(strange)!r}): give a new or empty folder"
            )

    @property
    def seed(self) -> int:
        """The identity seed of all processes."""
        secret = self.secret.read_text(encoding="ascii").strip()
        return int.from_bytes(static_seed(self._cluster, secret), "big")

    def heads(self, is_stopped: Callable[[], bool] = lambda: False) -> dict[str, JobHead]:
        """Return the head of each folder that a crawl has begun, and lock none of them.

        Wait for processes that a killed supervisor has left, which are ending.

        :raises JobError: one does not end, or a folder cannot be used
        :raises StoppedError: ``is_stopped`` has returned true
        """
        found = {}
        end = time.monotonic() + _PATIENCE
        for path in process_folders(self.path):
            if (path / "job.json").exists():
                folder = JobFolder(path)
                found[path.name] = _head(folder, self.seed, end, is_stopped)
                folder.leave()
        return found


def _head(folder: JobFolder, seed: int, end: float, is_stopped: Callable[[], bool]) -> JobHead:
    is_told = False
    while True:
        try:
            return folder.take(seed=seed)
        except JobInUseError as error:
            if is_stopped():
                raise StoppedError from error
            if time.monotonic() >= end:
                raise
            if not is_told:
                logger.info(
                    "Waiting for process %s of the last start, which still uses %s",
                    *(error.holder, folder.path),
                )
            is_told = True
            time.sleep(_LOOK)


def ring_of(processes: list[str]) -> Ring:
    return Ring(map(Member, processes))
