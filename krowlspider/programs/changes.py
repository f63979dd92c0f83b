"""``scrapy changes``: which pages changed between two fetches, by the archive of a crawl."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType
from scrapy.exceptions import UsageError

from krowlspider.archive.cdxj import INDEX, WARC, IndexLine
from krowlspider.archive.disk import OPEN
from krowlspider.archive.indexes import index_open_files, indexes_in, merged
from krowlspider.archive.uploads import uploaded
from krowlspider.changes.pairs import (
    BODY_MAX,
    GONE,
    READ_MAX,
    Body,
    Compared,
    VersionPair,
    body_in,
    compared,
    in_time,
    pairs_of,
)
from krowlspider.config.validation import offline, validate
from krowlspider.errors import KrowlError, counted, scrapy_with
from krowlspider.fetch.http.decode import decoded
from krowlspider.programs.program import FOUND_WRONG, STDIO, Program, refuse_options, written
from krowlspider.programs.warc import files_without_index, folder_of
from krowlspider.views import captures

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence


class _Fetch(Struct):
    """A fetch, and the place of its record: final name of the WARC file, offset of its member."""

    time: str
    status: int
    digest: str | None
    file: str
    offset: int


class _Change(Struct):
    """The values of a line; `docs/recrawl.md` says what they are."""

    url: str
    before: _Fetch
    after: _Fetch
    fetched_between: int
    unchanged_until: str
    media_type: str | None
    similarity: float | None
    text_changed: bool | None
    truncated: bool | None
    diff: str | UnsetType | None = UNSET
    diff_cut: bool | UnsetType | None = UNSET


def change_line(pair: VersionPair, compared: Compared, *, with_difference: bool) -> str:
    """Return the line of a change, without its line break."""
    change = _Change(
        pair.after.url,
        _fetch(pair.before),
        _fetch(pair.after),
        pair.fetched_between,
        _time(pair.unchanged_until),
        compared.media_type,
        compared.similarity,
        compared.text_changed,
        compared.is_truncated,
    )
    if with_difference:
        change.diff, change.diff_cut = compared.difference or (None, None)
    return msgspec.json.encode(change).decode()


def _fetch(line: IndexLine) -> _Fetch:
    return _Fetch(
        _time(line.timestamp),
        int(line.status),
        line.digest or None,
        line.filename.removesuffix(OPEN),
        line.offset,
    )


def _time(stamp: str) -> str:
    """Return 14 digits as in ISO 8601; other text, as in an index of another tool, as it is."""
    if len(stamp) != 14 or not stamp.isdigit():
        return stamp
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:]}Z"


_DECODE = partial(decoded, cap=BODY_MAX)
# Faults of the archive that are named; further ones are counted.
_NAMED = 1000


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR> [--since DATE] [--host NAME] [--diff]"

    def short_desc(self) -> str:
        return "Print each change of a page between two fetches, as JSON"

    def long_desc(self) -> str:
        return (
            "Print a line of JSON for each change of a page between two of its fetches, by the"
            " archive: another body, or gone, or back again. The order is that of time. Instead of"
            " a JOBDIR, a folder of WARC files with their indexes will do."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--since", metavar="DATE", help="only changes found since then, UTC: 2026-01-31"
        )
        parser.add_argument(
            "--host", metavar="NAME", help="only pages of one host; without a port, at all ports"
        )
        parser.add_argument(
            "--diff", action="store_true", help="add the unified difference of the visible text"
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        refuse_options("changes", args)
        if len(args) != 1:
            raise UsageError(f"scrapy changes {self.syntax()}")
        if opts.host is not None and (not opts.host or "/" in opts.host):
            raise KrowlError(
                f"--host {opts.host} fits no page: give a name without scheme and path"
            )
        validate(offline(self.settings))
        since = "" if opts.since is None else captures.stamp(opts.since)
        folder = folder_of(self.settings, args[0])
        with TemporaryDirectory(prefix="krowlspider-changes-") as name:
            scratch = Path(name)
            indexes, away = self._indexes(folder, args[0], scratch)
            versions = _Versions(folder, indexes, away)
            lines = merged(indexes, scratch)
            pairs = in_time(pairs_of(lines, since, (opts.host or "").lower()), scratch)
            with written(STDIO) as file:
                for line in versions.lines(pairs, with_difference=opts.diff):
                    file.write(f"{line}\n")
        for fault in versions.faults:
            self.complain(fault, FOUND_WRONG)
        if versions.missed:
            self.complain(_places(folder, versions.missed), FOUND_WRONG)
        if versions.unknown:
            count = counted(versions.unknown, "change")
            self.complain(f"not compared, for want of a body: {count}", FOUND_WRONG)

    def _indexes(self, folder: Path, name: str, scratch: Path) -> tuple[list[Path], set[str]]:
        """Return the indexes of a folder, with those that are made of its open files, and the names
        of the files that are gone from it."""
        # First these: a file that is finished meanwhile is in both, and counts once.
        still_open = index_open_files(folder, scratch)
        found = indexes_in(folder)
        finished = {index.name for index in found.there}
        still_open = [
            index
            for index in still_open
            if index.name.removesuffix(f"{WARC}{OPEN}{INDEX}") + INDEX not in finished
        ]
        if found.missing:
            count, way = len(found.missing), scrapy_with("warc", "index", name)
            what = f"not read, for want of an index: {counted(count, 'file')}"
            self.complain(f"{what}: {way}", FOUND_WRONG)
        if found.damaged:
            count, way = len(found.damaged), scrapy_with("warc", "check", name)
            what = f"read as far as they can be read: {counted(count, 'damaged file')}"
            self.complain(f"{what}: {way}", FOUND_WRONG)
        if others := files_without_index(folder):
            self.complain(others, FOUND_WRONG)
        return [*found.there, *still_open], set(found.away)


def _places(folder: Path, gone: set[str]) -> str:
    """Return how many files are gone from a folder, and where those are that were uploaded."""
    there = uploaded(folder)
    places = {there[name].rpartition("/")[0] for name in gone if name in there}
    return captures.left_out(folder, len(gone), places, 0)


class _Versions:
    """Reads and compares the versions of pages.

    ``away`` are the names of files that are gone from the folder, ``missed`` those of them that a
    change is in. ``faults`` are other reasons why a body could not be read, ``unknown`` counts the
    changes without one.
    """

    def __init__(self, folder: Path, indexes: Sequence[Path], away: set[str]) -> None:
        self._folder = folder
        self._indexes = indexes
        self._away = away
        self.missed: set[str] = set()
        self.faults: dict[str, None] = {}
        self.unknown = 0

    def lines(self, pairs: Iterator[VersionPair], *, with_difference: bool) -> Iterator[str]:
        for pair in pairs:
            found = self._compared(pair, with_difference=with_difference)
            if found is not None:
                yield change_line(pair, found, with_difference=with_difference)

    def _compared(self, pair: VersionPair, *, with_difference: bool) -> Compared | None:
        """Return how two versions differ, as far as it is known; None if they do not."""
        if not GONE.isdisjoint((pair.before.status, pair.after.status)):
            return Compared()
        if away := self._away & {pair.before.filename, pair.after.filename}:
            self.missed |= away
            self.unknown += 1
            return Compared()
        try:
            before, after = self._body(pair.before), self._body(pair.after)
        except (captures.NotThereError, captures.DamagedError) as error:
            self.unknown += 1
            if len(self.faults) < _NAMED:
                self.faults[str(error)] = None
            return Compared()
        return compared(before, after, with_difference=with_difference)

    def _body(self, line: IndexLine) -> Body:
        fields, block = captures.stored(self._folder, self._indexes, line, READ_MAX)
        return body_in(fields, block, _DECODE)
