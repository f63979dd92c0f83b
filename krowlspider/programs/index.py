"""``scrapy index``: a full-text index of what crawls have archived."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.archive.finished import has_archive, is_being_written
from krowlspider.config.validation import offline, validate
from krowlspider.errors import KrowlError, counted, need, printable
from krowlspider.programs.program import FOUND_WRONG, Program, refuse_options
from krowlspider.search.builder import Builder
from krowlspider.search.schema import LINKS, SEGMENTS, STATE
from krowlspider.search.watch import watched
from krowlspider.urls.gemini import accept_gemini

if TYPE_CHECKING:
    import argparse
    from collections import Counter

    from krowlspider.search.watch import PageWatch

_LEFT_OUT = "left out/"


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR> [<JOBDIR> ...] -o INDEX [--follow]"

    def short_desc(self) -> str:
        return "Make a full-text index of what was archived"

    def long_desc(self) -> str:
        return (
            "Make or update an index for scrapy search from the finished WARC files of crawls."
            " Files that are in it already are passed over. Instead of a JOBDIR, a folder of WARC"
            " files will do."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("-o", "--output", metavar="INDEX", help="folder of the index")
        parser.add_argument(
            "--follow",
            action="store_true",
            help="wait for new WARC files until no crawl writes there",
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        refuse_options("index", args)
        if not args or not opts.output:
            raise UsageError(f"scrapy index {self.syntax()}")
        validate(offline(self.settings))
        for module, extra in (
            ("tantivy", "search"),
            ("numpy", "corpus"),
            ("pycld2", "corpus"),
            ("resiliparse", "corpus"),
        ):
            need(module, extra)
        sources = [self._source(name, is_awaited=opts.follow) for name in args]
        _refuse_other_folder(Path(opts.output))
        jobdirs = [Path(name) for name in args]
        build = partial(self._build, Path(opts.output), sources, jobdirs, follow=opts.follow)
        try:
            counts, faults = watched(build)
        except KeyboardInterrupt:
            self.complain("interrupted: run the same command again to continue", FOUND_WRONG)
            return
        self._report(counts, faults)

    def _build(
        self,
        folder: Path,
        sources: list[Path],
        jobdirs: list[Path],
        watch: PageWatch,
        *,
        follow: bool,
    ) -> tuple[Counter[str], list[str]]:
        accept_gemini(is_on=True)
        builder = Builder(folder, sources, tell=self.say, watch=watch, jobdirs=jobdirs)
        try:
            builder.run(follow=follow)
        finally:
            builder.close()
        return builder.counts, list(builder.faults)

    def _source(self, name: str, *, is_awaited: bool) -> Path:
        """Return where the WARC files of a crawl are.

        With ``is_awaited``, the first file may come yet.

        :raises KrowlError: there are none
        """
        path = Path(name)
        chosen: str | None = self.settings["KROWL_WARC_DIR"]
        is_job = (path / "frontier").is_dir() or any(path.glob("p[1-9]*/frontier"))
        source = Path(chosen) if chosen and is_job else path
        if has_archive(source) or (is_awaited and is_being_written(source)):
            return source
        raise KrowlError(
            f"{name} has no WARC files: an index is made of the archive; give the JOBDIR of a crawl"
            " that ran with KROWL_ARCHIVE=True, or a folder of WARC files"
        )

    def _report(self, counts: Counter[str], faults: list[str]) -> None:
        files, captures = counts["files"], counts["captures"]
        self.say(
            f"{counted(files, 'file')}, {counted(captures, 'capture')},"
            f" {counted(counts['documents'], 'document')} written"
        )
        left = {name: n for name, n in counts.items() if name.startswith(_LEFT_OUT)}
        if left:
            self.say("pages left out, by reason:")
        for name, number in sorted(left.items(), key=lambda each: (-each[1], each[0])):
            self.say(f"{number:>14,}  {name.removeprefix(_LEFT_OUT)}")
        for fault in faults:
            self.complain(fault, FOUND_WRONG)


def _refuse_other_folder(folder: Path) -> None:
    """:raises KrowlError: ``folder`` has something else than an index, or its beginning"""
    if not folder.is_dir() or (folder / STATE).exists():
        return
    names = {each.name for each in folder.iterdir()} - {LINKS, SEGMENTS}
    # A kill may leave the file that becomes STATE.
    if others := sorted(name for name in names if STATE not in name):
        raise KrowlError(
            f"-o {folder} is no index, and has {printable(others[0])} in it: give an index, or a"
            " folder that is new or empty"
        )
