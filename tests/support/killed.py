"""Work in a child process that is killed just before one of its steps on disk."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Audit events: a file or folder is opened, renamed, removed or made.
STEPS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"})


def killed_before(step: int, folder: Path, work: Callable[[], object]) -> int:
    """Work in a child, killed before its ``step``th step below ``folder``, which is counted from 1;
    0 for no kill.

    Return its exit code, negative if it was killed.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        left = step

        def kill(event: str, about: tuple[Any, ...]) -> None:
            nonlocal left
            if event in STEPS and str(about[0]).startswith(str(folder)):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        work()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)
