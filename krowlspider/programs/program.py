"""What the programs have in common: output, and errors in one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand

from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.cluster.membership import UnansweredError
from krowlspider.commands.crawl import BAD_INPUT, STORAGE_FAILED
from krowlspider.errors import KrowlError, error_text, for_want_of_room
from krowlspider.frontier.store.store import STORE_ERRORS, StoreError
from krowlspider.views.files import STDIO, drop_output, written

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import Settings

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
