"""How much memory there is: what the control group of this process may use, or the machine has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Where the kernel says which control groups this process is in, and what each may use.
_GROUPS = Path("/proc/self/cgroup")
_TREE = Path("/sys/fs/cgroup")


def machine_memory() -> int:
    """Bytes of memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_to_be_had(groups: Path = _GROUPS, tree: Path = _TREE, machine: int | None = None) -> int:
    """Bytes that this process may use: the least that any of its control groups, version 1 or 2, or
    the machine has."""
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
    """The limits of a control group and of those that it is in. In a container, its own is at the
    top of the tree."""
    found = []
    group = Path(path.lstrip("/"))
    for each in (group, *group.parents):
        # "max" is none; and a group of outside is not there.
        with suppress(OSError, ValueError):
            found.append(int((tree / each / name).read_text()))
    return found
