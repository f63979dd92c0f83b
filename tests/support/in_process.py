"""Run commands of the project in the process of the test: it saves their start and imports."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from scrapy import cmdline
from scrapy.cmdline import execute
from scrapy.settings import BaseSettings, SettingsAttribute
from scrapy.utils import versions
from scrapy.utils.log import _uninstall_scrapy_root_handler
from twisted.python import log as twisted_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ATOMS = (str, int, float, bool, type(None))


def _copied(self: SettingsAttribute, memo: dict[int, Any]) -> SettingsAttribute:
    value = self.value if type(self.value) in _ATOMS else copy.deepcopy(self.value, memo)
    made = SettingsAttribute.__new__(SettingsAttribute)
    made.value, made.priority = value, self.priority
    return made


def _all_copied(self: BaseSettings, memo: dict[int, Any]) -> BaseSettings:
    made = self.__class__.__new__(self.__class__)
    memo[id(self)] = made
    made.__dict__.update(self.__dict__)
    made.attributes = {name: _copied(each, memo) for name, each in self.attributes.items()}
    return made


# A quarter of the CPU time of a small crawl: each start copies all settings four times, and reads
# the metadata of all installed packages.
SettingsAttribute.__deepcopy__ = _copied
BaseSettings.__deepcopy__ = _all_copied
cmdline.entry_points = cache(cmdline.entry_points)
versions.version = cache(versions.version)


def run_here(
    words: Sequence[str],
    *,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
    merged: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run ``scrapy`` with these words. Return its exit code, output and errors.

    ``given`` is its input. With ``merged``, errors go into the output, as by `subprocess.STDOUT`.
    """
    with ExitStack() as stack:
        stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin.write(given)
        stdin.seek(0)
        code = execute_here(words, stdin, stdout, stdout if merged else stderr, environment)
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(list(words), code, stdout.read(), stderr.read())


def execute_here(
    words: Sequence[str],
    stdin: IO[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run ``scrapy`` with these words on these files; return its exit code."""
    with _state_kept(), _streams(stdin, stdout, stderr):
        os.environ.update(environment or {})
        try:
            execute(["scrapy", *words])
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        finally:
            sys.stdout.flush()
    raise AssertionError("scrapy ends with an exit code")


@contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """Redirect standard input, output and errors to these files, for Python and for C."""
    before = sys.stdin, sys.stdout, sys.stderr
    kept = [os.dup(number) for number in range(3)]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", 1, closefd=False)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)


def _nothing() -> None:
    pass


@contextmanager
def _state_kept() -> Iterator[None]:
    """Restore the state of the process after a command."""
    handlers = [signal.getsignal(number) for number in _SIGNALS]
    environment, root = dict(os.environ), logging.getLogger()
    logging_before = root.level, root.handlers[:]
    observers = list(twisted_log.theLogPublisher.observers)
    # The command adds its own handler; those of the test would format each line again.
    root.handlers.clear()
    # This process goes on: the garbage of the command is to be collected.
    freezing = gc.freeze, gc.unfreeze
    gc.freeze = gc.unfreeze = _nothing
    try:
        yield
    finally:
        gc.freeze, gc.unfreeze = freezing
        asyncio.set_event_loop(None)
        for observer in set(twisted_log.theLogPublisher.observers) - set(observers):
            twisted_log.removeObserver(observer)
        _uninstall_scrapy_root_handler()
        logging.captureWarnings(False)
        root.level, root.handlers[:] = logging_before[0], logging_before[1]
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in zip(_SIGNALS, handlers, strict=True):
            signal.signal(number, handler)
