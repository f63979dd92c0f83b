"""``scrapy corpus``: make a corpus of text from the WARC files of a crawl, or from anybody's."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from scrapy.exceptions import UsageError
from tqdm import tqdm

from krowlspider.archive.disk import make_directory, write_durably
from krowlspider.archive.tools.inputs import SUFFIXES, unpack, warcs_in
from krowlspider.config.validation import offline, validate
from krowlspider.corpus.build import Build
from krowlspider.corpus.copies.fingerprints import VERSION
from krowlspider.corpus.copies.keeping import FIRST, KEEP
from krowlspider.corpus.copies.versions import ALL, LAST, VERSIONS
from krowlspider.corpus.figures import card, figures
from krowlspider.corpus.finish import clusters
from krowlspider.corpus.folder import Folder
from krowlspider.corpus.pages import BLOCK_MAX
from krowlspider.corpus.quality.rules import default_text, read_rules
from krowlspider.corpus.record import ENDINGS, FORM
from krowlspider.corpus.text.document import Reading
from krowlspider.corpus.text.extractors import EXTRACTORS
from krowlspider.corpus.worker import Choice, Job
from krowlspider.errors import KrowlError, need
from krowlspider.fetch.http.stored import decoded
from krowlspider.frontier.admin.words import counted
from krowlspider.programs.program import FOUND_WRONG, Program, refuse_options
from krowlspider.programs.warc import folder_of
from krowlspider.views import captures
from krowlspider.views.corpus import built, corpus_page

if TYPE_CHECKING:
    import argparse

    from krowlspider.corpus.quality.rules import Rules

# The end of the name of a WACZ, in any case.
_WACZ = ".wacz"
# CPU seconds for one page.
_SECONDS = 10.0


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR> -o DIR [options] | report <DIR>"

    def short_desc(self) -> str:
        return "Make a corpus of text from a crawl's WARC files"

    def long_desc(self) -> str:
        return (
            "Make a corpus of text from the finished WARC files of a JOBDIR, or of a folder of"
            " WARC files, or of one such file, or of a WACZ. The same command again goes on where"
            " it stopped. `report` writes report.html and report.json into the folder of a corpus,"
            " from its counts."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("-o", "--output", metavar="DIR", help="folder of the corpus")
        parser.add_argument(
            "--format", choices=sorted(ENDINGS), default="jsonl", help="format of the shards"
        )
        parser.add_argument(
            "--text", choices=("plain", "markdown"), default="plain", help="plain text or Markdown"
        )
        parser.add_argument(
            "--extractor",
            choices=EXTRACTORS,
            default=EXTRACTORS[0],
            help="library that finds the main text",
        )
        parser.add_argument("--links", action="store_true", help="record the links of each page")
        parser.add_argument("--pdf", action="store_true", help="read PDFs too")
        parser.add_argument("--rules", metavar="FILE", help="TOML that changes the default rules")
        parser.add_argument(
            "--print-rules", action="store_true", help="print the default rules, and do no more"
        )
        parser.add_argument(
            "--rejected",
            metavar="FILE",
            help="write each rejected page as JSON: place, rule, value",
        )
        parser.add_argument(
            "--clusters",
            metavar="FILE",
            help="write each duplicate as JSON, with the page that is kept",
        )
        parser.add_argument(
            "--keep", choices=KEEP, default=FIRST, help="which copy of a page is kept"
        )
        parser.add_argument(
            "--versions",
            choices=VERSIONS,
            default=ALL,
            help="versions of a page that are kept: each text that it had, or its last one",
        )
        parser.add_argument(
            "--processes", metavar="N", type=int, default=len(os.sched_getaffinity(0)),
            help="worker processes (default: one for each CPU)",
        )  # fmt: skip
        parser.add_argument(
            "--since", metavar="DATE", default="", help="only pages fetched since then, UTC"
        )
        parser.add_argument(
            "--host", metavar="NAME", default="", help="only pages of a host, or below it"
        )
        parser.add_argument(
            "--sample",
            metavar="SHARE",
            type=float,
            default=1.0,
            help="only a share of the URLs: 0.01",
        )
        parser.add_argument("--limit", metavar="N", type=int, help="stop after N accepted pages")
        parser.add_argument(
            "--follow", action="store_true", help="take new files while a crawl writes them"
        )
        parser.add_argument(
            "--page-seconds", metavar="N", type=float, default=_SECONDS,
            help=f"CPU seconds after which a page is skipped ({_SECONDS:g})",
        )  # fmt: skip

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.print_rules:
            self.say(default_text().rstrip("\n"))
        elif len(args) == 2 and args[0] == "report":
            self._report(Path(args[1]))
        else:
            self._build(self._checked(args, opts), opts)

    def _report(self, folder: Path) -> None:
        found = figures(folder)
        page = folder / "report.html"
        with write_durably(folder / "report.json") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        with write_durably(page) as file:
            file.write(corpus_page(folder.resolve().name, found).encode(errors="replace"))
        self.say(str(page))

    def _checked(self, args: list[str], opts: argparse.Namespace) -> str:
        """Return the JOBDIR, once the command line and the settings are checked.

        :raises KrowlError: one of them is wrong
        :raises UsageError: there is not exactly one JOBDIR
        """
        refuse_options("corpus", args)
        if len(args) != 1:
            raise UsageError("give one JOBDIR, before the options, or report and one DIR")
        if not opts.output:
            raise KrowlError("give the folder to write: scrapy corpus <JOBDIR> -o DIR")
        if opts.processes < 1:
            raise KrowlError(f"--processes {opts.processes}: give 1 or more")
        if not 0 < opts.sample <= 1:
            raise KrowlError(f"--sample {opts.sample}: give a share above 0, up to 1")
        if opts.limit is not None and opts.limit < 1:
            raise KrowlError(f"--limit {opts.limit}: give 1 or more")
        if opts.limit is not None and opts.keep != FIRST:
            raise KrowlError(
                f"--limit with --keep {opts.keep}: copies are chosen among all pages; give --sample"
            )
        if opts.limit is not None and opts.versions == LAST:
            raise KrowlError(
                f"--limit with --versions {LAST}: all pages are read first; give --sample"
            )
        if opts.page_seconds <= 0:
            raise KrowlError(f"--page-seconds {opts.page_seconds}: give more than 0")
        validate(offline(self.settings))
        for module, extra, is_needed in (
            ("resiliparse", "corpus", True),
            ("pycld2", "corpus", True),
            ("pyarrow", "corpus", opts.format == "parquet"),
            ("trafilatura", "trafilatura", opts.extractor == "trafilatura"),
            ("pypdfium2", "pdf", opts.pdf),
        ):
            if is_needed:
                need(module, extra)
        return args[0]

    def _source(self, name: str) -> Path:
        """Return the folder of WARC files, or the single WARC file or WACZ.

        :raises KrowlError: there is none, or the WACZ has no WARC file
        """
        path = Path(name)
        if not path.is_file():
            return folder_of(self.settings, name)
        if _is_wacz(path):
            warcs_in(path)
        elif not path.name.endswith(SUFFIXES):
            raise KrowlError(f"{name} is no WARC file: give {', '.join(SUFFIXES)} or {_WACZ}")
        return path

    def _build(self, name: str, opts: argparse.Namespace) -> None:
        source = self._source(name)
        rules = read_rules(Path(opts.rules) if opts.rules else None)
        since = captures.stamp(opts.since) if opts.since else ""
        choice = Choice(since, opts.host.lower(), opts.sample)
        with closing(Folder(Path(opts.output))) as folder:
            folder.begin(
                {
                    "extractor": opts.extractor,
                    "fingerprints": VERSION,
                    "form": FORM,
                    "format": opts.format,
                    "host": choice.host,
                    "keep": opts.keep,
                    "limit": opts.limit,
                    "links": opts.links,
                    "pdf": opts.pdf,
                    "rules": rules.source,
                    "sample": choice.sample,
                    "since": since,
                    "text": opts.text,
                    "versions": opts.versions,
                }
            )
            decode = partial(decoded, cap=BLOCK_MAX)
            sites = folder.sites if rules.source["signals"]["sites"] else None
            reading = Reading(opts.extractor, opts.text == "markdown", opts.links, opts.pdf)
            job = Job(
                folder.work, rules, choice, decode, opts.page_seconds, opts.limit,
                sites=sites, reading=reading, revisits=opts.versions == LAST,
            )  # fmt: skip
            if not _is_wacz(source):
                self._run(folder, job, source, rules, opts)
                return
            try:
                # What a killed process has left may be half a file.
                shutil.rmtree(folder.unpacked, ignore_errors=True)
                make_directory(folder.unpacked)
                unpack(source, folder.unpacked)
                self._run(folder, job, folder.unpacked, rules, opts)
            finally:
                shutil.rmtree(folder.unpacked)

    def _run(
        self, folder: Folder, job: Job, source: Path, rules: Rules, opts: argparse.Namespace
    ) -> None:
        with tqdm(desc="corpus", unit="B", unit_scale=True, disable=None, leave=False) as shown:

            def show(done: int, total: int) -> None:
                shown.total, shown.n = total, done
                shown.refresh()

            build = Build(folder, job, opts.format, show, keep=opts.keep, versions=opts.versions)
            try:
                build.run(source, opts.processes, follow=opts.follow)
            finally:
                with write_durably(folder.path / "README.md") as file:
                    file.write(
                        card(build.built, rules, opts.format, opts.keep, opts.versions).encode()
                    )
        if opts.rejected:
            with write_durably(Path(opts.rejected)) as file:
                file.writelines(line + b"\n" for line in folder.refusals())
        if opts.clusters:
            with write_durably(Path(opts.clusters)) as file:
                file.writelines(line + b"\n" for line in clusters(folder))
        self.say(built(build.built.counts, folder.path))
        unknown, example = build.unknown_answers
        if unknown:
            self.complain(
                f"opt-outs not known, and not heeded: {counted(unknown, 'file')} such as {example},"
                " archived as revisits of responses in no WARC file here; link the WARC files of"
                " the earlier crawl and these into one folder, and make a new corpus of that",
                0,
            )
        for file_name, offset, reason in build.built.problems:
            self.complain(f"{file_name} at byte {offset}: {reason}", FOUND_WRONG)
        if build.late:
            self.complain(
                f"not in the corpus: {counted(len(build.late), 'WARC file')}, such as"
                f" {min(build.late)}, which came after {_waiting_for(opts)} had compared the"
                " others; make a new folder with all of them",
                FOUND_WRONG,
            )


def _waiting_for(opts: argparse.Namespace) -> str:
    """Return the option for which all files are read before the first shard is written."""
    return f"--keep {opts.keep}" if opts.keep != FIRST else f"--versions {opts.versions}"


def _is_wacz(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(_WACZ)
