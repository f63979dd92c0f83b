"""What the programs have in common: files that they read and write, output, errors in one line.

Files that commands read and write; "-" means standard input or output. Every error is a KrowlError
with a one-line message.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import plyvel
from scrapy.commands import ScrapyCommand

from krowlspider.archive.disk import ArchiveError, RecordError, write_durably
from krowlspider.cluster.membership import UnansweredError
from krowlspider.commands.crawl import BAD_INPUT, STORAGE_FAILED
from krowlspider.errors import KrowlError, counted, error_text, for_want_of_room
from krowlspider.frontier.store.store import STORE_ERRORS, StoreError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader

    from scrapy.settings import Settings

if TYPE_CHECKING:
    _Opened = IO[bytes] | gzip.GzipFile

STDIO = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
# Names of what a process has open.
_OPEN = re.compile(r"/dev/(?:fd/|std(?:out|err)$)|/proc/[^/]+/fd/")


def read_lines(name: str, split: Callable[[_Opened], Iterable[bytes]] = iter) -> Iterator[bytes]:
    """Open a file, or standard input for "-", and return an iterator of its lines.

    The content is plain, gzip, or a zip of one file. ``split`` yields the lines of what is open.
    The file is opened immediately, before the first line is read.

    :raises KrowlError: the file cannot be opened; the iterator raises it if reading fails
    """
    try:
        stdin = name == STDIO
        file = open(0, "rb", closefd=False) if stdin else Path(name).open("rb")
    except OSError as error:
        raise _file_error(name, "read", error) from error
    return _lines_of(file, "standard input" if stdin else name, split)


def _lines_of(
    file: BufferedReader, name: str, split: Callable[[_Opened], Iterable[bytes]]
) -> Iterator[bytes]:
    try:
        with file:
            yield from split(_content(file, name))
    except (OSError, EOFError, zlib.error, BadZipFile) as error:
        raise _file_error(name, "read", error) from error


def _content(file: BufferedReader, name: str) -> _Opened:
    """Return the file itself, or what is compressed in it."""
    magic = file.peek(4)[:4]
    if magic[:2] == _GZIP_MAGIC:
        return gzip.open(file)
    if magic != _ZIP_MAGIC:
        return file
    if not file.seekable():
        raise KrowlError(f"{name} is a zip file, which cannot be read from a pipe: name the file")
    archive = ZipFile(file)
    members = archive.infolist()
    if len(members) != 1:
        raise KrowlError(
            f"{name} has {counted(len(members), 'file')}: give a zip file with one, or unpack it"
        )
    if members[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise KrowlError(f"{name} is a zip file of an uncommon compression: unpack it first")
    try:
        return archive.open(members[0])
    except RuntimeError as error:
        # Encrypted, or compressed by a method that Python does not have.
        raise _file_error(name, "read", error) from error


@contextmanager
def written(name: str) -> Iterator[IO[str]]:
    """Open a file for writing, as gzip if its name ends with ".gz", or standard output for "-".

    A file is written beside, and replaces the one of that name on exit. An error leaves that as it
    was.

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
        # Without its cause, so that the exit code is that of bad input.
        raise _file_error("standard output", "written", error) from None


def _opened(name: str) -> AbstractContextManager[IO[str]]:
    if name == STDIO:
        if sys.stdout is None:
            raise KrowlError("standard output cannot be written: it is closed")
        return nullcontext(sys.stdout)
    path = Path(name)
    # A pipe or a device is not replaced, nor what a process has open (/dev/stdout), nor a file in a
    # folder that cannot be written.
    is_special = _OPEN.match(name) or not os.access(path.parent, os.W_OK)
    if not path.exists() or (path.is_file() and not is_special):
        return _replacing(path)
    if name.endswith(".gz"):
        return gzip.open(name, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


@contextmanager
def _replacing(path: Path) -> Iterator[IO[str]]:
    with write_durably(path.resolve() if path.is_symlink() else path) as draft:
        opened: IO[str]
        if path.suffix == ".gz":
            opened = gzip.open(draft, "wt", encoding="utf-8")
        else:
            opened = open(draft.fileno(), "w", encoding="utf-8", closefd=False)
        with opened as file:
            yield file


def drop_output() -> None:
    """Redirect standard output to the null device, so that the flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _file_error(name: str, done: str, error: Exception) -> KrowlError:
    reason = error.strerror if isinstance(error, OSError) else None
    return KrowlError(f"{name} cannot be {done}: {reason or error}")


# Exit code: the command itself worked, but it found a problem or something missing.
FOUND_WRONG = 1
# Bad lines that are named; further ones are counted.
BAD_NAMED = 10
_MAKE_ROOM = ": make room on its disk, and do it again"
_ERRORS = (KrowlError, UnansweredError, ArchiveError, RecordError, OSError, *STORE_ERRORS)


class Program(ScrapyCommand):
    """A command that does not crawl; `act` does what it is for."""

    settings: Settings

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            self.act(args, opts)
        except BrokenPipeError:
            # The reader of the output has closed it.
            drop_output()
        except _ERRORS as error:
            self.complain(*self.failure(error))

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        raise NotImplementedError

    def failure(self, error: Exception) -> tuple[str, int]:
        """Return the line for an error that ends the program, and the exit code."""
        text = error_text(error)
        if isinstance(error, OSError) and error.strerror is not None:
            text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if not for_want_of_room(error):
            return text, BAD_INPUT
        # The messages of these have the way out already.
        way = "" if isinstance(error, (KrowlError, StoreError)) else _MAKE_ROOM
        return f"{text}{way}", STORAGE_FAILED

    def say(self, text: str) -> None:
        with written(STDIO) as file:
            print(text, file=file)

    def complain(self, text: str, code: int) -> None:
        """Write a line to standard error, and set the exit code."""
        print(f"krowlspider: {text}", file=sys.stderr)
        self.exitcode = code


class BadLines:
    """Counts the bad lines of a file, and names the first ``most`` of them on standard error."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def add(self, number: int, mistake: str) -> None:
        self.count += 1
        if self.count <= self._most:
            print(f"krowlspider: line {number} skipped: {mistake}", file=sys.stderr)


def refuse_options(program: str, args: list[str]) -> None:
    """:raises KrowlError: one of the arguments of a program is an option that it does not have"""
    for name in args:
        if name.startswith("-") and name != STDIO:
            raise KrowlError(
                f"{name.partition('=')[0]} is not an option: scrapy {program} --help lists them"
            )
