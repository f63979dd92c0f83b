"""``scrapy corpus``: make a corpus of text from the WARC files of a crawl, or from anybody's."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from scrapy.exceptions import UsageError
from tqdm import tqdm

from krowlspider.archive.disk import make_directory, write_durably
from krowlspider.archive.tools.inputs import SUFFIXES, unpack, warcs_in
from krowlspider.config.validation import offline, validate
from krowlspider.corpus.build import Build, clusters
from krowlspider.corpus.copies.duplicates import FIRST, KEEP
from krowlspider.corpus.copies.fingerprints import VERSION
from krowlspider.corpus.copies.versions import ALL, LAST, VERSIONS
from krowlspider.corpus.figures import card, figures
from krowlspider.corpus.folder import Folder
from krowlspider.corpus.quality.rules import Rules, default_text, read_rules
from krowlspider.corpus.record import ENDINGS, FORM
from krowlspider.corpus.text.document import Reading
from krowlspider.corpus.text.extractors import EXTRACTORS
from krowlspider.corpus.warc_pages import BLOCK_MAX
from krowlspider.corpus.worker import PageChoice, WorkerTask
from krowlspider.errors import KrowlError, counted, need
from krowlspider.fetch.http.decode import decoded
from krowlspider.programs.program import FOUND_WRONG, Program, refuse_options
from krowlspider.programs.warc import folder_of
from krowlspider.views import captures
from krowlspider.views.page import page_start

if TYPE_CHECKING:
    import argparse
    from collections import Counter
    from collections.abc import Iterable, Sequence

_STYLE = """
svg.bar { height: 11px; border: 0; }
svg.plot { height: auto; border: 0; }
svg .accepted { fill: var(--line); }
svg .rejected { fill: var(--bad); opacity: .75; }
svg text { fill: var(--faint); font-size: 11px; text-anchor: middle; }
svg line { stroke: var(--rule); }
.key { color: var(--faint); font-size: 13px; margin: 0 0 8px; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 4px 0 0; }
.key i.accepted { background: var(--line); }
.key i.rejected { background: var(--bad); opacity: .75; }
.key span { margin-right: 14px; }
.wide { width: 40%; border: 0; }
td:first-child { max-width: 320px; overflow: hidden; text-overflow: ellipsis; }
.scroll { max-height: none; }
@media (max-width: 560px) {
  .wide { width: 20%; }
  td:first-child { max-width: 36vw; }
  svg.bar { min-width: 40px; }
}
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 18px; }
"""
_KEY = """<p class="key"><span><i class="accepted"></i>accepted</span>\
<span><i class="rejected"></i>rejected</span></p>"""
# A plot, in units of its drawing: the bars are between the numbers above and the axis below.
_WIDTH, _TOP, _AXIS, _BOTTOM = 520, 18, 150, 168
# Bits of the length up to which texts share the first bar: those below 128 characters.
_SHORTEST = 7


def built(counts: Counter[str], folder: Path) -> str:
    """Return how many pages were accepted, and the others by reason, most frequent first."""
    accepted, read = counted(counts["accepted"], "page"), counted(counts["responses"], "response")
    lines = [f"{accepted} of {read} in {folder}"]
    for kind in ("rejected", "skipped"):
        found = {name: n for name, n in counts.items() if name.startswith(f"{kind}/")}
        if found:
            lines.append(f"{kind}: {sum(found.values()):,}")
        for name, count in sorted(found.items(), key=lambda each: (-each[1], each[0])):
            lines.append(f"{count:>14,}  {name.partition('/')[2]}")
    return "\n".join(lines)


def corpus_page(name: str, found: dict[str, Any]) -> str:
    """Return the report of the corpus in the folder ``name`` as HTML."""
    title = f"Corpus {escape(name)}"
    return f"""{page_start(f"Corpus {name}", _STYLE)}<body>
<header><h1>{title}</h1><p>{counted(found["slices"], "WARC file")} or parts of them</p></header>
<main>
{_tiles(found)}
{_rules(found["rules"], found["pages"])}
{_lengths(found["lengths"])}
{_shares("Languages", "language", found["languages"], "")}
{_shares("Hosts with the most pages", "host", found["hosts"], _other_hosts(found))}
{_skipped(found["skipped"])}
</main>
</body>
</html>
"""


def _tiles(found: dict[str, Any]) -> str:
    pages, accepted, read = found["pages"], found["accepted"], found["responses"]
    more = "more than " if found["pages_of_hosts_not_counted"] else ""
    tiles = (
        ("responses read", f"{read:,}"),
        ("skipped, no page", f"{read - pages:,}"),
        ("pages", f"{pages:,}"),
        ("rejected", f"{pages - accepted:,}"),
        ("accepted", f"{accepted:,}"),
        ("share accepted", _percent(accepted, pages)),
        ("languages", f"{len(found['languages']):,}"),
        ("hosts", f"<small>{more}</small>{found['hosts_counted']:,}"),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return f'<section aria-label="Figures"><dl id="tiles">{shown}</dl></section>'


def _rules(rules: Sequence[dict[str, Any]], pages: int) -> str:
    most = max((rule["rejected"] for rule in rules), default=0)
    rows = (
        (
            escape(rule["rule"]),
            _bar(0, rule["rejected"], most),
            f"{rule['rejected']:,}",
            f"{rule['pages']:,}",
            _percent(rule["pages"] - rule["rejected"], rule["pages"]),
        )
        for rule in rules
        if rule["rejected"]
    )
    idle = ", ".join(escape(rule["rule"]) for rule in rules if not rule["rejected"])
    return _section(
        "Rejected by rule",
        f'<p class="key">{counted(pages, "page")} against the rules in this order: the first rule'
        " that a page fails rejects it.</p>"
        + _table("Rules", ("rule", "", "rejected", "pages tested", "passed"), rows)
        + (f'<p class="none">No page failed: {idle}</p>' if idle else ""),
    )


def _shares(title: str, what: str, rows: Sequence[dict[str, Any]], more: str) -> str:
    most = max((row["accepted"] + row["rejected"] for row in rows), default=0)
    cells = (
        (
            escape(row["name"]) or "unknown",
            _bar(row["accepted"], row["rejected"], most),
            f"{row['accepted']:,}",
            f"{row['accepted'] + row['rejected']:,}",
            _percent(row["accepted"], row["accepted"] + row["rejected"]),
        )
        for row in rows
    )
    heads = (what, "", "accepted", "pages", "share accepted")
    return _section(title, _KEY + _table(title, heads, cells) + more)


def _other_hosts(found: dict[str, Any]) -> str:
    shown, hosts = len(found["hosts"]), found["hosts_counted"]
    pages = found["pages_of_hosts_not_counted"]
    parts = [f"{shown:,} of {hosts:,} hosts"] if shown < hosts else []
    if pages:
        parts.append(f"not counted by host: {counted(pages, 'page')} of small hosts")
    return f'<p class="none">{"; ".join(parts)}</p>' if parts else ""


def _skipped(skipped: dict[str, int]) -> str:
    rows = ((escape(name), f"{number:,}") for name, number in skipped.items())
    return _section("Responses that are no page", _table("Skipped", ("reason", "responses"), rows))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    if not cells:
        return '<p class="none">none</p>'
    head = "".join(
        f'<th scope="col">{name}</th>' if name else '<td class="wide"></td>' for name in heads
    )
    body = "\n".join(f"<tr>{each}</tr>" for each in cells)
    return (
        f'<div class="scroll"><table><caption class="hidden">{title}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _bar(accepted: int, rejected: int, most: int) -> str:
    """Return a bar as long as the pages are to ``most``; its numbers stand beside it."""
    first, second = (100 * each / (most or 1) for each in (accepted, rejected))
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="accepted" width="{first:.2f}" height="10"/>'
        f'<rect class="rejected" x="{first:.2f}" width="{second:.2f}" height="10"/></svg>'
    )


# --- lengths ---


def _lengths(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return _section("Length of the texts", '<p class="none">none</p>')
    plots = "".join(_plot(rows, kind) for kind in ("accepted", "rejected"))
    return _section("Length of the texts, in characters", f'<div class="plots">{plots}</div>')


def _plot(rows: Sequence[dict[str, Any]], kind: str) -> str:
    """Return a histogram; all lengths from the shortest to the longest have a place in it."""
    pages: dict[int, int] = {}
    for row in rows:
        bits = max(row["from"].bit_length(), _SHORTEST)
        pages[bits] = pages.get(bits, 0) + row[kind]
    most, step = max(*pages.values(), 1), _WIDTH / (max(pages) - min(pages) + 1)
    parts = []
    for at, bits in enumerate(range(min(pages), max(pages) + 1)):
        number, left = pages.get(bits, 0), step * at
        top = _AXIS - (_AXIS - _TOP) * number / most
        parts.append(
            f'<rect class="{kind}" x="{left + 1:.1f}" y="{top:.1f}"'
            f' width="{step - 2:.1f}" height="{_AXIS - top:.1f}"/>'
        )
        if number:
            middle = left + step / 2
            parts.append(f'<text x="{middle:.1f}" y="{top - 4:.1f}">{_short(number)}</text>')
        start = 0 if bits == _SHORTEST else 1 << bits >> 1
        parts.append(f'<text x="{left:.1f}" y="{_BOTTOM - 4}">{_size(start)}</text>')
    parts.append(f'<text x="{_WIDTH}" y="{_BOTTOM - 4}">{_size(1 << max(pages))}</text>')
    total = counted(sum(pages.values()), "page")
    return (
        f"<figure><figcaption><span>{kind}</span><b>{total}</b></figcaption>"
        f'<svg class="plot" viewBox="-14 0 {_WIDTH + 28} {_BOTTOM}" role="img"'
        f' aria-label="Lengths of {kind} texts, {total}">{"".join(parts)}'
        f'<line x1="0" y1="{_AXIS}" x2="{_WIDTH}" y2="{_AXIS}"/></svg></figure>'
    )


def _short(number: int) -> str:
    if number < 10_000:
        return str(number)
    return f"{number / 1e3:.0f}k" if number < 1e6 else f"{number / 1e6:.1f}M"


def _size(chars: int) -> str:
    """Return a power of two as it is usually written."""
    if chars < 1 << 10:
        return str(chars)
    return f"{chars >> 10}k" if chars < 1 << 20 else f"{chars >> 20}M"


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
            ("numpy", "corpus", True),
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
        choice = PageChoice(since, opts.host.lower(), opts.sample)
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
            job = WorkerTask(
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
        self, folder: Folder, job: WorkerTask, source: Path, rules: Rules, opts: argparse.Namespace
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
