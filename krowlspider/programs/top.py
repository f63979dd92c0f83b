"""``scrapy top JOBDIR``: watch a running crawl in a terminal."""

from __future__ import annotations

import sys
import time
from itertools import islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.errors import KrowlError, error_text, install_with
from krowlspider.programs.program import Program
from krowlspider.programs.running import CrawlSource, NoCrawlError, lines, one_line

if TYPE_CHECKING:
    import argparse

    from krowlspider.programs.top_app import TopApp

# Hosts of the plain lines, and the least seconds between two looks.
_HOSTS = 15
_INTERVAL_MIN = 0.5
# To the upper left corner, and erase what follows (ECMA-48: CUP, ED).
_REDRAW = "\x1b[H\x1b[J"


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR or URL> [options]"

    def short_desc(self) -> str:
        return "Watch a running crawl in a terminal"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--once", action="store_true", help="print the figures once and end")
        parser.add_argument(
            "--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks: 2"
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1:
            raise UsageError("give one JOBDIR, or the URL of a live page")
        if not opts.interval >= _INTERVAL_MIN:
            raise KrowlError(f"--interval {opts.interval}: give {_INTERVAL_MIN} s or more")
        try:
            self._watch(CrawlSource.of(args[0]), opts)
        except KeyboardInterrupt:
            print()

    def _watch(self, source: CrawlSource, opts: argparse.Namespace) -> None:
        if opts.once:
            print("\n".join(lines(source.snapshot("queued", _HOSTS))), flush=True)
        elif not sys.stdout.isatty():
            _follow(source, opts.interval)
        elif (app := _app(source, opts.interval)) is None:
            print(f"For the full screen: {install_with('top')}", file=sys.stderr)
            _follow(source, opts.interval, redraw=True)
        elif why := app.run():
            print(f"The crawl has ended. {why}")


def _app(source: CrawlSource, interval: float) -> TopApp | None:
    """Return the full screen; None without textual."""
    try:
        from krowlspider.programs.top_app import TopApp  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return TopApp(source, interval)


def _follow(source: CrawlSource, interval: float, *, redraw: bool = False) -> None:
    """Print a line every ``interval`` seconds, or with ``redraw`` all figures in place of the last
    ones, until the crawl ends."""
    found = source.snapshot("queued", _HOSTS)
    while True:
        if redraw:
            columns, rows = get_terminal_size()
            shown = [line[:columns] for line in islice(lines(found), rows - 1)]
            print(_REDRAW + "\n".join(shown), flush=True)
        else:
            print(one_line(found), flush=True)
        time.sleep(interval)
        try:
            found = source.snapshot("queued", _HOSTS)
        except NoCrawlError as error:
            print(f"The crawl has ended. {error_text(error)}")
            return
