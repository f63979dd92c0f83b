"""A small file system in memory, which tests fill."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path


class SmallDisk:
    """A file system in memory of ``size`` bytes, in the mount namespace of a process."""

    def __init__(self, folder: Path, size: int):
        folder.mkdir()
        script = f'mount -t tmpfs -o size={size} tmpfs "$0" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self.mounted = self._holder.stdout.readline() == b"mounted\n"
        pid = str(self._holder.pid)
        self.prefix = ["nsenter", "--target", pid, "--user", "--preserve-credentials", "--mount"]
        self.prefix += [f"--wd={Path.cwd()}"]
        # The path of the folder outside the namespace.
        self.outside = Path(f"/proc/{pid}/root{folder}")
        self._ballast = self.outside / "ballast"

    def fill(self) -> None:
        """Fill the disk, whatever the crawl writes meanwhile."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def make_room(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        self._holder.communicate()
