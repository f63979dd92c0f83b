"""The file of KROWL_EXCLUDE: its expressions, read again when it changes during a crawl."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from krowlspider.errors import SettingsError, counted
from krowlspider.urls.seeds import PatternList, parse_patterns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


logger = logging.getLogger(__name__)

# Seconds between two checks of the file; a change takes effect after two checks.
_INTERVAL = 1.0
# Bytes of a file: about 20,000 expressions, far more than a crawl can search in each URL.
_SIZE_MAX = 1024 * 1024
# Bad lines logged with their number; further ones are only counted.
_BAD_LINES_LOGGED = 20


class ExcludeFile:
    """Keeps the expressions of a file in effect, by calling ``use`` with each version of them.

    A file that is missing, unreadable or has a bad line stops the start, because a site owner may
    have asked not to be crawled. During the crawl, an unreadable file leaves the expressions as
    they are. This is logged once. A bad line then excludes nothing.

    After the start, a version is read only once two checks in a row have seen it. So a file is not
    read while it is being written.

    :raises SettingsError: the file cannot be read, or has a bad line
    """

    def __init__(self, path: Path, use: Callable[[PatternList], None]):
        self._path = path
        self._use = use
        # The versions of the file that were read, and seen by the last check.
        self._read_version: object = None
        self._last: object = None
        try:
            self._found = self._read()
        except OSError as error:
            why = error.strerror or error
            raise SettingsError(f"KROWL_EXCLUDE {path} cannot be read: {why}") from error
        for number, reason in self._found.bad:
            raise SettingsError(f"KROWL_EXCLUDE {path} line {number} excludes nothing: {reason}")

    def _read(self) -> PatternList:
        """Read the file now, and return its expressions and bad lines.

        :raises OSError: it cannot be read, is not a regular file, or is larger than 1 MiB
        """
        if not self._path.is_file() and self._path.exists():
            # Opening a pipe would block until its other end is open.
            raise OSError("not a file")
        with self._path.open("rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_size > _SIZE_MAX:
                raise OSError(f"more than {_SIZE_MAX} bytes")
            data = file.read(_SIZE_MAX)
        self._read_version = self._last = _version(stat)
        return parse_patterns(data)

    def look(self) -> PatternList | None:
        """Check the file, and return the expressions of a new version once it is complete.

        Return None if there is no new version, or if it was seen for the first time.

        :raises OSError: it is missing, cannot be read, is not a regular file, or is larger than
            1 MiB
        """
        before = self._last
        self._last = _version(self._path.stat())
        if self._last == self._read_version or self._last != before:
            return None
        return self._read()

    def apply(self) -> None:
        """Put the expressions into effect, and log their number."""
        found, path = self._found, self._path
        self._use(found)
        for number, reason in found.bad[:_BAD_LINES_LOGGED]:
            logger.error("%s line %d excludes nothing: %s", path, number, reason)
        logger.info(
            "KROWL_EXCLUDE: %s of %s in force, %s",
            counted(len(found.patterns), "expression"),
            path,
            counted(len(found.bad), "bad line"),
        )

    def reload(self) -> None:
        """Have `watch` read the file again, whether it has changed or not."""
        self._read_version = None

    async def watch(self) -> None:
        """Apply each new version of the file, until cancelled."""
        unreadable = False
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                found = await run_in_thread(self.look)
            except OSError as error:
                if not unreadable:
                    logger.error(
                        "%s cannot be read, so its last content stays in force: %s",
                        self._path,
                        error.strerror or error,
                    )
                unreadable = True
                continue
            unreadable = False
            if found is not None:
                self._found = found
                self.apply()


def _version(stat: os.stat_result) -> tuple[int, int, int]:
    """Return what identifies the content of a file without reading it."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
