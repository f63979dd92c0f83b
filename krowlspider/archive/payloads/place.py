"""The WARC files that a payload index refers to: no revisit may refer to one that is gone."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

# Identifies the archive folder in its first line. The others are names of its WARC files.
_PLACE = "of"


def forget_others(folder: Path, archive: Path, uploaded: Collection[str]) -> None:
    """Remove a closed index unless all its WARC files are in ``archive`` or among the ``uploaded``.

    An entry does not say in which file its record is, so one missing file is enough.
    """
    try:
        known, *names = (folder / _PLACE).read_text().splitlines()
    except (OSError, ValueError):
        known, names = "", []
    here = _files_in(archive)
    complete = here | set(uploaded)
    if not complete or known != _identity(archive) or not complete.issuperset(names):
        # Remains do no harm; the next start tries to remove them again.
        shutil.rmtree(folder, ignore_errors=True)


def note_place(folder: Path, archive: Path, uploaded: Collection[str]) -> None:
    """Note that the records of an index are in the folder ``archive``, or were ``uploaded``.

    If the note cannot be written, the next start begins an empty index.
    """
    names = sorted(_files_in(archive) | set(uploaded))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _PLACE).write_text("".join(f"{each}\n" for each in (_identity(archive), *names)))


def note_file(folder: Path, name: str) -> None:
    """Add a WARC file that was begun to the note, durably. Without it there is no note."""
    path = folder / _PLACE
    try:
        with path.open("r+") as file:
            file.seek(0, os.SEEK_END)
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            path.unlink()


def _files_in(archive: Path) -> set[str]:
    """Return the final names of the WARC files in a folder."""
    return {path.name.removesuffix(".open") for path in archive.glob("*.warc.gz*")}


def _identity(archive: Path) -> str:
    found = archive.stat()
    return f"{found.st_dev} {found.st_ino}"
