"""``scrapy catalogue``: tables of a crawl's archive, as Parquet or in a database."""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from scrapy.exceptions import UsageError

from krowlspider.archive.finished import folders_of, has_archive, is_being_written
from krowlspider.archive.uploads import uploaded
from krowlspider.catalogue.columns import TABLES, USUAL
from krowlspider.catalogue.databases import sink_at
from krowlspider.catalogue.follow import Follower
from krowlspider.catalogue.parquet import ParquetSink
from krowlspider.config.validation import offline, validate
from krowlspider.errors import JobError, KrowlError, counted
from krowlspider.job.folder import JobFolder
from krowlspider.programs.program import FOUND_WRONG, Program, refuse_options
from krowlspider.views import captures

if TYPE_CHECKING:
    import argparse

    from krowlspider.catalogue.follow import Followed
    from krowlspider.catalogue.sinks import Sink

# The folder of the catalogue in a JOBDIR.
FOLDER = "catalogue"
# Characters of a crawl's name in a path, where a byte beyond ASCII takes three: file systems have
# 255 of them, with "crawl=" in front.
_NAME_MAX = 240


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR> [-o DIR | --to URL] [--follow] [--links] [--crawl NAME]"

    def short_desc(self) -> str:
        return "Write tables of captures, hosts, pages and changes"

    def long_desc(self) -> str:
        return (
            "Write Parquet files of what the finished WARC files of a crawl hold, with the columns"
            " of Common Crawl's index table and more. Files that are in the catalogue already are"
            " passed over. With --to, the rows go into PostgreSQL or SQLite instead. Instead of a"
            " JOBDIR, a folder of WARC files will do."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o",
            "--output",
            metavar="DIR",
            help="folder of the catalogue (default: JOBDIR/catalogue)",
        )
        parser.add_argument(
            "--to",
            metavar="URL",
            help="a database instead: postgresql://USER@HOST/DATABASE or sqlite:///PATH",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="wait for new WARC files until no crawl writes there",
        )
        parser.add_argument("--links", action="store_true", help="add the table of links")
        parser.add_argument(
            "--crawl", metavar="NAME", help="name of the crawl (default: that of JOBDIR)"
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        refuse_options("catalogue", args)
        if len(args) != 1:
            raise UsageError(f"scrapy catalogue {self.syntax()}")
        validate(offline(self.settings))
        source, jobdir = self._source(args[0], is_awaited=opts.follow)
        crawl = opts.crawl if opts.crawl is not None else jobdir.resolve().name
        if not crawl.strip():
            raise KrowlError("--crawl needs a name, such as autumn-2026")
        if opts.to is None and len(quote(crawl)) > _NAME_MAX:
            raise KrowlError(
                f"the crawl is called {crawl[:20]}..., too long for a folder: give --crawl NAME"
            )
        tables = frozenset(TABLES) if opts.links else USUAL
        with closing(self._sink(opts, jobdir, tables)) as sink:
            follower = Follower(source, crawl, tables, sink, self._tell)
            try:
                follower.run(follow=opts.follow)
            except KeyboardInterrupt:
                self.complain("interrupted: run the same command again to continue", FOUND_WRONG)
        self._report(source, follower.found)

    def _source(self, name: str, *, is_awaited: bool) -> tuple[Path, Path]:
        """Return where the WARC files are, and the folder of the job.

        With ``is_awaited``, the first file may come yet.

        :raises KrowlError: there are none
        """
        path = Path(name)
        chosen: str | None = self.settings["KROWL_WARC_DIR"]
        is_job = (path / "frontier").is_dir() or any(path.glob("p[1-9]*/frontier"))
        source = Path(chosen) if chosen and is_job else path
        if has_archive(source) or (is_awaited and is_being_written(source)):
            return source, path.parent if path.name == "warc" else path
        try:
            JobFolder.existing(name)
        except JobError as error:
            if not is_job:
                raise KrowlError(
                    f"{name} is neither a crawl's folder nor one of WARC files: give the JOBDIR of"
                    " a crawl"
                ) from error
        raise KrowlError(
            f"{name} has no WARC files: a catalogue is made of the archive, and this crawl has"
            " none yet, or ran with KROWL_ARCHIVE=False"
        )

    def _sink(self, opts: argparse.Namespace, jobdir: Path, tables: frozenset[str]) -> Sink:
        if opts.to is not None and opts.output is not None:
            raise KrowlError("-o and --to are given: a catalogue is written to one place")
        if opts.to is not None:
            say = partial(print, "krowlspider:", file=sys.stderr, flush=True)
            return sink_at(opts.to, tables, say)
        return ParquetSink(Path(opts.output) if opts.output else jobdir / FOLDER, tables)

    def _tell(self, name: str, rows: int) -> None:
        self.say(f"{name}: {counted(rows, 'row')}")

    def _report(self, source: Path, found: Followed) -> None:
        self.say(f"{counted(found.files, 'file')}, {counted(found.rows, 'row')}")
        for fault in found.faults:
            self.complain(fault, FOUND_WRONG)
        if found.away:
            folders = folders_of(source)
            there = {name: place for each in folders for name, place in uploaded(each).items()}
            places = {there[name].rpartition("/")[0] for name in found.away if name in there}
            gone = captures.left_out(folders[0], len(found.away), places, 0)
            self.complain(f"not in the catalogue: {gone}", FOUND_WRONG)
