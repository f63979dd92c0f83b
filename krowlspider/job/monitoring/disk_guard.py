"""What the machine leaves a crawl: free disk space, and memory."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

logger = logging.getLogger(__name__)

# Seconds between two looks: others may fill the disk fast. Each look runs in a thread, because a
# network disk may not answer.
_INTERVAL = 1.0
# Room above the floor before the crawl goes on: a part of the floor, and at least the bytes that
# the frontier's logs and merges take and free meanwhile.
_MORE = 0.1
_MORE_MIN = 100_000_000
_MB = 1_000_000


class DiskFloor:
    """Decides which disk is short of room.

    A disk is short from less than ``floor`` bytes free until it has ``enough`` bytes again.
    """

    def __init__(self, floor: int):
        self.floor = floor
        self.enough = floor + max(int(_MORE * floor), _MORE_MIN)
        self._short: set[Path] = set()

    def short(self, free: Mapping[Path, int]) -> Path | None:
        """Return the first folder whose disk is short of room; None if none is.

        ``free`` maps each folder to the free bytes of its disk.
        """
        for folder, size in free.items():
            if size < (self.enough if folder in self._short else self.floor):
                self._short.add(folder)
            else:
                self._short.discard(folder)
        return next((folder for folder in free if folder in self._short), None)


class DiskGuard:
    """Watches the disks of folders. ``low`` is the first that is short of room, None if none is.

    ``folders`` returns them. ``fail`` is called with the error of a disk that has failed. ``free``
    returns the free bytes for a folder.
    """

    def __init__(
        self,
        floor: int,
        folders: Callable[[], Iterable[Path]],
        fail: Callable[[Exception], None],
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ):
        self.low: Path | None = None
        self.floor = floor
        self._floor = DiskFloor(floor)
        self._folders = folders
        self._fail = fail
        self._free = free
        self._task: asyncio.Task[None] | None = None
        # Free bytes for each folder, at the last look.
        self.free_bytes: Mapping[Path, int] = {}

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                free = await run_in_thread(self._read)
            except OSError as error:
                self._fail(error)
                return
            self._judge(free)

    def look(self) -> None:
        """Read the free bytes and set ``low``.

        :raises OSError: a disk cannot be read
        """
        self._judge(self._read())

    def _read(self) -> dict[Path, int]:
        return {folder: self._free(folder) for folder in self._folders()}

    def is_scarce(self, folder: Path) -> bool:
        """Return whether a folder's disk had less than twice the floor free at the last look."""
        return self.free_bytes.get(folder, inf) < 2 * self._floor.floor

    def _judge(self, free: Mapping[Path, int]) -> None:
        self.free_bytes = free
        before, self.low = self.low, self._floor.short(free)
        if before is None and self.low is not None:
            logger.warning(
                "%d MB are free for %s, less than KROWL_DISK_FLOOR: nothing more is fetched until"
                " it is %d MB. Make room, or start again with a lower floor",
                free[self.low] // _MB,
                self.low,
                -(-self._floor.enough // _MB),
            )


# The kernel's list of this process's control groups, and the tree with their limits.
_GROUPS = Path("/proc/self/cgroup")
_TREE = Path("/sys/fs/cgroup")


def machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_to_be_had(groups: Path = _GROUPS, tree: Path = _TREE, machine: int | None = None) -> int:
    """Return the bytes of memory that this process may use.

    It is the least of the machine's memory and the limits of the control groups, version 1 or 2.
    """
    least = machine_memory() if machine is None else machine
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                found = _limits(tree, path, "memory.max")
            elif "memory" in controllers.split(","):
                found = _limits(tree / "memory", path, "memory.limit_in_bytes")
            else:
                continue
            least = min([least, *found])
    return least


def _limits(tree: Path, path: str, name: str) -> list[int]:
    """Return the limits of a control group and of its parents.

    Inside a container, its own group is at the top of the tree.
    """
    found = []
    group = Path(path.lstrip("/"))
    for each in (group, *group.parents):
        # "max" is no limit, and a group outside of the container is not found.
        with suppress(OSError, ValueError):
            found.append(int((tree / each / name).read_text()))
    return found
