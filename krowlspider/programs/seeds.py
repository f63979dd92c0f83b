"""``scrapy seeds``: convert a published list of domains into a file of seeds."""

from __future__ import annotations

import sys
from itertools import chain, islice
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.errors import KrowlError, counted
from krowlspider.programs.program import (
    STDIO,
    BadLines,
    Program,
    read_lines,
    refuse_options,
    written,
)
from krowlspider.urls.seeds import FORMATS, BadSeed, content, recognise, seed_lines, seed_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from krowlspider.urls.seeds import ReadLine

# Lines read before the first seed is written, to recognise binary, empty and unknown files.
_HEAD = 100
# Bad lines that are named; further ones are counted.
_BAD_NAMED = 5


class Command(Program):
    def syntax(self) -> str:
        return "<FILE> [-o FILE] [options]"

    def short_desc(self) -> str:
        return "Make a file of seeds from a list of Tranco, Majestic or the CZDS"

    def long_desc(self) -> str:
        return (
            f"{self.short_desc()}, or from a plain list. The list may be gzip, or a zip of one"
            " file; - reads standard input. Of a zone file the seeds are the names that are"
            " delegated directly below its apex. Bad lines are skipped and counted. Exit code 2:"
            " bad input, and no file is written; 3: no room"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE", default=STDIO,
            help="write it whole or not at all, as gzip if named .gz (default: standard output)",
        )  # fmt: skip
        parser.add_argument(
            "--format", choices=list(FORMATS), help="of the list (default: by its first lines)"
        )
        parser.add_argument("--first", metavar="N", type=int, help="only the first N seeds")

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        self._convert(self._checked(args, opts), opts)

    def _checked(self, args: list[str], opts: argparse.Namespace) -> str:
        """Return the name of the list.

        :raises KrowlError: an option is wrong
        :raises UsageError: there is not exactly one list
        """
        refuse_options("seeds", args)
        if len(args) != 1:
            raise UsageError("give one list of domains")
        if not opts.output:
            raise KrowlError("-o is given an empty name: give a file")
        if opts.first is not None and opts.first < 1:
            raise KrowlError(f"--first {opts.first}: give 1 or more")
        return args[0]

    def _convert(self, name: str, opts: argparse.Namespace) -> None:
        lines = read_lines(name, seed_lines)
        head = list(islice(lines, _HEAD))
        name = "standard input" if name == STDIO else name
        form = _format_of(name, head, opts.format)
        conversion = Conversion(FORMATS[form](), chain(head, lines))
        with written(opts.output) as file:
            file.writelines(f"{seed}\n" for seed in islice(conversion.seeds(), opts.first))
            if not conversion.good:
                raise KrowlError(
                    f"{name} has no seed: {counted(conversion.bad, 'bad line')}, read as {form};"
                    f" give its format with --format: {', '.join(FORMATS)}"
                )
        bad = f", {counted(conversion.bad, 'bad line')} skipped" if conversion.bad else ""
        print(f"{counted(conversion.good, 'seed')} from {name} ({form}){bad}", file=sys.stderr)


class Conversion:
    """Converts lines as they are read. ``good`` and ``bad`` count those read so far.

    The first bad lines are named on standard error.
    """

    def __init__(self, read: ReadLine, lines: Iterable[bytes]):
        self._read = read
        self._lines = lines
        self.good = 0
        self._bad = BadLines(_BAD_NAMED)

    @property
    def bad(self) -> int:
        return self._bad.count

    def seeds(self) -> Iterator[str]:
        """Yield the seeds as lines of a file of seeds."""
        for number, line in enumerate(self._lines, 1):
            if not (text := content(line)):
                continue
            try:
                seed = self._read(text)
            except BadSeed as error:
                self._bad.add(number, str(error))
                continue
            if seed is not None:
                self.good += 1
                yield seed_text(seed)


def _format_of(name: str, head: list[bytes], given: str | None) -> str:
    """Return the name of the format.

    :raises KrowlError: the list is binary, empty or of no known format
    """
    if any(b"\0" in line for line in head):
        raise KrowlError(f"{name} is binary: give text, gzip or a zip file")
    if len(head) < _HEAD and not any(map(content, head)):
        raise KrowlError(f"{name} is empty: no line has a domain")
    if form := given or recognise(head):
        return form
    raise KrowlError(f"{name} is of no known format: give it with --format: {', '.join(FORMATS)}")
