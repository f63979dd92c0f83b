"""``scrapy warc``: index, check, mend, search, pack and upload the WARC files of a crawl."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from tqdm import tqdm

from krowlspider import __version__
from krowlspider.archive.cdxj import WARC
from krowlspider.archive.check import check_folder
from krowlspider.archive.disk import OPEN, lock_directory
from krowlspider.archive.errors import ArchiveError, RecordError
from krowlspider.archive.indexes import indexes_in, make_indexes, merge
from krowlspider.archive.mend import mend_folder
from krowlspider.archive.upload import Destination
from krowlspider.archive.uploader import upload_folder
from krowlspider.archive.uploadnotes import uploaded
from krowlspider.archive.uploadstore import BucketError
from krowlspider.archive.wacz import pack
from krowlspider.commands import warccat, warctext
from krowlspider.commands.crawl import BAD_INPUT, STORAGE_FAILED
from krowlspider.commands.files import STDIO, drop_output, written
from krowlspider.errors import JobError, KrowlError, lacks_room
from krowlspider.job import warc_folder
from krowlspider.jobfolder import JobFolder
from krowlspider.validation import validate

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from krowlspider.archive.uploader import UploadStats

# Something is wrong with what was looked at, or it is not there; the command itself went well.
FOUND_WRONG = 1
_MERGED = "index.cdxj"
# Each word, what it is followed by, and the options that go with it.
_WORDS = {
    "index": ("<JOBDIR> [-o FILE]", {"output"}),
    "check": ("<JOBDIR>", set[str]()),
    "mend": ("<JOBDIR>", set[str]()),
    "cat": ("<URL> <JOBDIR> [--all | --at DATE] [--payload]", {"all", "at", "payload"}),
    "wacz": ("<JOBDIR> -o FILE", {"output"}),
    "upload": ("<JOBDIR>", set[str]()),
}


class Command(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return f"<{'|'.join(_WORDS)}> ... <JOBDIR> [options]"

    def short_desc(self) -> str:
        return "Index, check, mend, search, pack and upload a crawl's WARC files"

    def long_desc(self) -> str:
        lines = [f"scrapy warc {word} {rest}" for word, (rest, _) in _WORDS.items()]
        return "; ".join(lines) + ". Instead of a JOBDIR, a folder of WARC files will do."

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("-o", "--output", metavar="FILE", help="what index and wacz write")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--all", action="store_true", help="list all captures of the URL")
        which.add_argument("--at", metavar="DATE", help="the capture nearest to a date, in UTC")
        parser.add_argument(
            "--payload",
            action="store_true",
            help="the body alone, without its transfer and content codings",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            word, *names = self._checked(args, opts)
            getattr(self, f"_{word}")(*names, opts)
        except BrokenPipeError:
            # Whoever read it has read enough.
            drop_output()
        except (KrowlError, ArchiveError, RecordError, OSError) as error:
            full = lacks_room(error)
            way = ": make room on its disk, and do it again" if full else ""
            print(f"krowlspider: {_told(error)}{way}", file=sys.stderr)
            self.exitcode = STORAGE_FAILED if full else BAD_INPUT

    def _checked(self, args: list[str], opts: argparse.Namespace) -> list[str]:
        """:raises KrowlError: the command line or a setting is wrong
        :raises UsageError: there are not as many words as there should be
        """
        for name in args:
            if name.startswith("-"):
                raise KrowlError(
                    f"{name.partition('=')[0]} is not an option: scrapy warc --help lists them"
                )
        if not args or args[0] not in _WORDS:
            asked = f", not {args[0]!r}" if args else ""
            raise KrowlError(f"say what to do, one of {', '.join(_WORDS)}{asked}")
        form, options = _WORDS[args[0]]
        if len(args) != 1 + form.count("<"):
            raise UsageError(f"scrapy warc {args[0]} {form}")
        for name in ("output", "all", "at", "payload"):
            given = getattr(opts, name)
            if given == "":
                raise KrowlError(f"--{name} is given nothing")
            if given and name not in options:
                raise KrowlError(
                    f"--{name} does not go with {args[0]}: scrapy warc {args[0]} {form}"
                )
        assert self.settings is not None
        checked = self.settings.copy()
        # Nothing is fetched here.
        checked.set("KROWL_CONTACT", "nobody@example.org", priority="cmdline")
        validate(checked)
        return args

    def _index(self, name: str, opts: argparse.Namespace) -> None:
        folder = self._folder(name)
        out = _writable(opts.output or folder / _MERGED)
        _index_missing(folder)
        indexes = indexes_in(folder).there
        with bar("merging", _size(indexes)) as told:
            count = merge(indexes, out, told)
        self._say(f"{count:,} captures of {len(indexes):,} files in {out}")

    def _check(self, name: str, _: argparse.Namespace) -> None:
        folder = self._folder(name)
        with bar("checking", _size(folder.glob("*.warc.gz"))) as told:
            report = check_folder(folder, told)
        self._say(warctext.checked(report, folder))
        if report.problem_count:
            self.exitcode = FOUND_WRONG

    def _mend(self, name: str, _: argparse.Namespace) -> None:
        folder = self._folder(name)
        try:
            lock = lock_directory(folder)
        except ArchiveError as error:
            raise KrowlError(f"a crawl is writing to {folder}: stop it first") from error
        try:
            with bar("mending", _size(folder.glob(f"*.warc.gz{OPEN}"))) as told:
                report = mend_folder(folder, told)
            made = _index_missing(folder)
        finally:
            os.close(lock)
        self._say(warctext.mended(report, made))

    def _cat(self, url: str, name: str, opts: argparse.Namespace) -> None:
        folder = self._folder(name)
        wanted = warccat.wanted(url)
        indexes = indexes_in(folder)
        if indexes.missing:
            print(
                f"krowlspider: not looked into, for want of an index: {len(indexes.missing):,} files:"
                f" scrapy warc index {quote(name)}",
                file=sys.stderr,
            )
        try:
            found = warccat.captures(indexes.there, wanted)
            if opts.all:
                self._say(warctext.captures(found))
                return
            chosen = warccat.choose(found, wanted, opts.at)
            content = warccat.read(folder, indexes.there, chosen, payload=opts.payload)
        except warccat.NotThereError as error:
            print(f"krowlspider: {error}", file=sys.stderr)
            self.exitcode = FOUND_WRONG
            return
        with written(STDIO):
            sys.stdout.buffer.write(content)

    def _wacz(self, name: str, opts: argparse.Namespace) -> None:
        folder = self._folder(name)
        if not opts.output:
            raise KrowlError("say what to write: scrapy warc wacz <JOBDIR> -o FILE.wacz")
        out = _writable(opts.output)
        _index_missing(folder)
        warcs = sorted(folder.glob("*.warc.gz"))
        if not warcs:
            raise KrowlError(f"{folder} has no finished WARC file: there is nothing to pack")
        packed = pack(
            warcs,
            out,
            software=f"krowlspider {__version__}",
            created=time.time(),
            decode=warccat.decoded,
            watch=bar,
        )
        self._say(f"{len(packed.warcs):,} files, {packed.pages:,} pages in {out}")
        left_out = _left_out(folder, {warc.name for warc in packed.warcs})
        if left_out:
            print(f"krowlspider: not in it: {left_out}", file=sys.stderr)
            self.exitcode = FOUND_WRONG

    def _upload(self, name: str, _: argparse.Namespace) -> None:
        folder = self._folder(name)
        assert self.settings is not None
        url = self.settings["KROWL_WARC_UPLOAD"]
        if url is None:
            raise KrowlError("say where to: -s KROWL_WARC_UPLOAD=s3://bucket/prefix")
        there = Destination.parse(url, self.settings["KROWL_WARC_UPLOAD_ENDPOINT"])
        delete = self.settings.getbool("KROWL_WARC_UPLOAD_DELETE")
        with tqdm(desc="uploading", unit=" files", disable=None, leave=False) as shown:

            def told(stats: UploadStats, left: int) -> None:
                shown.total, shown.n = stats.files + left, stats.files
                shown.refresh()

            try:
                report = upload_folder(folder, there, delete=delete, told=told)
            except BucketError as error:
                raise KrowlError(f"{there.url()}: {error}") from error
        self._say(f"{report.files:,} files uploaded to {there.url()}, {report.left:,} left")
        if report.left:
            self.exitcode = FOUND_WRONG

    def _folder(self, name: str) -> Path:
        """Where the WARC files are, of a crawl or by themselves.

        :raises KrowlError: there are none
        """
        assert self.settings is not None
        path = Path(name)
        with suppress(JobError):
            folder = warc_folder(self.settings, JobFolder.existing(name).path)
            if not folder.is_dir():
                raise KrowlError(f"{path} has no WARC files yet: there is no {folder}")
            return folder
        if any(True for pattern in ("*.warc.gz*", "*.cdxj") for _ in path.glob(pattern)):
            return path
        raise KrowlError(
            f"{path} is neither a crawl's folder nor one of WARC files: give the JOBDIR of a crawl"
        )

    def _say(self, text: str) -> None:
        with written(STDIO) as file:
            print(text, file=file)


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar on standard error of a step of ``total`` bytes, if that is a terminal."""
    with tqdm(
        total=total, desc=what, unit="B", unit_scale=True, disable=None, leave=False
    ) as shown:
        yield shown.update


def _index_missing(folder: Path) -> int:
    """Write the indexes that are not there; how many."""
    missing = indexes_in(folder).missing
    with bar("indexing", _size(missing)) as told:
        make_indexes(missing, told)
    return len(missing)


def _left_out(folder: Path, packed: set[str]) -> str:
    """What is not among the files that were packed, and why; empty when all are."""
    there = uploaded(folder)
    here = {path.name for path in folder.glob(f"*{WARC}")}
    known = {*indexes_in(folder).away, *(name for name in there if name.endswith(WARC))}
    away = known - here - packed
    places = {there[name].rpartition("/")[0] for name in away if name in there}
    still_open = len(list(folder.glob(f"*{WARC}{OPEN}")))
    return warctext.left_out(folder, len(away), places, still_open + len(here - packed))


def _size(paths: Iterable[Path]) -> int:
    """Bytes of those that are still there."""
    size = 0
    for path in paths:
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def _writable(name: str | Path) -> Path:
    """:raises KrowlError: no file of this name can be written"""
    path = Path(name)
    if path.is_dir():
        raise KrowlError(f"{path} cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise KrowlError(f"{path} cannot be written: there is no folder {path.parent}")
    return path


def _told(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
