"""The finished WARC files of a crawl, and whether more will come."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from krowlspider.archive.cdxj import WARC
from krowlspider.archive.disk import OPEN, is_locked

if TYPE_CHECKING:
    from pathlib import Path

# The folder of a process of ``scrapy node``.
PROCESS = re.compile(r"p[1-9][0-9]*")


def folders_of(jobdir: Path) -> list[Path]:
    """Return the folders of WARC files of a job, those of its processes too, or ``jobdir`` itself.

    ``scrapy node`` has JOBDIR/p1/warc, or with KROWL_WARC_DIR the folder p1 in that one.
    """
    places = [jobdir]
    if jobdir.is_dir():
        places += sorted(each for each in jobdir.iterdir() if PROCESS.fullmatch(each.name))
    found = chain.from_iterable((place, place / "warc") for place in places)
    return [folder for folder in found if folder.is_dir()]


def finished(jobdir: Path) -> list[Path]:
    """Return the finished WARC files of a job, those that were begun first in front."""
    files = chain.from_iterable(folder.glob(f"*{WARC}") for folder in folders_of(jobdir))
    # Names of a crawl's files begin with the time.
    return sorted(files, key=lambda path: path.name)


def has_archive(jobdir: Path) -> bool:
    """Return whether there is a WARC file, an open one too, or an index of one."""
    patterns = (f"*{WARC}", f"*{WARC}{OPEN}", "*.cdxj")
    folders = folders_of(jobdir)
    return any(True for each in folders for pattern in patterns for _ in each.glob(pattern))


def is_being_written(jobdir: Path) -> bool:
    """Return whether a crawl writes WARC files of a job, or will open the next one."""
    return any(is_locked(folder) for folder in folders_of(jobdir))
