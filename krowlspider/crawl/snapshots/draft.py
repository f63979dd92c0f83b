"""A new folder that gets its name when it is whole."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.archive.disk import sync_directory
from krowlspider.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator


def draft_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.tmp")


def check_new(target: Path) -> None:
    """Check that a folder can be made.

    :raises JobError: it exists, or its draft does, or the folder that it is to be in does not
    """
    if not target.name or "\0" in str(target):
        raise JobError(f"{str(target)!r} is not the name of a new folder")
    draft = draft_of(target)
    if os.path.lexists(target):
        raise JobError(f"{target} exists: give the name of a new folder")
    if os.path.lexists(draft):
        raise JobError(
            f"{draft} exists: a snapshot or restore is under way or was cut short; if none is"
            " under way, remove it"
        )
    if not target.parent.is_dir():
        raise JobError(f"{target.parent} is not a folder: make it first")


@contextmanager
def kept_if_whole(target: Path) -> Iterator[Path]:
    """Yield a draft of a folder, private to its owner. On exit give it its name; after an error
    remove it.

    :raises JobError: as of `check_new`
    :raises OSError: the draft cannot be made, or not be renamed
    """
    check_new(target)
    draft = draft_of(target)
    draft.mkdir(mode=0o700)
    try:
        yield draft
        for folder, *_ in os.walk(draft):
            sync_directory(Path(folder))
        if os.path.lexists(target):
            raise JobError(f"{target} has appeared meanwhile: give the name of a new folder")
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_directory(target.parent)
