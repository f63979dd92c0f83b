"""How much memory this process may use, by its control groups or the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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
