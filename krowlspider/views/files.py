"""Files that commands read and write, plain or gzip; "-" means standard input or output.

Every error is a KrowlError with a one-line message.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

import plyvel

from krowlspider.errors import KrowlError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

STDIO = "-"
_GZIP_MAGIC = b"\x1f\x8b"


def read_lines(name: str) -> Iterator[bytes]:
    """Open a file, plain or gzip, or standard input for "-", and return an iterator of its lines.

    The file is opened immediately, before the first line is read.

    :raises KrowlError: the file cannot be opened; the iterator raises it if reading fails
    """
    try:
        stdin = name == STDIO
        file = open(0, "rb", closefd=False) if stdin else Path(name).open("rb")
    except OSError as error:
        raise _file_error(name, "read", error) from error
    return _lines_of(file, "standard input" if stdin else name)


def _lines_of(file: BufferedReader, name: str) -> Iterator[bytes]:
    try:
        with file:
            yield from gzip.open(file) if file.peek(2)[:2] == _GZIP_MAGIC else file
    except (OSError, EOFError, zlib.error) as error:
        raise _file_error(name, "read", error) from error


@contextmanager
def written(name: str) -> Iterator[IO[str]]:
    """Open a file for writing, as gzip if its name ends with ".gz", or standard output for "-".

    :raises KrowlError: the file cannot be written
    """
    try:
        with _opened(name) as file:
            yield file
            file.flush()
    except (BrokenPipeError, plyvel.Error):
        raise
    except OSError as error:
        if name != STDIO:
            raise _file_error(name, "written", error) from error
        drop_output()
        raise _file_error("standard output", "written", error) from error


def _opened(name: str) -> AbstractContextManager[IO[str]]:
    if name == STDIO:
        if sys.stdout is None:
            raise KrowlError("standard output cannot be written: it is closed")
        return nullcontext(sys.stdout)
    if name.endswith(".gz"):
        return gzip.open(name, "wt", encoding="utf-8")
    return Path(name).open("w", encoding="utf-8")


def drop_output() -> None:
    """Redirect standard output to the null device, so that the flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _file_error(name: str, done: str, error: Exception) -> KrowlError:
    reason = error.strerror if isinstance(error, OSError) else None
    return KrowlError(f"{name} cannot be {done}: {reason or error}")
