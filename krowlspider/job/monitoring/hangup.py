"""SIGHUP as an order to read files again, told from the end of a terminal or a supervisor."""

from __future__ import annotations

import os


class Hangup:
    """Knows the parent and the terminal of this process at its making."""

    def __init__(self) -> None:
        self._parent, self._terminal = os.getppid(), _has_terminal()

    def is_order(self) -> bool:
        """Return whether a SIGHUP is an order: parent and terminal are still there."""
        return os.getppid() == self._parent and (_has_terminal() or not self._terminal)


def _has_terminal() -> bool:
    """Return whether the process has a terminal that can be opened."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
