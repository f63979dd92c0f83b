"""Mistakes that are told in one line instead of a traceback."""

from __future__ import annotations

import errno
import os

# A quota, and a limit to the size of a file, are a full disk by another name.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class KrowlError(Exception):
    """A mistake of the user or of the machine. The message is one line: it names the input that is
    wrong and the way out. A command prints it and exits with status 2.
    """


class SettingsError(KrowlError):
    """A setting is unknown, missing or impossible."""


class SeedsError(KrowlError):
    """The seeds cannot be read."""


class JobError(KrowlError):
    """The job folder cannot be used: not writable, in use, or of another job."""


def told(error: BaseException) -> str:
    """The words of an error: those of LevelDB's errors are bytes."""
    words = error.args[0] if error.args else ""
    return words.decode(errors="replace") if isinstance(words, bytes) else str(error)


def lacks_room(error: BaseException | None) -> bool:
    """Whether something was not written for want of room on the disk, and may be once there is."""
    if not isinstance(error, OSError):
        return False
    if error.errno is not None:
        return error.errno in _NO_ROOM
    # LevelDB's errors have no number: their text ends with the system's words for it.
    return any(told(error).endswith(os.strerror(number)) for number in _NO_ROOM)


def for_want_of_room(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is a full disk."""
    while error is not None and not lacks_room(error):
        error = error.__cause__
    return error is not None
