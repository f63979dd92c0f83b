"""Flame graphs of the processes of a running crawl, by py-spy."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from krowlspider.crawl.folder import holder_of
from krowlspider.errors import KrowlError, install_with
from krowlspider.node.tree import process_folders

# The flame graph, in the JOBDIR of its process.
_GRAPH = "profile.svg"
SECONDS_MAX = 3600
# What py-spy says when it may not read the memory of another process.
_REFUSED = ("Permission Denied", "Operation not permitted")


def find_py_spy(folder: Path = Path(sys.executable).parent) -> Path:
    """Return the program, from the ``folder`` of this Python or from PATH.

    :raises KrowlError: it is not installed
    """
    if found := shutil.which("py-spy", path=folder) or shutil.which("py-spy"):
        return Path(found)
    raise KrowlError(f"py-spy is not installed: {install_with('profile')}")


async def record(jobdir: Path, seconds: int, spy: Path) -> list[Path]:
    """Sample the processes of the crawl in a JOBDIR at the same time; return the flame graphs.

    :raises KrowlError: no crawl runs there, or py-spy fails
    """
    folders = [jobdir] if (jobdir / "job.json").exists() else process_folders(jobdir)
    running = {pid: folder / _GRAPH for folder in folders if (pid := holder_of(folder))}
    if not running:
        raise KrowlError(f"no crawl runs in {jobdir}: give the JOBDIR of a running one")
    sampled = (_sample(spy, pid, seconds, graph) for pid, graph in running.items())
    for pid, error in zip(running, await asyncio.gather(*sampled), strict=True):
        if error is not None:
            raise KrowlError(_explained(pid, error))
    return list(running.values())


async def _sample(spy: Path, pid: int, seconds: int, graph: Path) -> str | None:
    """Write the flame graph of a process; return what py-spy says if it fails."""
    process = await asyncio.create_subprocess_exec(
        *(spy, "record", "--pid", str(pid), "--duration", str(seconds), "--threads"),
        *("--format", "flamegraph", "--output", graph),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return errors.decode(errors="replace") if process.returncode else None


def _explained(pid: int, error: str) -> str:
    if any(word in error for word in _REFUSED):
        return (
            f"py-spy may not read process {pid}: run the command as root, or after sysctl"
            " kernel.yama.ptrace_scope=0; in a container, add the capability SYS_PTRACE"
        )
    line = next((each for each in error.splitlines() if each.strip()), "it gave no reason")
    return f"py-spy could not sample process {pid}: {line.strip()}"
