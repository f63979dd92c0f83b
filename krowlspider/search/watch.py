"""Build in a process of its own, which a page may crash.

A page that takes too much CPU ends that process by SIGPROF, whatever code is running, as in
``scrapy corpus``. Shared memory tells which page it was. The next process leaves it out, and goes
on: an index is whole after any end of its builder.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
# Seconds of CPU for a page, that of the index's own threads included.
SECONDS = 20.0
# Bytes that a builder may have in memory.
MEMORY = 4 * 1024**3
_KEY = 16
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_REASONS: dict[int, str] = {
    signal.SIGPROF: "took too long", **dict.fromkeys(_CRASHES, "crashed")
}  # fmt: skip


class PageWatch(Protocol):
    """Watches the pages that are read: one may crash the reader, or take too long. ``ends`` is how
    many have done so in this run."""

    @property
    def ends(self) -> int: ...

    def reading(self, key: bytes) -> str | None:
        """Note that the page with this key is read from now on; return why it must not be.

        :raises EOFError: nobody waits for the index any more
        """

    def read(self) -> None:
        """Note that the page was read."""


class NoWatch:
    """Watches nothing."""

    ends = 0

    def reading(self, key: bytes) -> str | None:
        return None

    def read(self) -> None:
        pass


class _Shared:
    """Notes the page that is read in memory which both processes see."""

    def __init__(self, fatal: dict[bytes, str]):
        self._fatal = fatal
        self._parent = os.getpid()
        self._memory = mmap.mmap(-1, _KEY + 1)

    @property
    def ends(self) -> int:
        return len(self._fatal)

    @property
    def key(self) -> bytes | None:
        """The page that is read now, None between two."""
        return self._memory[1:] if self._memory[0] else None

    def reading(self, key: bytes) -> str | None:
        if os.getppid() != self._parent:
            raise EOFError
        if key in self._fatal:
            return self._fatal[key]
        self._memory[1:] = key
        self._memory[0] = 1
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        return None

    def read(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._memory[0] = 0


def watched(build: Callable[[PageWatch], _Result]) -> _Result:
    """Return what ``build`` returns, which is called in a child, and again after each page that
    ends one. The result is sent as a pickle.

    :raises KrowlError: as ``build``; or somebody killed the child
    """
    fatal: dict[bytes, str] = {}
    while True:
        shared = _Shared(fatal)
        code, result = _in_child(build, shared)
        if code == 0:
            if isinstance(result, BaseException):
                raise result
            return result  # type: ignore[no-any-return]
        reason, key = _REASONS.get(-code), shared.key
        if reason is None or key is None:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise KrowlError(
                f"the builder of the index ended {how}: run the same command again to continue"
            )
        fatal[key] = reason


def _in_child(build: Callable[[PageWatch], Any], shared: _Shared) -> tuple[int, Any]:
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(build, shared, theirs))
    child.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        result = None
    except BaseException:
        child.terminate()
        raise
    finally:
        child.join()
        ours.close()
    return child.exitcode or 0, result


def _work(build: Callable[[PageWatch], Any], shared: _Shared, connection: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    # Segments are mapped from files, which does not count.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        result = build(shared)
    except EOFError:
        os._exit(1)
    except (KrowlError, OSError) as error:
        result = error
    connection.send(result)
    connection.close()
