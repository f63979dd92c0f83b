"""The process of a crawl, as the program that started it sees it."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from socket import SHUT_RDWR, SHUT_WR, socketpair

from krowlspider.library.messages import TAKEN, CrawlOrder

# Processes that may still run. Each holds its folder until it has ended.
_started: list[CrawlProcess] = []


class CrawlProcess:
    """The process of one crawl, from its start on. It waits for its order.

    It is in a session of its own, so that a terminal's Ctrl-C does not reach it. It stops when
    `finish` or `leave` is called, and when the program dies. Then it commits, and closes its files.
    """

    def __init__(self, order: CrawlOrder):
        self.jobdir = order.jobdir
        self._temporary = order.temporary
        self._owner = os.getpid()
        self.socket, theirs = socketpair()
        # As Python itself, without what is no text.
        path = [each for each in sys.path if isinstance(each, str)]
        program = (
            f"import sys; sys.path[:] = {path!r};"
            f" from krowlspider.library.child import main; main({theirs.fileno()})"
        )
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own source
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError:
            self.socket.close()
            raise
        finally:
            theirs.close()
        self.is_leaving = False
        self._owed = 0
        _started.append(self)

    def acknowledge(self) -> None:
        """Tell the crawl that the oldest page is done. Never blocks."""
        self._owed += 1
        self.send_owed()

    def send_owed(self) -> None:
        """Send the acknowledgements for which the socket had no room."""
        # If the process has died, reading tells.
        with suppress(OSError):
            self._owed -= self.socket.send(TAKEN * self._owed)

    def finish(self) -> None:
        """Have the crawl stop. What it still sends can be read."""
        self.is_leaving = True
        self.send_owed()
        with suppress(OSError):
            self.socket.shutdown(SHUT_WR)

    def leave(self) -> None:
        """Have the crawl stop, and read nothing more. Never blocks."""
        self.is_leaving = True
        # A process that was forked may have the socket open too.
        with suppress(OSError):
            self.socket.shutdown(SHUT_RDWR)
        self.socket.close()

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code, negative for a signal."""
        code = self._process.wait()
        self.leave()
        if self in _started:
            _started.remove(self)
        if self._temporary:
            # A process that was killed has not done it.
            shutil.rmtree(self.jobdir, ignore_errors=True)
        return code

    @property
    def is_ours(self) -> bool:
        """Return whether this process has started it, and not the one that it was forked from."""
        return self._owner == os.getpid()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None


def former(jobdir: str) -> list[CrawlProcess]:
    """Return the processes that are stopping and have a folder still; forget those that are over.

    ``jobdir`` is absolute.
    """
    for child in [each for each in _started if each.is_leaving and each.has_ended]:
        child.wait()
    here = os.path.realpath(jobdir)
    same = [each for each in _started if os.path.realpath(each.jobdir) == here]
    if not all(each.is_leaving for each in same):
        # After an exception, a crawl that nobody has any more may be part of a cycle.
        gc.collect()
    return [each for each in same if each.is_leaving]


def _forget() -> None:
    """Close the sockets of a process that was forked: else a crawl would go on while it lives."""
    for child in _started:
        child.socket.close()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _end_all() -> None:
    """Stop all crawls, and wait for their ends: then their archives are whole."""
    ours = [child for child in _started if child.is_ours]
    for child in ours:
        child.leave()
    for child in ours:
        child.wait()
