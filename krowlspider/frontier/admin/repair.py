"""Repair of a damaged frontier, as far as LevelDB can read it.

The frontier is moved aside while it is repaired, so that no crawl can open it half done; a repair that was killed
goes on with the next. All files as they were found stay in a folder of hard links beside it.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import asdict, dataclass
from errno import ENOSPC
from shlex import quote
from typing import TYPE_CHECKING

import plyvel

from krowlspider.errors import error_text
from krowlspider.frontier.admin.rebuild import Found, rebuild_indexes
from krowlspider.frontier.store.disk import cut_logs, forget_sizes
from krowlspider.frontier.store.log_damage import without_damage
from krowlspider.frontier.store.store import (
    BLOCK_CACHE,
    TABLE_FILTER_BITS,
    WRITE_BUFFER,
    LevelStore,
    StoreError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.seen.filter_file import FilterFile
    from krowlspider.urls.canonical import IdentityHasher

# Where LevelDB's repair puts files that it has read, whole or not.
_LOST = "lost"
# Hosts in the list of those that lost most.
MOST = 10
_TABLES = (".ldb", ".sst")
# What LevelDB says of tables that its manifest names and that are not there: db/db_impl.cc.
_MISSING_TABLES = re.compile(r"(\d+) missing files")
# What LevelDB says of files that are missing or shorter than they were; it has no code of its own for it.
_MISSING = ("No such file or directory", "Invalid argument")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found. ``copy`` is the folder of the files as they were, None when nothing was wrong with them;
    ``tables`` are the names of those that could not be read whole, ``table_bytes`` is their size, ``log_bytes`` what
    was unreadable in logs, ``missing`` how many tables LevelDB said were not there, ``cut_bytes`` what was missing at the
    ends of logs."""

    copy: str | None
    tables: list[str]
    table_bytes: int
    log_bytes: int
    found: Found
    missing: int = 0
    cut_bytes: int = 0

    @property
    def lossy(self) -> bool:
        """Whether URLs may be lost that no record counts."""
        damaged = self.tables or self.log_bytes or self.missing or self.cut_bytes
        return bool(damaged or self.found.unrecorded_hosts)

    @property
    def empty(self) -> bool:
        """Whether no host is left of a frontier that was damaged."""
        return self.copy is not None and not self.found.kept["hosts"]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def _is_damage(error: BaseException) -> bool:
    """Whether an error of a store, or what caused it, is damage that `repair` may mend."""
    cause: BaseException | None = error
    while cause is not None:
        missing = isinstance(cause, plyvel.Error) and any(
            text in error_text(cause) for text in _MISSING
        )
        if isinstance(cause, plyvel.CorruptionError) or missing:
            return True
        cause = cause.__cause__
    return False


def way_out(error: BaseException, jobdir: Path) -> str:
    """What to add to the message of an error: the command that mends what it is about, or nothing."""
    if not _is_damage(error):
        return ""
    if not is_there(jobdir / "frontier"):
        return f"; {gone(jobdir)}"
    return f"; mend it with: scrapy frontier {quote(str(jobdir))} --repair"


def is_there(frontier: Path) -> bool:
    """Whether a folder holds any file that LevelDB keeps keys in."""
    return any(
        path.suffix in (*_TABLES, ".log") or path.name.startswith("MANIFEST")
        for path in (frontier.iterdir() if frontier.is_dir() else ())
    )


def gone(jobdir: Path) -> str:
    """What to say of a crawl's folder without a frontier."""
    return f"JOBDIR {jobdir} has no frontier/ any more: put it back from a copy, or give another JOBDIR"


def repair(frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float) -> Repaired:
    """Repair the LevelDB folder ``frontier`` and put right what is derived in it; ``now`` is in epoch seconds.

    :raises StoreError: there is nothing to read, no room for it, or it still cannot be opened
    """
    try:
        return _repair(frontier, filter_file, hasher, now)
    except (plyvel.Error, OSError) as error:
        raise StoreError(f"{frontier} cannot be repaired: {error_text(error)}") from error


def _repair(
    frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float
) -> Repaired:
    working = frontier.with_name(frontier.name + ".repairing")
    source = working if working.exists() else frontier
    if not is_there(source):
        raise StoreError(f"there is nothing to repair: {gone(frontier.parent)}")
    _look_for_room(source)
    refusal = _refusal(frontier) if source is frontier else "it was being repaired"
    copy = _set_aside(frontier, working)
    # By the copy, which is as all was found however often this is begun.
    cut_bytes = sum(cut_logs(copy).values())
    forget_sizes(working)
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
    found = _rebuild_indexes(working, hasher, now)
    shutil.rmtree(working / _LOST, ignore_errors=True)
    working.rename(frontier)
    _sync(frontier.parent)
    names, size = sorted(path.name for path in broken), sum(path.stat().st_size for path in broken)
    healthy = refusal is None and found.whole and not (broken or log_bytes)
    if healthy:
        shutil.rmtree(copy)
    missing = _MISSING_TABLES.search(refusal or "")
    return Repaired(
        None if healthy else str(copy),
        names,
        size,
        log_bytes,
        found,
        int(missing[1]) if missing else 0,
        cut_bytes,
    )


def _look_for_room(source: Path) -> None:
    """All tables are written anew while the old ones stay in the copy.

    :raises StoreError: the disk has no room for that
    """
    needed = sum(path.stat().st_size for path in source.iterdir())
    if needed > shutil.disk_usage(source).free:
        raise StoreError(
            f"{source} is left as it is: to repair it, {needed // 1_000_000 + 1:,} MB must be free on its disk"
        ) from OSError(ENOSPC, os.strerror(ENOSPC))


def _refusal(frontier: Path) -> str | None:
    """Why LevelDB does not open a frontier, None if it does. It opens links to the files: of the files themselves it
    would delete those that the manifest does not name."""
    draft = _links(frontier, frontier)
    try:
        LevelStore(draft).close()
    except StoreError as error:
        return error_text(error)
    finally:
        shutil.rmtree(draft)
    return None


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
    copy = _copy(frontier, frontier, copies)
    frontier.rename(working)
    _sync(frontier.parent)
    return copy


def _number(copy: Path) -> int:
    return int(copy.name.rpartition("-")[2])


def _links(source: Path, frontier: Path) -> Path:
    """A folder of links to the files in another."""
    draft = frontier.with_name(frontier.name + ".before-repair.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for path in source.iterdir():
        if path.is_file():
            _link(path, draft / path.name)
    return draft


def _copy(source: Path, frontier: Path, copies: list[Path]) -> Path:
    draft = _links(source, frontier)
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


def _rebuild_indexes(working: Path, hasher: IdentityHasher, now: float) -> Found:
    store = LevelStore(working)
    try:
        # LevelDB's repair leaves all tables in one level, in which a read looks into each.
        store.compact(b"\0", b"\xff")
        return rebuild_indexes(store, hasher, now, MOST)
    finally:
        store.close()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
