"""Repair a damaged frontier, as far as LevelDB can read it.

Meanwhile it is moved aside, so that no crawl opens it; the next repair completes one that was
killed. The files as they were found stay in a folder of hard links.
"""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plyvel

from krowlspider.errors import error_text, scrapy_with
from krowlspider.frontier.admin.rebuild import Found, rebuild_indexes
from krowlspider.frontier.store.disk import cut_logs, forget_sizes, sync
from krowlspider.frontier.store.log_damage import without_damage
from krowlspider.frontier.store.store import TABLE_OPTIONS, LevelStore, StoreError, check_room

if TYPE_CHECKING:
    from pathlib import Path

    from krowlspider.frontier.seen.filter_file import FilterFile
    from krowlspider.urls.canonical import IdentityHasher

# Where LevelDB's repair puts files that it has read, whole or not.
_LOST = "lost"
# Hosts in the lists of `Found`.
MOST = 10
_TABLES = (".ldb", ".sst")
# LevelDB's words for tables that its manifest names and that are missing: db/db_impl.cc.
_MISSING_TABLES = re.compile(r"(\d+) missing files")
# LevelDB's words for files that are missing or too short; it has no code of its own for it.
_MISSING = ("No such file or directory", "Invalid argument")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found.

    - ``copy``: the folder of the files as they were; None when nothing was wrong with them.
    - ``tables``: those that could not be read whole. ``table_bytes``: their size.
    - ``log_bytes``: what was unreadable in logs. ``cut_bytes``: what was missing at their ends.
    - ``missing``: how many tables were missing.
    """

    copy: str | None
    tables: list[str]
    table_bytes: int
    log_bytes: int
    found: Found
    missing: int = 0
    cut_bytes: int = 0

    @property
    def lossy(self) -> bool:
        """Return whether URLs may be lost that no record counts."""
        damaged = self.tables or self.log_bytes or self.missing or self.cut_bytes
        return bool(damaged or self.found.unrecorded_hosts)

    @property
    def empty(self) -> bool:
        """Return whether no host is left of a damaged frontier."""
        return self.copy is not None and not self.found.kept["hosts"]


def _is_damage(error: BaseException | None) -> bool:
    """Return whether an error of a store, or a cause in its chain, is damage to its files."""
    if error is None:
        return False
    is_missing = isinstance(error, plyvel.Error) and any(
        words in error_text(error) for words in _MISSING
    )
    return isinstance(error, plyvel.CorruptionError) or is_missing or _is_damage(error.__cause__)


def way_out(error: BaseException, jobdir: Path) -> str:
    """Return what to add to an error's message: the way to mend damage, empty for other errors."""
    if not _is_damage(error):
        return ""
    if not is_there(jobdir / "frontier"):
        return f"; {gone(jobdir)}"
    return f"; mend it with: {scrapy_with('frontier', jobdir, '--repair')}"


def is_there(frontier: Path) -> bool:
    """Return whether a folder has any file in which LevelDB keeps keys."""
    return any(
        path.suffix in (*_TABLES, ".log") or path.name.startswith("MANIFEST")
        for path in (frontier.iterdir() if frontier.is_dir() else ())
    )


def gone(jobdir: Path) -> str:
    """Return the message for a crawl's folder without a frontier."""
    way = "put it back from a copy, or give another JOBDIR"
    return f"JOBDIR {jobdir} has no frontier/ any more: {way}"


def repair(frontier: Path, filter_file: FilterFile, hasher: IdentityHasher, now: float) -> Repaired:
    """Repair a LevelDB folder and rebuild what is derived in it; ``now`` is in epoch seconds.

    :raises StoreError: there is nothing to read, no room, or it still cannot be opened
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
    check_room(source)
    refusal = _refusal(frontier) if source is frontier else "it was being repaired"
    copy = _set_aside(frontier, working)
    # From the copy, which stays as it was found however often the repair begins.
    cut_bytes = sum(cut_logs(copy).values())
    forget_sizes(working)
    log_bytes = sum(_clean_log(log) for log in sorted(working.glob("*.log")))
    plyvel.repair_db(str(working), **TABLE_OPTIONS)
    broken = sorted(
        path
        for path in copy.iterdir()
        if path.suffix in _TABLES and (working / _LOST / path.name).exists()
    )
    filter_file.remove()
    with closing(LevelStore(working)) as store:
        # LevelDB's repair leaves all tables in one level, where each read looks into every table.
        store.compact(b"\0", b"\xff")
        found = rebuild_indexes(store, hasher, now, MOST)
    shutil.rmtree(working / _LOST, ignore_errors=True)
    working.rename(frontier)
    sync(frontier.parent)
    healthy = refusal is None and found.whole and not (broken or log_bytes)
    if healthy:
        shutil.rmtree(copy)
    missing = _MISSING_TABLES.search(refusal or "")
    return Repaired(
        copy=None if healthy else str(copy),
        tables=[path.name for path in broken],
        table_bytes=sum(path.stat().st_size for path in broken),
        log_bytes=log_bytes,
        found=found,
        missing=int(missing[1]) if missing else 0,
        cut_bytes=cut_bytes,
    )


def _refusal(frontier: Path) -> str | None:
    """Return why LevelDB does not open a frontier; None if it does."""
    # Opening deletes the files that the manifest does not name, so it opens links to them.
    draft = _links(frontier, frontier)
    try:
        LevelStore(draft).close()
    except StoreError as error:
        return error_text(error)
    finally:
        shutil.rmtree(draft)
    return None


def _set_aside(frontier: Path, working: Path) -> Path:
    """Move a frontier to where it is repaired, and return a folder of links to its files."""
    copies = sorted(frontier.parent.glob(f"{frontier.name}.before-repair-*"), key=_number)
    if working.exists():
        if (frontier / "CURRENT").exists():
            raise StoreError(f"both {frontier} and {working} hold a frontier: move one away")
        # LevelDB has left files there if somebody tried to open it.
        shutil.rmtree(frontier, ignore_errors=True)
        if copies:
            return copies[-1]
    draft = _links(working if working.exists() else frontier, frontier)
    sync(draft)
    number = _number(copies[-1]) + 1 if copies else 1
    copy = frontier.with_name(f"{frontier.name}.before-repair-{number}")
    draft.rename(copy)
    sync(frontier.parent)
    if not working.exists():
        frontier.rename(working)
        sync(frontier.parent)
    return copy


def _number(copy: Path) -> int:
    return int(copy.name.rpartition("-")[2])


def _links(source: Path, frontier: Path) -> Path:
    """Make a folder of links to the files in another."""
    draft = frontier.with_name(frontier.name + ".before-repair.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for path in source.iterdir():
        if path.is_file():
            try:
                (draft / path.name).hardlink_to(path)
            except OSError:
                # A file system without hard links.
                shutil.copy2(path, draft / path.name)
    return draft


def _clean_log(log: Path) -> int:
    """Replace a log by one without damaged records, and return the bytes of those."""
    data, damaged = without_damage(log.read_bytes())
    if damaged:
        draft = log.with_name(log.name + ".clean")
        draft.write_bytes(data)
        sync(draft)
        draft.replace(log)
    return damaged
