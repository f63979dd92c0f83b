"""Repair of a damaged frontier, as far as LevelDB can read it.

The frontier is moved aside while it is repaired, so that no crawl can open it half done; a repair that was killed
goes on with the next. All files as they were found stay in a folder of hard links beside it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import plyvel

from krowlspider.frontier.derived import Found, put_right
from krowlspider.frontier.store import (
    BLOCK_CACHE,
    TABLE_FILTER_BITS,
    WRITE_BUFFER,
    LevelStore,
    StoreError,
)
from krowlspider.frontier.wholelog import without_damage

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.filterfile import FilterFile
    from krowlspider.urls.canonical import IdentityHasher

# Where LevelDB's repair puts files that it has read, whole or not.
_LOST = "lost"
# Hosts in the list of those that lost most.
MOST = 10
_TABLES = (".ldb", ".sst")
# What LevelDB says of files that are missing or shorter than they were; it has no code of its own for it.
_MISSING = ("No such file or directory", "Invalid argument")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found. ``copy`` is the folder of the files as they were, ``tables`` the names of those that
    could not be read whole, ``table_bytes`` their size, ``log_bytes`` what was unreadable in logs."""

    copy: str
    tables: list[str]
    table_bytes: int
    log_bytes: int
    found: Found

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def _is_damage(error: BaseException) -> bool:
    """Whether an error of a store, or what caused it, is damage that `repair` may mend."""
    cause: BaseException | None = error
    while cause is not None:
        missing = isinstance(cause, plyvel.Error) and any(text in str(cause) for text in _MISSING)
        if isinstance(cause, plyvel.CorruptionError) or missing:
            return True
        cause = cause.__cause__
    return False


def way_out(error: BaseException, jobdir: Path) -> str:
    """What to add to the message of an error: the command that mends what it is about, or nothing."""
    return f"; mend it with: scrapy frontier {jobdir} --repair" if _is_damage(error) else ""


def repair(frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float) -> Repaired:
    """Repair the LevelDB folder ``frontier`` and put right what is derived in it; ``now`` is in epoch seconds.

    :raises StoreError: the folder is not there, or still cannot be opened
    """
    try:
        return _repair(frontier, filter_file, hasher, now)
    except (plyvel.Error, OSError) as error:
        raise StoreError(f"{frontier} cannot be repaired: {error}") from error


def _repair(
    frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float
) -> Repaired:
    working = frontier.with_name(frontier.name + ".repairing")
    copy = _set_aside(frontier, working)
    log_bytes = sum(_clean_log(log) for log in sorted(working.glob("*.log")))
    plyvel.repair_db(
        str(working),
        paranoid_checks=True,
        write_buffer_size=WRITE_BUFFER,
        lru_cache_size=BLOCK_CACHE,
        bloom_filter_bits=TABLE_FILTER_BITS,
    )
    tables = [path for path in copy.iterdir() if path.suffix in _TABLES]
    broken = [path for path in tables if (working / _LOST / path.name).exists()]
    filter_file.remove()
    _sync(frontier.parent)
    found = _put_right(working, hasher, now)
    shutil.rmtree(working / _LOST, ignore_errors=True)
    working.rename(frontier)
    _sync(frontier.parent)
    return Repaired(
        str(copy),
        sorted(path.name for path in broken),
        sum(path.stat().st_size for path in broken),
        log_bytes,
        found,
    )


def _set_aside(frontier: Path, working: Path) -> Path:
    """Move the frontier to where it is repaired, its files linked into a folder of their own before. Returns that
    folder; it is the old one when an earlier repair was killed."""
    copies = sorted(frontier.parent.glob(f"{frontier.name}.before-repair-*"), key=_number)
    if working.exists():
        if (frontier / "CURRENT").exists():
            raise StoreError(f"both {frontier} and {working} hold a frontier: move one away")
        # What LevelDB leaves where it looks for a store.
        shutil.rmtree(frontier, ignore_errors=True)
        return copies[-1] if copies else _copy(working, frontier, copies)
    frontier.mkdir(exist_ok=True)
    copy = _copy(frontier, frontier, copies)
    frontier.rename(working)
    _sync(frontier.parent)
    return copy


def _number(copy: Path) -> int:
    return int(copy.name.rpartition("-")[2])


def _copy(source: Path, frontier: Path, copies: list[Path]) -> Path:
    draft = frontier.with_name(frontier.name + ".before-repair.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for path in source.iterdir():
        if path.is_file():
            _link(path, draft / path.name)
    _sync(draft)
    number = _number(copies[-1]) + 1 if copies else 1
    copy = frontier.with_name(f"{frontier.name}.before-repair-{number}")
    draft.rename(copy)
    _sync(frontier.parent)
    return copy


def _link(path: Path, target: Path) -> None:
    try:
        target.hardlink_to(path)
    except OSError:
        # A file system without hard links.
        shutil.copy2(path, target)


def _clean_log(log: Path) -> int:
    """Take damaged records out of a log, in a new file; returns their bytes."""
    data, damaged = without_damage(log.read_bytes())
    if damaged:
        draft = log.with_name(log.name + ".clean")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(log)
    return damaged


def _put_right(working: Path, hasher: IdentityHasher, now: float) -> Found:
    store = LevelStore(working)
    try:
        # LevelDB's repair leaves all tables in one level, in which a read looks into each.
        store.compact(b"\0", b"\xff")
        return put_right(store, hasher, now, MOST)
    finally:
        store.close()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
