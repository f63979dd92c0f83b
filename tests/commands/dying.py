"""`python -m tests.commands.dying FOLDER`: kill migrations of copies of ``FOLDER/job``.

The n-th copy, ``FOLDER/n``, is migrated in a process that kills itself before its n-th change of
names or new file in the folder. The last copy is one whose migration has ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from scrapy.cmdline import execute

_NAMES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir"}


def _migrate(job: Path, left: int) -> None:
    def die(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        changes = event in _NAMES or (event == "open" and arguments[1] == "wb")
        if changes and str(job) in str(arguments[0]):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    execute(["scrapy", "frontier", str(job), "--migrate"])


def main(folder: Path) -> None:
    """Run the command. It forks before LevelDB has a thread."""
    for number in count():
        job = folder / str(number)
        shutil.copytree(folder / "job", job)
        child = os.fork()
        if not child:
            _migrate(job, number)
        status = os.waitpid(child, 0)[1]
        if not status:
            break
        assert status == signal.SIGKILL, status


if __name__ == "__main__":
    main(Path(sys.argv[1]))
