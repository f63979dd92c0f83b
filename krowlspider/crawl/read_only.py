"""Look into a crawl's folder that cannot be written to: a backup, or a disk that is read-only."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.crawl.folder import JobFolder, JobInUseError, holder_of
from krowlspider.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Files of LevelDB that it never changes once they are written.
_TABLES = {".ldb", ".sst"}


def is_writable(jobdir: Path) -> bool:
    """Return whether a process may lock a crawl's folder, and open its frontier."""
    return all(os.access(path, os.W_OK) for path in (jobdir, jobdir / "frontier") if path.exists())


@contextmanager
def readable_copy(jobdir: Path) -> Iterator[JobFolder]:
    """Make a temporary folder with links to what is in a crawl's folder, and copies of what LevelDB
    writes to when it opens a store.

    :raises JobInUseError: a crawl uses the folder
    :raises JobError: it cannot be read, or copied
    """
    if (holder := holder_of(jobdir)) is not None:
        raise JobInUseError(jobdir, str(holder))
    try:
        with tempfile.TemporaryDirectory(prefix="krowlspider-") as made:
            copy = Path(made) / jobdir.resolve().name
            copy.mkdir()
            for path in jobdir.iterdir():
                if path.name == "frontier":
                    _copy_store(path, copy / path.name)
                elif path.name not in {"lock", "status.json"}:
                    (copy / path.name).symlink_to(path.resolve())
            yield JobFolder(copy)
    except OSError as error:
        raise JobError(f"JOBDIR {jobdir} is read-only, and cannot be read: {error}") from error


def _copy_store(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        if path.suffix in _TABLES:
            (target / path.name).symlink_to(path.resolve())
        elif path.name != "LOCK":
            shutil.copyfile(path, target / path.name)
