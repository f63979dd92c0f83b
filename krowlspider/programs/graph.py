"""``scrapy graph``: the graph of hosts and domains that the links of a crawl make."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from krowlspider.archive.cdxj import WARC
from krowlspider.config.validation import offline, validate
from krowlspider.errors import KrowlError, counted, need
from krowlspider.graph.hosts import reverse
from krowlspider.graph.ranks import FILE, write
from krowlspider.programs.program import FOUND_WRONG, Program, refuse_options
from krowlspider.programs.warc import folders_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from krowlspider.graph.build import GraphFolder, RankedGraph

# The folder of the graph in a JOBDIR.
FOLDER = "graph"
TOP_MAX = 10_000
_BAR = "█"
_BAR_WIDTH, _NAME_WIDTH = 24, 40


class Command(Program):
    def syntax(self) -> str:
        return "<JOBDIR> ... [-o GRAPH] [--level host|domain] [--into INDEX] [--top N]"

    def short_desc(self) -> str:
        return "Write the graph of hosts and domains, and their ranks"

    def long_desc(self) -> str:
        return (
            "Write the graph that the links in the finished WARC files of crawls make, in the form"
            " of Common Crawl: vertices, edges, and ranks by harmonic centrality and PageRank, for"
            " hosts and for domains. WARC files that are in the graph already are not read again."
            " Instead of a JOBDIR, a folder of WARC files will do."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o",
            "--output",
            metavar="GRAPH",
            help="folder of the graph (default: JOBDIR/graph)",
        )
        parser.add_argument(
            "--level", choices=("host", "domain"), help="write only this graph (default: both)"
        )
        parser.add_argument(
            "--into", metavar="INDEX", help="a search index that gets the ranks of hosts"
        )
        parser.add_argument(
            "--top", type=int, default=0, metavar="N", help="print the first N by their rank"
        )

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        refuse_options("graph", args)
        if not args:
            raise UsageError(f"scrapy graph {self.syntax()}")
        if not 0 <= opts.top <= TOP_MAX:
            raise KrowlError(f"--top {opts.top} is not between 0 and {TOP_MAX:,}")
        if opts.output is None and len(args) > 1:
            raise KrowlError("several crawls make one graph: give its folder with -o")
        index = None if opts.into is None else _index_at(opts.into)
        validate(offline(self.settings))
        need("numpy", "graph")
        # They import NumPy.
        from krowlspider.graph import build  # noqa: PLC0415

        folders = [folder for each in args for folder in folders_of(self.settings, each)]
        output = Path(opts.output) if opts.output else Path(args[0]) / FOLDER
        levels = (opts.level,) if opts.level else build.LEVELS
        with closing(build.GraphFolder(output)) as graph:
            try:
                self._take(graph, folders)
                hosts, names = graph.merge()
                made = []
                for level in build.LEVELS if index is not None else levels:
                    built = build.built(level, hosts, names)
                    if level in levels:
                        graph.write(built)
                        self._tell(built, opts.top)
                    if index is not None:
                        made.append(built)
                if index is not None:
                    count = write(index, build.search_ranks(*made))
                    self.say(f"{counted(count, 'rank')} in {index}")
            except KeyboardInterrupt:
                self.complain("interrupted: run the same command again to continue", FOUND_WRONG)

    def _take(self, graph: GraphFolder, folders: list[Path]) -> None:
        def fault(text: str) -> None:
            self.complain(text, FOUND_WRONG)

        for warc in [path for each in folders for path in sorted(each.glob(f"*{WARC}"))]:
            try:
                if not graph.has(warc):
                    part = graph.take(warc, fault)
                    hosts = counted(part.names, "host")
                    self.say(f"{warc.name}: {hosts}, {counted(part.links, 'link')} between them")
            except FileNotFoundError:
                # It was uploaded and removed meanwhile.
                fault(f"{warc.name} is not in the graph: it is gone")

    def _tell(self, built: RankedGraph, top: int) -> None:
        values = built.centralities
        how = f"within {values.deviation:.1%}" if values.deviation else "exact"
        if values.is_cut:
            how += f", and of hosts up to {counted(values.rounds, 'link')} away only"
        self.say(
            f"{built.level} graph: {counted(built.graph.size, built.level)},"
            f" {counted(len(built.graph.sources), 'link')}; harmonic centrality {how}"
        )
        if top and built.graph.size:
            for line in table(built, top, shutil.get_terminal_size().columns):
                self.say(line)


def _index_at(name: str) -> Path:
    """Return the path of the ranks in a search index.

    :raises KrowlError: there is no index
    """
    folder = Path(name)
    if not (folder / "state.json").is_file() and not (folder / "tantivy").is_dir():
        raise KrowlError(f"{name} is no search index: give the folder of scrapy index with --into")
    return folder / FILE


def table(built: RankedGraph, top: int, width: int) -> Iterator[str]:
    """Yield the lines of a table of the first ``top`` vertices by harmonic centrality, with bars
    where they have room."""
    order = built.ranks.order()[:top].tolist()
    names = [reverse(built.names[vertex]) for vertex in order]
    column = min(max(map(len, [*names, built.level])), _NAME_WIDTH)
    number = len(str(len(order)))
    heads = f"{'':{number}}  {built.level:{column}}  {'harmonic':>12}  {'PageRank':>9}"
    bar = min(width - len(heads) - 2, _BAR_WIDTH)
    most = built.ranks.harmonic[order[0]] or 1
    yield heads
    for place, (vertex, name) in enumerate(zip(order, names, strict=True), 1):
        shown = name if len(name) <= column else name[: column - 1] + "…"
        near, rank = built.ranks.harmonic[vertex], built.ranks.pagerank[vertex]
        line = f"{place:{number}}  {shown:{column}}  {near:12,.2f}  {rank:9.6f}"
        yield f"{line}  {_BAR * round(bar * near / most)}".rstrip() if bar > 2 else line
