"""``scrapy warc``: index, check, count, mend, search, pack and upload the WARC files of a crawl."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from argparse import RawDescriptionHelpFormatter
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyHelpFormatter
from scrapy.exceptions import UsageError
from tqdm import tqdm

from krowlspider import __version__
from krowlspider.archive.cdxj import WARC
from krowlspider.archive.dedup import build, source_at
from krowlspider.archive.disk import OPEN, ArchiveError, RecordError, lock_directory
from krowlspider.archive.indexes import (
    count_gemini,
    index_open_files,
    indexes_in,
    make_indexes,
    merge,
)
from krowlspider.archive.tools.check import check_folder
from krowlspider.archive.tools.extract import CaptureChoice, copy_originals, extract
from krowlspider.archive.tools.inputs import count_files, files_in, refuse_names
from krowlspider.archive.tools.mend import mend_folder
from krowlspider.archive.tools.replay import ended_by_signals, find_wayback, replayed
from krowlspider.archive.tools.wacz import PackageFacts, pack
from krowlspider.archive.uploader import BucketError, UploadStats, upload_folder
from krowlspider.archive.uploads import Destination, uploaded
from krowlspider.archive.write.series import compressor
from krowlspider.config.validation import offline, validate
from krowlspider.errors import JobError, KrowlError, counted, scrapy_with
from krowlspider.fetch.http.decode import decoded
from krowlspider.job.commits import read_synced
from krowlspider.job.folder import JobFolder, processes_in, tree_of
from krowlspider.job.parts import process_warc_folder, warc_folder
from krowlspider.programs.program import FOUND_WRONG, STDIO, Program, refuse_options, written
from krowlspider.programs.warc_serve import HOST, PORT, serve
from krowlspider.views import captures

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from scrapy.settings import Settings

    from krowlspider.archive.reading import Synced

_MERGED = "index.cdxj"
_PORT_MAX = 65535
# Bytes of a decoded body: a hundred times the limit of a crawl by default.
_DECODE = partial(decoded, cap=1_000_000_000)
# What extract chooses by: the captures that it copies.
_CHOICE = {
    "--url PREFIX": "of URLs that begin so",
    "--surt PREFIX": "of URLs whose SURT begins so, such as 'org,example)/news'",
    "--host NAME": "of one host; without a port, at all ports",
    "--mime TYPE": "of a media type, such as text/html, or text/ for all texts",
    "--status N": "of a status, such as 200, or of Gemini 20",
    "--from DATE": "of this date in UTC or later",
    "--to DATE": "of this date in UTC or earlier",
}
# The form of some of these; another value would fit no capture.
_FORMS = {
    "host": (re.compile("[^/]+"), "give a name without scheme and path"),
    "mime": (re.compile("[^/]+/.*"), "give a media type such as text/html, or text/ for all texts"),
    "status": (re.compile("[0-9]{2,3}"), "give three digits, such as 200, or two of Gemini"),
}
# After an argument that may be repeated.
_MORE = ">..."
# The usage of each subcommand. It names all options that the subcommand accepts.
_WORDS = {
    "index": "<JOBDIR> [-o FILE]",
    "check": "<JOBDIR>",
    "stats": "<JOBDIR> [--json]",
    "extract": f"<JOBDIR> -o FOLDER [{'] ['.join(_CHOICE)}]",
    "mend": "<JOBDIR>",
    "cat": "<URL> <JOBDIR> [--all | --at DATE] [--payload]",
    "wacz": "<JOBDIR>... -o FILE [--title TEXT] [--description TEXT] [--main-page URL] [--force]",
    "replay": "<JOBDIR>...",
    "serve": "<JOBDIR>... [--port N] [--bind ADDRESS] [--cors ORIGIN]",
    "dedup-index": "<SOURCE>... -o FOLDER",
    "upload": "<JOBDIR> [--verify]",
}
_DOES = {
    "index": "merge the indexes of all finished files into one, for pywb",
    "check": "check structure, lengths, digests and index of every finished file",
    "stats": "count records, hosts, media types, statuses and bytes of the finished files",
    "extract": "copy chosen captures, and what belongs to them, into new files",
    "mend": "finish the files that a killed crawl left open, salvage damaged ones",
    "cat": "print the newest stored response for a URL",
    "wacz": "pack the finished files into one, for replay",
    "replay": "serve the finished files to a browser on this machine, with pywb",
    "serve": "answer CDX queries of waybacks about the files, while a crawl writes them too",
    "dedup-index": "index the bodies of crawls for KROWL_WARC_DEDUP of later ones",
    "upload": "upload the files that KROWL_WARC_UPLOAD has not uploaded yet",
}


class _Help(ScrapyHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the lines of the description."""


class Command(Program):
    def syntax(self) -> str:
        return f"<{'|'.join(_WORDS)}> ... <JOBDIR> [options]"

    def short_desc(self) -> str:
        return "Index, check, count, extract, mend, print, pack and upload a crawl's WARC files"

    def long_desc(self) -> str:
        lines = [f"  scrapy warc {word} {_WORDS[word]}\n      {_DOES[word]}" for word in _WORDS]
        lines.append("Instead of a JOBDIR, a folder of WARC files will do.")
        lines.append(
            "Of scrapy node, replay and serve take the JOBDIR; the others, a process (p1)."
        )
        return "\n".join(lines)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.formatter_class = _Help
        parser.add_argument(
            "-o",
            "--output",
            metavar="FILE",
            help="file that index and wacz write, or folder of extract and dedup-index",
        )
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--all", action="store_true", help="list all captures of the URL")
        which.add_argument(
            "--at",
            metavar="DATE",
            help="the capture nearest to a date in UTC: 2026-01-31, or 2026-01-31T12:00:00",
        )
        parser.add_argument(
            "--payload",
            action="store_true",
            help="the body alone, without its transfer and content codings",
        )

        parser.add_argument("--json", action="store_true", help="print all counts of stats as JSON")

        for choice, text in _CHOICE.items():
            option, metavar = choice.split()
            parser.add_argument(option, metavar=metavar, help=f"extract captures {text}")

        packing = "of a WACZ"
        parser.add_argument("--title", metavar="TEXT", help=f"title {packing}")
        parser.add_argument("--description", metavar="TEXT", help=f"description {packing}")
        parser.add_argument("--main-page", metavar="URL", help=f"first page {packing}; else a seed")
        parser.add_argument("--force", action="store_true", help="overwrite the file of a WACZ")
        parser.add_argument(
            "--verify", action="store_true", help="compare uploaded files with the store once more"
        )

        parser.add_argument("--port", metavar="N", help=f"port of serve, instead of {PORT}")
        parser.add_argument(
            "--bind", metavar="ADDRESS", help=f"address at which serve listens, instead of {HOST}"
        )
        parser.add_argument(
            "--cors",
            metavar="ORIGIN",
            help="site whose pages may read the answers; * for any",
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        word, *names = self._checked(args, opts)
        action = getattr(self, f"_{word.replace('-', '_')}")
        if _MORE in _WORDS[word]:
            action(names, opts)
        else:
            action(*names, opts)

    def _checked(self, args: list[str], opts: argparse.Namespace) -> list[str]:
        """Return ``args`` once they are checked: a subcommand and its positional arguments.

        :raises KrowlError: the command line or a setting is wrong
        :raises UsageError: the number of positional arguments is wrong
        """
        refuse_options("warc", args)
        if not args or args[0] not in _WORDS:
            asked = f", not {args[0]!r}" if args else ""
            raise KrowlError(f"give one of the words {', '.join(_WORDS)}{asked}")
        form = _WORDS[args[0]]
        needed = 1 + form.count("<")
        if len(args) < needed or (len(args) > needed and _MORE not in form):
            raise UsageError(f"scrapy warc {args[0]} {form}")
        for option in sorted({option for each in _WORDS.values() for option in _options(each)}):
            given = getattr(opts, option.strip("-").replace("-", "_"))
            if given == "":
                raise KrowlError(f"{option} is given nothing")
            if given and option not in _options(form):
                raise KrowlError(
                    f"{option} does not go with {args[0]}: scrapy warc {args[0]} {form}"
                )
        validate(offline(self.settings))
        return args

    def _index(self, name: str, opts: argparse.Namespace) -> None:
        folder = self._folder(name)
        out = _writable(opts.output or folder / _MERGED)
        damaged = _index_missing(folder)[1]
        indexes = indexes_in(folder).there
        with bar("merging", _size(indexes)) as count_bytes:
            count = merge(indexes, out, count_bytes)
        self.say(f"{counted(count, 'capture')} of {counted(len(indexes), 'file')} in {out}")
        if still_open := len(list(folder.glob(f"*{WARC}{OPEN}"))):
            self.complain(f"not in it: {captures.left_out(folder, 0, (), still_open)}", 0)
        self._complain_of_damage(damaged)
        self._complain_of_other_forms(FOUND_WRONG, folder)

    def _check(self, name: str, _: argparse.Namespace) -> None:
        folder = self._folder(name)
        with bar("checking", _size(files_in(folder))) as count_bytes:
            report = check_folder(folder, count_bytes)
        self.say(captures.checked(report, folder))
        if report.problem_count:
            self.exitcode = FOUND_WRONG

    def _stats(self, name: str, opts: argparse.Namespace) -> None:
        files = files_in(self._folder(name))
        with bar("counting", _size(files)) as count_bytes:
            stats = count_files(files, _DECODE, count_bytes)
        self.say(json.dumps(vars(stats)) if opts.json else captures.counts(stats))
        for file, offset, reason in stats.damaged:
            self.complain(
                f"{file} at byte {offset}: {reason}; what cannot be read is not counted",
                FOUND_WRONG,
            )

    def _extract(self, name: str, opts: argparse.Namespace) -> None:
        files = files_in(self._folder(name))
        if not opts.output:
            raise KrowlError("give a new folder: scrapy warc extract <JOBDIR> -o FOLDER")
        begin, end = getattr(opts, "from"), opts.to
        for option, (form, way) in _FORMS.items():
            given = getattr(opts, option)
            if given and not form.fullmatch(given):
                raise KrowlError(f"--{option} {given} fits no capture: {way}")
        choice = CaptureChoice(
            url=opts.url or "",
            surt=opts.surt or "",
            host=(opts.host or "").lower(),
            mime=(opts.mime or "").lower(),
            status=opts.status or "",
            begin=captures.stamp(begin) if begin else "",
            end=captures.stamp(end, latest=True) if end else "",
        )
        compress = compressor(self.settings["KROWL_WARC_COMPRESSION"])
        out = Path(opts.output)
        try:
            out.mkdir()
        except FileExistsError as error:
            raise KrowlError(f"{out} exists: give a new folder") from error
        try:
            with bar("extracting", 3 * _size(files)) as count_bytes:
                found = extract(files, choice, out, compress, decode=_DECODE, advance=count_bytes)
        except BaseException:
            # The same command can be given again.
            shutil.rmtree(out, ignore_errors=True)
            raise
        self.say(
            f"{counted(found.captures, 'capture')}, {counted(found.records, 'record')}"
            f" in {counted(len(found.files), 'file')} in {out}"
        )
        if found.missing:
            what = "without their original: it is not in the input, or they name none"
            self.complain(f"{counted(found.missing, 'revisit')} {what}", 0)
        for file, offset, reason in found.damaged:
            self.complain(
                f"{file} at byte {offset}: {reason}; what cannot be read is not copied", FOUND_WRONG
            )

    def _mend(self, name: str, _: argparse.Namespace) -> None:
        folder = self._folder(name)
        try:
            lock = lock_directory(folder)
        except ArchiveError as error:
            raise KrowlError(f"a crawl is writing to {folder}: stop it first") from error
        try:
            synced = _synced(name)
            with bar("mending", _size(folder.glob(f"*.warc.gz{OPEN}"))) as count_bytes:
                report = mend_folder(folder, count_bytes, synced=synced)
            made, damaged = _index_missing(folder)
        finally:
            os.close(lock)
        self.say(captures.mended(report, made))
        self._complain_of_damage(damaged)

    def _cat(self, url: str, name: str, opts: argparse.Namespace) -> None:
        wanted = captures.wanted(url)
        folder = self._folder(name)
        indexes = indexes_in(folder)
        if indexes.missing:
            count, way = len(indexes.missing), scrapy_with("warc", "index", name)
            self.complain(f"not searched, for want of an index: {counted(count, 'file')}: {way}", 0)
        if indexes.damaged:
            count, way = len(indexes.damaged), scrapy_with("warc", "check", name)
            what = f"searched as far as they can be read: {counted(count, 'damaged file')}"
            self.complain(f"{what}: {way}", 0)
        self._complain_of_other_forms(0, folder)
        try:
            with TemporaryDirectory(prefix="krowlspider-cat-") as scratch:
                content = self._capture(folder, indexes.there, wanted, Path(scratch), opts)
        except captures.NotThereError as error:
            self.complain(str(error), FOUND_WRONG)
            return
        with written(STDIO):
            sys.stdout.buffer.write(content)

    def _capture(
        self, folder: Path, finished: list[Path], url: str, scratch: Path, opts: argparse.Namespace
    ) -> bytes:
        """Return the list of captures, or the bytes of one, with those in open files."""
        with bar("reading open files", _size(folder.glob(f"*{WARC}{OPEN}"))) as count_bytes:
            indexes = [*finished, *index_open_files(folder, scratch, count_bytes)]
        found = captures.captures(indexes, url)
        if opts.all:
            return f"{captures.lines_of(found)}\n".encode()
        chosen = captures.choose(found, url, opts.at)
        if opts.payload:
            content, fault = captures.body(folder, indexes, chosen, _DECODE)
        else:
            content, fault = captures.read(folder, indexes, chosen)
        if fault:
            self.complain(f"{chosen.url}: {fault}", FOUND_WRONG)
        return content

    def _wacz(self, names: list[str], opts: argparse.Namespace) -> None:
        folder, *earlier = [self._folder(name) for name in names]
        if not opts.output:
            raise KrowlError("give the file to write: scrapy warc wacz <JOBDIR> -o FILE.wacz")
        out = _writable(opts.output)
        if out.exists() and not opts.force:
            raise KrowlError(f"{out} exists: give another name, or --force to overwrite it")
        page = opts.main_page or ""
        about = PackageFacts(
            opts.title or "", opts.description or "", page and captures.wanted(page)
        )
        damaged = [each for there in (folder, *earlier) for each in _index_missing(there)[1]]
        self._complain_of_other_forms(FOUND_WRONG, folder, *earlier)
        warcs = sorted(folder.glob("*.warc.gz"))
        if not warcs:
            raise KrowlError(f"{folder} has no finished WARC file: there is nothing to pack")
        others = [warc for there in earlier for warc in sorted(there.glob("*.warc.gz"))]
        refuse_names([*warcs, *others])
        with TemporaryDirectory(prefix=".packing-", dir=out.parent) as scratch:
            originals = copy_originals(warcs, list(indexes_in(folder).there), others, Path(scratch))
            packed = pack(
                [*warcs, *originals.files],
                out,
                software=f"krowlspider {__version__}",
                created=time.time(),
                decode=_DECODE,
                progress=bar,
                about=about,
            )
        of_others = f", {originals.copied:,} of them of other crawls" if originals.copied else ""
        self.say(
            f"{counted(len(packed.warcs), 'file')}, {counted(packed.captures, 'capture')}"
            f"{of_others}, {counted(packed.pages, 'page')} in {out}"
        )
        left_out = _left_out(folder, {warc.name for warc in packed.warcs})
        if left_out:
            self.complain(f"not in it: {left_out}", FOUND_WRONG)
        if originals.missing:
            words = scrapy_with("warc", "wacz", *names, "EARLIER...", "-o", "FILE")
            self.complain(
                f"not in it: the bodies of {counted(originals.missing, 'revisit')}, which other"
                f" crawls have: name their JOBDIRs: {words}",
                FOUND_WRONG,
            )
        self._complain_of_damage([*damaged, *packed.damaged])

    def _replay(self, names: list[str], _: argparse.Namespace) -> None:
        folders = [each for each in self._folders(names) if each.is_dir()]
        wayback = find_wayback(map(Path, names))
        if wayback is None:
            venv = quote(f"{names[0]}/replay")
            raise KrowlError(
                f"pywb is not installed: python3 -m venv {venv} && {venv}/bin/pip install pywb"
            )
        damaged = [each for folder in folders for each in _index_missing(folder)[1]]
        self._complain_of_damage(damaged)
        self._complain_of_other_forms(FOUND_WRONG, *folders)
        with TemporaryDirectory(prefix="krowlspider-replay-") as name, ended_by_signals():
            index = Path(name, _MERGED)
            indexes = [each for folder in folders for each in indexes_in(folder).there]
            with bar("merging", _size(indexes)) as count_bytes:
                count = merge(indexes, index, count_bytes)
            if of_gemini := count_gemini(index):
                self.complain(
                    f"not replayed, as pywb knows HTTP alone: {counted(of_gemini, 'capture')} of"
                    " Gemini: scrapy warc cat prints them",
                    self.exitcode,
                )
            with replayed(wayback, index, folders, Path(name)) as (url, process):
                self.say(f"{counted(count, 'capture')} at {url} (Ctrl-C ends it)")
                process.wait()
            raise KrowlError(f"pywb ended with exit code {process.returncode}")

    def _serve(self, names: list[str], opts: argparse.Namespace) -> None:
        folders = self._folders(names)
        port = opts.port or str(PORT)
        if not re.fullmatch("[0-9]{1,5}", port) or int(port) > _PORT_MAX:
            raise KrowlError(f"--port {port}: give 1 to {_PORT_MAX}, or 0 for a free one")
        there = [each for each in folders if each.is_dir()]
        damaged = [each for folder in there for each in _index_missing(folder)[1]]
        self._complain_of_damage(damaged)
        self._complain_of_other_forms(0, *there)

        def listens(url: str) -> None:
            self.say(f"{counted(len(folders), 'folder')} at {url}/cdx (Ctrl-C ends it)")

        host, origin = opts.bind or HOST, opts.cors or ""
        serve(folders, host=host, port=int(port), origin=origin, listens=listens)

    def _dedup_index(self, names: list[str], opts: argparse.Namespace) -> None:
        if not opts.output:
            raise KrowlError("give a new folder: scrapy warc dedup-index <SOURCE>... -o FOLDER")
        out = Path(opts.output)
        if out.exists():
            raise KrowlError(f"{out} exists: give a new folder")
        sources = [source_at(Path(name)) for name in names]
        size = sum(_size(source.indexes) for source in sources)
        with bar("reading", size) as count_bytes:
            built = build(sources, out, count_bytes)
        self.say(f"{counted(built.captures, 'capture')} in {out}")
        if built.left_out:
            self.complain(f"captures not in it: {built.left_out}", FOUND_WRONG)

    def _upload(self, name: str, opts: argparse.Namespace) -> None:
        folder = self._folder(name)
        url = self.settings["KROWL_WARC_UPLOAD"]
        if url is None:
            raise KrowlError("give the destination: -s KROWL_WARC_UPLOAD=s3://bucket/prefix")
        there = Destination.parse(url, self.settings["KROWL_WARC_UPLOAD_ENDPOINT"])
        delete = self.settings.getbool("KROWL_WARC_UPLOAD_DELETE")
        with tqdm(desc="uploading", unit=" files", disable=None, leave=False) as shown:

            def show(stats: UploadStats) -> None:
                shown.total, shown.n = stats.files + stats.waiting, stats.files
                shown.refresh()

            try:
                stats = upload_folder(folder, there, delete=delete, verify=opts.verify, report=show)
            except BucketError as error:
                raise KrowlError(f"{there.url()}: {error}") from error
        if opts.verify:
            self.say(captures.verified(stats.verified, stats.wrong))
        self.say(
            f"{counted(stats.files, 'file')} uploaded to {there.url()}, {stats.waiting:,} left"
        )
        if stats.waiting or stats.wrong:
            self.exitcode = FOUND_WRONG

    def _folder(self, name: str) -> Path:
        return folder_of(self.settings, name)

    def _folders(self, names: list[str]) -> list[Path]:
        """Return the folders of WARC files of JOBDIRs, each once; in that of `scrapy node` each
        process has one, which need not be there yet."""
        found = (each for name in names for each in folders_of(self.settings, name))
        return list(dict.fromkeys(found))

    def _complain_of_damage(self, damaged: list[tuple[Path, RecordError]]) -> None:
        """Name each damaged stretch once; only whole records could be read."""
        for text in dict.fromkeys(f"{warc} is damaged {error}" for warc, error in damaged):
            self.complain(text, FOUND_WRONG)

    def _complain_of_other_forms(self, code: int, *folders: Path) -> None:
        """Count the files that have no index, because they are not in gzip."""
        for folder in folders:
            if others := files_without_index(folder):
                self.complain(others, code)


def _options(usage: str) -> list[str]:
    """Return the options that a usage names, in their long form."""
    return re.findall("--[a-z-]+", usage.replace("-o ", "--output "))


def folder_of(settings: Settings, name: str) -> Path:
    """Return the folder of WARC files of a JOBDIR, or ``name`` if it has WARC files or indexes, or
    its folder ``warc``.

    :raises KrowlError: there are no WARC files, or those of several processes
    """
    path = Path(name)
    if processes := processes_in(path):
        raise KrowlError(
            f"{name} is the crawl of {counted(len(processes), 'process')}: give the folder of one,"
            f" such as {processes[0].path}"
        )
    with suppress(JobError):
        folder = _warc_folder(settings, JobFolder.existing(name).path)
        if not folder.is_dir():
            raise KrowlError(f"{path} has no WARC files yet: there is no {folder}")
        return folder
    # Scrapy's own scheduler makes no crawl's folder of the JOBDIR: the add-on KrowlArchive.
    for folder in (path, path / "warc"):
        if any(True for pattern in ("*.warc*", "*.cdxj") for _ in folder.glob(pattern)):
            return folder
    raise KrowlError(
        f"{name} is neither a crawl's folder nor one of WARC files: give the JOBDIR of a crawl"
    )


def folders_of(settings: Settings, name: str) -> list[Path]:
    """Return the folder as `folder_of`; of the JOBDIR of `scrapy node` those of all processes.

    :raises KrowlError: there are no WARC files
    """
    processes = processes_in(Path(name))
    if not processes:
        return [folder_of(settings, name)]
    found = [process_warc_folder(settings, each.path) for each in processes]
    if not any(each.is_dir() for each in found):
        raise KrowlError(f"{name} has no WARC files yet: there is no {found[0]}")
    return found


def _warc_folder(settings: Settings, folder: Path) -> Path:
    tree = tree_of(folder)
    return (warc_folder if tree is None else process_warc_folder)(settings, folder)


def files_without_index(folder: Path) -> str:
    """Return how many files are not read because they are not in gzip; empty if there are none."""
    others = [path for path in files_in(folder) if not path.name.endswith(WARC)]
    if not others:
        return ""
    way = f"scrapy warc extract {quote(str(folder))} -o FOLDER copies them into gzip"
    return f"not read: {counted(len(others), 'file')}: {way}"


def _synced(name: str) -> Synced | None:
    """Return what a JOBDIR knows of its open file; None for a folder of WARC files."""
    try:
        job = JobFolder.existing(name)
    except JobError:
        return None
    return read_synced(job)


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar for ``total`` bytes on standard error, if that is a terminal.

    Yield a function to call with the number of bytes done since its last call.
    """
    with tqdm(
        total=total, desc=what, unit="B", unit_scale=True, disable=None, leave=False
    ) as shown:
        yield shown.update


def _index_missing(folder: Path) -> tuple[int, list[tuple[Path, RecordError]]]:
    """Write the missing indexes; return how many files lacked one, and the damage in those."""
    found = indexes_in(folder)
    # Those of damaged files are made again, so that the damage is named.
    made = [*found.missing, *found.damaged]
    damaged: list[tuple[Path, RecordError]] = []
    with bar("indexing", _size(made)) as count_bytes:
        make_indexes(made, lambda warc, error: damaged.append((warc, error)), count_bytes)
    return len(found.missing), damaged


def _left_out(folder: Path, packed: set[str]) -> str:
    """Return which files are not in the package, and why, as text; empty if none are missing."""
    there = uploaded(folder)
    here = {path.name for path in folder.glob(f"*{WARC}")}
    known = {*indexes_in(folder).away, *(name for name in there if name.endswith(WARC))}
    away = known - here - packed
    places = {there[name].rpartition("/")[0] for name in away if name in there}
    still_open = len(list(folder.glob(f"*{WARC}{OPEN}")))
    return captures.left_out(folder, len(away), places, still_open + len(here - packed))


def _size(paths: Iterable[Path]) -> int:
    """Return the bytes of all files together, without those removed meanwhile."""
    size = 0
    for path in paths:
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def _writable(name: str | Path) -> Path:
    """Return the path of a file to write.

    :raises KrowlError: no file of this name can be written
    """
    path = Path(name)
    if path.is_dir():
        raise KrowlError(f"{path} cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise KrowlError(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise KrowlError(f"{path} cannot be written: no permission to write to {path.parent}")
    return path
