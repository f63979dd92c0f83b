"""Errors that are shown to a person in one line instead of a traceback."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

# An exceeded quota or file size limit is treated like a full disk.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class KrowlError(Exception):
    """A mistake of the user or a fault of the machine.

    The message is one line that names the wrong input and the way out.
    """


class SettingsError(KrowlError):
    """A setting is unknown, missing or invalid."""


class SeedsError(KrowlError):
    """The seeds cannot be read."""


class JobError(KrowlError):
    """The job folder cannot be used: not writable, in use, or of another job."""


def report_interrupts() -> None:
    """Print one line for a Ctrl-C that ends the process. A crawl that runs handles it itself."""
    before = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("krowlspider: interrupted", file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = report


def error_text(error: BaseException) -> str:
    """Return the message of an error as text. LevelDB's errors have bytes."""
    words = error.args[0] if error.args else ""
    return words.decode(errors="replace") if isinstance(words, bytes) else str(error)


def lacks_room(error: BaseException | None) -> bool:
    """Return whether a write failed only because the disk had no room.

    It may succeed once there is room.
    """
    if not isinstance(error, OSError):
        return False
    if error.errno is not None:
        return error.errno in _NO_ROOM
    # LevelDB's errors have no errno: their text ends with the system's message for it.
    return any(error_text(error).endswith(os.strerror(number)) for number in _NO_ROOM)


def for_want_of_room(error: BaseException | None) -> bool:
    """Return whether an error, or a cause in its chain, is a full disk."""
    while error is not None and not lacks_room(error):
        error = error.__cause__
    return error is not None
