"""Extension: the expressions of KROWL_EXCLUDE, read again when the file changes during a crawl."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import run_in_thread

from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import SettingsError
from krowlspider.urls.rules.exclude import parse_patterns

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

    from krowlspider.urls.rules.exclude import PatternList

logger = logging.getLogger(__name__)

# Seconds between two checks of the file; a change takes effect after two checks.
_INTERVAL = 1.0
# Bytes of a file: about 20,000 expressions, far more than a crawl can search in each URL.
_SIZE_MAX = 1024 * 1024
# Bad lines logged with their number; further ones are only counted.
_BAD_LINES_LOGGED = 20


class Version(NamedTuple):
    """Identifies one content of a file without reading the file; the time is in nanoseconds."""

    inode: int
    size: int
    mtime_ns: int


class PatternFile:
    """A file of expressions, and the version of it that is in effect.

    After the start, a version is read only once two checks in a row have seen it. So a file is not
    read while it is being written.
    """

    def __init__(self, path: Path):
        self._path = path
        self._held: Version | None = None
        self._last: Version | None = None

    def read(self) -> PatternList:
        """Read the file now, and return its expressions and bad lines.

        :raises OSError: it cannot be read, is not a regular file, or is larger than 1 MiB
        """
        if not self._path.is_file() and self._path.exists():
            # Opening a pipe would block until its other end is open.
            raise OSError("not a file")
        with self._path.open("rb") as file:
            version = _version(os.fstat(file.fileno()))
            if version.size > _SIZE_MAX:
                raise OSError(f"more than {_SIZE_MAX} bytes")
            data = file.read(_SIZE_MAX)
        self._held = self._last = version
        return parse_patterns(data)

    def look(self) -> PatternList | None:
        """Check the file, and return the expressions of a new version once it is complete.

        Return None if there is no new version, or if it was seen for the first time.

        :raises OSError: as `read`, or the file is missing
        """
        before = self._last
        self._last = _version(self._path.stat())
        if self._last == self._held or self._last != before:
            return None
        return self.read()


def _version(stat: os.stat_result) -> Version:
    return Version(stat.st_ino, stat.st_size, stat.st_mtime_ns)


class Exclude:
    """Sets the expressions of the intake, and replaces them when the file changes.

    A file that is missing, unreadable or has a bad line stops the start, because a site owner may
    have asked not to be crawled. During the crawl, an unreadable file leaves the expressions as
    they are. This is logged once. A bad line then excludes nothing.

    :raises NotConfigured: KROWL_EXCLUDE is not set
    :raises SettingsError: the file cannot be read, or has a bad line
    """

    def __init__(self, crawler: Crawler):
        chosen = crawler.settings["KROWL_EXCLUDE"]
        if chosen is None:
            raise NotConfigured
        self._crawler = crawler
        self._path = Path(chosen)
        self._file = PatternFile(self._path)
        try:
            self._found = self._file.read()
        except OSError as error:
            raise SettingsError(
                f"KROWL_EXCLUDE {self._path} cannot be read: {error.strerror or error}"
            ) from error
        if self._found.bad:
            number, reason = self._found.bad[0]
            raise SettingsError(
                f"KROWL_EXCLUDE {self._path} line {number} excludes nothing: {reason}"
            )
        self._unread = False
        self._task: asyncio.Task[None] | None = None
        # spider_opened comes before the first seed is queued and the first page is popped.
        crawler.signals.connect(self._hold, signals.spider_opened)
        crawler.signals.connect(self._start, signals.engine_started)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _hold(self) -> None:
        scheduler = self._crawler.engine.scheduler
        assert isinstance(scheduler, Scheduler)
        scheduler.intake.exclusions.patterns = self._found.patterns
        for number, reason in self._found.bad[:_BAD_LINES_LOGGED]:
            logger.error("%s line %d excludes nothing: %s", self._path, number, reason)
        logger.info(
            "KROWL_EXCLUDE: %d expressions of %s hold, %d bad lines",
            len(self._found.patterns),
            self._path,
            len(self._found.bad),
        )

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                found = await run_in_thread(self._file.look)
            except OSError as error:
                self._complain(error)
                continue
            self._unread = False
            if found is not None:
                self._found = found
                self._hold()

    def _complain(self, error: OSError) -> None:
        if not self._unread:
            logger.error(
                "%s cannot be read, so what it said last holds: %s",
                self._path,
                error.strerror or error,
            )
        self._unread = True

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
