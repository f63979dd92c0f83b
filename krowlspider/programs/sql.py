"""``scrapy sql``: ask a crawl in SQL, by its catalogue and its frontier, while it runs too."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.archive.disk import write_durably
from krowlspider.catalogue.columns import TABLES
from krowlspider.config.validation import offline, validate
from krowlspider.engine.csv_export import harmless
from krowlspider.errors import JobError, KrowlError, counted, need, scrapy_with
from krowlspider.frontier.admin.repair import gone, is_there
from krowlspider.frontier.store.store import LevelStore, check_owner
from krowlspider.job.folder import JobFolder, JobInUseError, processes_in
from krowlspider.job.snapshots import COPY
from krowlspider.programs.program import FOUND_WRONG, STDIO, Program, read_lines, written
from krowlspider.programs.running import reached, token_of
from krowlspider.programs.stopped import delays_of_stopped, is_writable, readable_copy
from krowlspider.sql.catalogue import catalogue_in, crawl_of, files_of, missing
from krowlspider.sql.database import database
from krowlspider.sql.execution import QueryLimits, Run, scratch_folder
from krowlspider.sql.live import RANGES, FrontierFiles, FrontierSource
from krowlspider.sql.output import CsvOutput, JsonOutput, Output, ParquetOutput, TableOutput
from krowlspider.sql.statement import STATEMENT_MAX, checked
from krowlspider.sql.tables import ALIASES, LIVE, PARTS, SCHEMAS, SUMS
from krowlspider.urls.canonical import IdentityHasher
from krowlspider.views.frontier import unread_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SECONDS = 300.0
_MEGABYTES = 1024
_LEAST_MEGABYTES = 64
# Nice value of the process: a crawl on the same machine goes first.
_NICE = 10
# Pairs of a frontier between two looks at the clock.
_LOOKED_AT = 5000
_INTERRUPTED = 130
# Formats by the ends of the names of files.
_ENDINGS = {"": "table", ".txt": "table", ".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
_FORMATS = tuple(dict.fromkeys(_ENDINGS.values()))


class Command(Program):
    _query: Run | None = None

    def syntax(self) -> str:
        return '<JOBDIR>... "<SELECT ...>" [options]'

    def short_desc(self) -> str:
        return "Ask a crawl in SQL"

    def long_desc(self) -> str:
        return (
            "Ask crawls in SQL (DuckDB), while they run too. Tables of the archive are those of"
            f" `scrapy catalogue`: {', '.join([*TABLES, *SUMS])}. Tables of the frontier, as it is"
            f' now: {", ".join(LIVE)}. FETCH is a word of SQL: write "fetch", or capture. SHOW'
            " TABLES and DESCRIBE TABLE say more. Instead of a JOBDIR, the folder of a catalogue"
            " will do. - reads the SQL from standard input. Nothing is changed."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE", default=STDIO, help="write to FILE (default: stdout)"
        )
        parser.add_argument(
            "--format",
            choices=_FORMATS,
            help="format of the output (default: by the ending of FILE, or table)",
        )
        parser.add_argument(
            "--timeout", metavar="SECONDS", type=float, default=_SECONDS,
            help=f"end the query after so many seconds ({_SECONDS:g})",
        )  # fmt: skip
        parser.add_argument(
            "--memory", metavar="MB", type=int, default=_MEGABYTES,
            help=f"end the query if it needs more memory ({_MEGABYTES})",
        )  # fmt: skip

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        os.nice(_NICE)
        try:
            super().run(args, opts)
        finally:
            if self._query is not None and self._query.is_alive:
                self._leave(sys.exc_info()[0])

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        paths, text, kind = self._checked(args, opts)
        limits = QueryLimits(opts.timeout, opts.memory * 1_000_000)
        statement = checked(text, SCHEMAS)
        made_of = {**ALIASES, **SUMS}
        tables = frozenset(made_of.get(each, each) for each in statement.tables)
        validate(offline(self.settings))
        need("pyarrow", "sql")
        begun = time.monotonic()
        end = begun + limits.seconds
        catalogue = self._catalogue(paths, tables & TABLES.keys())
        with scratch_folder() as scratch:
            frontier = self._frontier(paths, tables & LIVE.keys(), scratch, end)
            connection = database(limits.memory, scratch, catalogue, frontier)
            used = time.monotonic() - begun
            self._query = Run(
                connection, statement.text, limits, statement.tables, used, views=statement.views
            )
            with _output(kind, opts.output) as output:
                self._query.each(output.begin, output.write)
                output.end()
            connection.close()

    def _checked(self, args: list[str], opts: argparse.Namespace) -> tuple[list[Path], str, str]:
        """Return the folders, the SQL and the format of a command line.

        :raises KrowlError: it is wrong
        :raises UsageError: it lacks a folder or the SQL
        """
        if len(args) < 2:
            raise UsageError(f"scrapy sql {self.syntax()}")
        *names, text = args
        if not opts.timeout > 0:
            raise KrowlError(f"--timeout {opts.timeout:g}: give more than 0 seconds")
        if opts.memory < _LEAST_MEGABYTES:
            raise KrowlError(f"--memory {opts.memory}: give at least {_LEAST_MEGABYTES} MB")
        kind = opts.format or _format_of(opts.output)
        if kind == "parquet" and opts.output == STDIO:
            raise KrowlError("--format parquet needs a file: give -o FILE")
        if text == STDIO:
            text = _read(read_lines(STDIO))
        paths = [Path(name) for name in names]
        if len(paths) != len({path.resolve() for path in paths}):
            raise KrowlError("a folder is given twice: its rows would count twice")
        for path in paths:
            if not path.is_dir():
                raise KrowlError(f"{path} is no folder: give the JOBDIR of a crawl, then the SQL")
        _check_names(paths)
        return paths, text, kind

    def _catalogue(self, paths: list[Path], tables: Iterable[str]) -> dict[str, list[Path]]:
        """Return the files of tables of the archive.

        :raises KrowlError: a crawl has no catalogue, or none with this table
        """
        found: dict[str, list[Path]] = {table: [] for table in tables}
        for path in paths if found else ():
            if (folder := catalogue_in(path)) is None:
                way = scrapy_with("catalogue", path)
                raise KrowlError(
                    f"{path} has no catalogue, which the query reads: make it, while the crawl runs"
                    f" too: {way}"
                )
            for table in found:
                found[table] += files_of(folder, table)
            if waiting := missing(path, folder):
                way = scrapy_with("catalogue", path)
                print(
                    f"krowlspider: {counted(waiting, 'WARC file')} not in the catalogue yet: {way}",
                    file=sys.stderr,
                )
        if "link" in found and not found["link"]:
            way = scrapy_with("catalogue", paths[0], "--links")
            raise KrowlError(f"the catalogue has no links: make it with them: {way}")
        return found

    def _frontier(
        self, paths: Iterable[Path], tables: Iterable[str], scratch: Path, end: float
    ) -> dict[str, Path]:
        """Return the files of tables of the frontier, which are written to ``scratch``."""
        parts = list(dict.fromkeys(part for table in sorted(tables) for part in PARTS[table]))
        if not parts:
            return {}
        files, source = FrontierFiles(scratch), 0
        for path in paths:
            for folder in processes_in(path) or [JobFolder.existing(str(path))]:
                head = folder.head()
                policy = delays_of_stopped(head, self.settings)
                frontier = FrontierSource(source, crawl_of(path), IdentityHasher(head.seed), policy)
                for part, pairs in self._pairs(folder, parts):
                    files.add(frontier, part, _until(end, pairs))
                source += 1
        if files.left_out:
            self.complain(unread_rows(files.left_out), FOUND_WRONG)
        return files.close()

    def _pairs(
        self, folder: JobFolder, parts: list[str]
    ) -> Iterator[tuple[str, Iterable[tuple[bytes, bytes]]]]:
        """Yield the pairs of each part of a frontier; a running crawl is asked for them.

        :raises JobError: it cannot be read
        """
        try:
            with ExitStack() as stack:
                if not is_writable(folder.path):
                    folder = stack.enter_context(readable_copy(folder.path))
                head = folder.take()
                stack.callback(folder.leave)
                if not is_there(folder.frontier):
                    raise JobError(gone(folder.path))
                store = stack.enter_context(closing(LevelStore(folder.frontier)))
                check_owner(store, head.seed, head.ring)
                yield from ((part, RANGES[part](store)) for part in parts)
        except JobInUseError as error:
            with reached(error) as crawl:
                copy = crawl.copy_frontier(token_of(error, self.settings))
            if copy.parent != error.path.resolve() or not copy.name.startswith(COPY):
                raise JobError(
                    f"JOBDIR {error.path} is that of another crawl than the one asked"
                ) from error
            try:
                with closing(LevelStore(copy / "frontier")) as store:
                    yield from ((part, RANGES[part](store)) for part in parts)
            finally:
                shutil.rmtree(copy, ignore_errors=True)

    def _leave(self, kind: type[BaseException] | None) -> None:
        """End the process with a query in it that does not stop."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            print("krowlspider: interrupted", file=sys.stderr)
            self.exitcode = _INTERRUPTED
        sys.stderr.flush()
        os._exit(self.exitcode or FOUND_WRONG)


def _format_of(name: str) -> str:
    """Return the format of a file by its ending.

    :raises KrowlError: no format has that
    """
    path = Path(name)
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending not in _ENDINGS or (ending == ".parquet" and path.suffix == ".gz"):
        known = ", ".join(filter(None, _ENDINGS))
        raise KrowlError(f"-o {name}: {path.suffix} is no format: give {known}, or --format")
    return _ENDINGS[ending]


def _check_names(paths: Iterable[Path]) -> None:
    """:raises KrowlError: two crawls have one name, by which their rows could not be told apart"""
    named: dict[str, Path] = {}
    for path in paths:
        if (other := named.setdefault(name := crawl_of(path), path)) != path:
            raise KrowlError(
                f"{other} and {path} are both called {name!r}, so the column crawl would not tell"
                " their rows apart: rename one of the folders, or give its catalogue another name:"
                f" {scrapy_with('catalogue', path, '-o', 'NEWDIR', '--crawl', 'NAME')}"
            )


def _read(lines: Iterable[bytes]) -> str:
    """Return the SQL of a file, as far as one may have."""
    text = bytearray()
    for line in lines:
        text += line
        if len(text) > 4 * STATEMENT_MAX:
            break
    return text.decode(errors="replace")


def _until(end: float, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs.

    :raises KrowlError: the time is over
    """
    for count, pair in enumerate(pairs):
        if not count % _LOOKED_AT and time.monotonic() > end:
            raise KrowlError(
                "the frontier was not read within the time limit: give more time with --timeout"
            )
        yield pair


@contextmanager
def _output(kind: str, name: str) -> Iterator[Output]:
    """Open what the result is written to; a file appears once it is whole.

    :raises KrowlError: it cannot be written
    """
    if kind == "parquet":
        try:
            with write_durably(Path(name)) as file:
                yield ParquetOutput(file)
        except OSError as error:
            raise KrowlError(f"{name} cannot be written: {error.strerror or error}") from error
        return
    made: Mapping[str, Callable[[IO[str]], Output]] = {
        "table": TableOutput,
        "csv": partial(CsvOutput, clean=harmless),
        "jsonl": JsonOutput,
    }
    with written(name) as text:
        yield made[kind](text)
