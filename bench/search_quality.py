"""How well searches find known pages: four manuals of others, and what their authors say of them.

The queries are the titles of pages, and the entries of the manuals' own indexes, which lead to the
pages that their authors chose. The measure is the mean reciprocal rank of the first right page.
Links and the ranks of hosts are switched off and on.
"""

from __future__ import annotations

import html
import random
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from krowlspider.archive.write.records import Capture, RecordIds, Wire
from krowlspider.archive.write.series import MAX_AGE, SeriesOptions, WarcSeries
from krowlspider.search import compiling, ranking
from krowlspider.search.builder import Builder
from krowlspider.search.narrowing import Bounds
from krowlspider.search.query import parse
from krowlspider.search.schema import FOLDED, tantivy
from krowlspider.search.searcher import Searcher
from tests.support.crawling import ROOT
from tests.support.realdocs import documentation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Queries of a set, and results in which the page is looked for.
QUERIES = 500
DEPTH = 20
# Pages with many right answers are no known items.
_RIGHT_MAX = 3
_INDEXES = re.compile(r"genindex|bookindex|\bsearch\.html|modindex")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL | re.IGNORECASE)
# What each page of a manual has in its title.
_OF_ALL = re.compile(r"\s+(?:&#8212;|&mdash;|—) Python .*|^PostgreSQL: Documentation: ")
_NUMBER = re.compile(r"^(?:Chapter |Appendix |Part )?[A-Z0-9IVX]+(?:\.[0-9]+)*\.\s+")
_SPHINX = re.compile(r'<a href="([^"]+)">([^<]{3,80})</a>')
_DOCBOOK = re.compile(r'<dt[^>]*>([^<]{3,80}?),\s*<a class="indexterm" href="([^"]+)"', re.DOTALL)


@dataclass
class Item:
    """A query, and the URLs of the pages that are right for it."""

    text: str
    right: frozenset[str]


def measure(queries: int = QUERIES, scratch: Path | None = None) -> dict[str, Any]:
    """Return the mean reciprocal rank of each way to rank, by set of queries."""
    files = dict(_files(documentation()))
    known = {url for url in files if not _INDEXES.search(url)}
    sets = {
        "titles": _chosen(_titles(files), queries),
        "entries of indexes": _chosen(_entries(files), queries),
    }
    with TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as name:
        folder = Path(name)
        _write(folder / "warc", files)
        begun = time.perf_counter(), time.process_time()
        with closing(Builder(folder / "index", [folder / "warc"], tell=lambda _: None)) as builder:
            builder.run()
        figures: dict[str, Any] = {
            "pages": len(known),
            "seconds": round(time.perf_counter() - begun[0], 1),
            "cpu_seconds": round(time.process_time() - begun[1], 1),
        }
        _graph(folder)
        searcher = Searcher(folder / "index")
        figures["documents"] = searcher.opened.view().page_count
        for way, search in _ways(searcher).items():
            for kind, items in sets.items():
                figures.setdefault(kind, {"queries": len(items)})[way] = _row(search, items)
    return figures


def _row(search: Callable[[str], list[str]], items: list[Item]) -> dict[str, Any]:
    begun, cpu = time.perf_counter(), time.process_time()
    ranks = [_rank(search(each.text), each.right) for each in items]
    seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "mrr": round(statistics.fmean(ranks), 4),
        "standard_error": round(statistics.stdev(ranks) / len(ranks) ** 0.5, 4),
        "first": round(statistics.fmean(rank == 1.0 for rank in ranks), 4),
        "ms": round(seconds / len(items) * 1000, 2),
        "cpu_ms": round(spent / len(items) * 1000, 2),
        "missed": [each.text for each, rank in zip(items, ranks, strict=True) if rank < 0.2][:30],
    }


def _graph(folder: Path) -> None:
    """Put the ranks of hosts into the index, as users do."""
    words = ["graph", folder / "warc", "-o", folder / "graph", "--into", folder / "index"]
    command = [sys.executable, "-m", "scrapy", *map(str, words)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _ways(searcher: Searcher) -> Mapping[str, Callable[[str], list[str]]]:
    """Return searches by name; each returns URLs, the best first."""
    view = searcher.opened.view()
    module, schema = tantivy(), view.compiler.schema
    fold = view.compiler.analysers[FOLDED].analyze

    def plain(text: str, names: Iterable[str]) -> list[str]:
        parts = [
            (module.Occur.Should, module.Query.term_query(schema, name, word))
            for word in fold(text)
            for name in names
        ]
        found = view.searcher.search(module.Query.boolean_query(parts), DEPTH, count=False)
        return [view.searcher.doc(at).get_first("url") for _, at in found.hits]

    def ours(text: str, *, links: bool, hosts: bool) -> list[str]:
        with ExitStack() as stack:
            if not links:
                stack.enter_context(_without_links())
            if not hosts:
                stack.enter_context(_set(ranking, HOST_WEIGHT=0.0))
            found = searcher.search(parse(text), limit=DEPTH, snippets=False).results
        return [each.url for each in found]

    def narrowed(text: str) -> list[str]:
        """Search as if each page stood for so many that there were a million."""
        share = view.page_count / 1_000_000
        view.compiler.bounds = Bounds(*(int(bound * share) for bound in Bounds()))
        try:
            return ours(text, links=True, hosts=True)
        finally:
            view.compiler.bounds = Bounds()

    return {
        "BM25 of the body": lambda text: plain(text, ("body",)),
        "BM25 of title and body": lambda text: plain(text, ("title", "body")),
        "krowlspider without links and hosts": partial(ours, links=False, hosts=False),
        "krowlspider with links": partial(ours, links=True, hosts=False),
        "krowlspider with hosts": partial(ours, links=False, hosts=True),
        "krowlspider": partial(ours, links=True, hosts=True),
        "krowlspider, narrowed as in a million pages": narrowed,
    }


@contextmanager
def _without_links() -> Iterator[None]:
    """Rank as if no page had a link."""
    boosts = {name: boost for name, boost in compiling.BOOSTS.items() if name != "anchors"}
    with _set(compiling, BOOSTS=boosts), _set(ranking, SAID_WEIGHT=0.0, LINKED_WEIGHT=0.0):
        yield


@contextmanager
def _set(module: Any, **values: Any) -> Iterator[None]:
    """Give constants of a module other values meanwhile."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def _rank(urls: list[str], right: frozenset[str]) -> float:
    return next((1.0 / place for place, url in enumerate(urls, 1) if url in right), 0.0)


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each page with its URL; each manual is a host."""
    for path in sorted(root.rglob("*.html")):
        if path.is_symlink() or not path.is_file():
            continue
        manual, *rest = path.relative_to(root).parts
        host = re.sub("[^a-z0-9]+", "-", manual.lower()).strip("-")
        yield f"https://{host}.test/{quote('/'.join(rest))}", path


def _titles(files: Mapping[str, Path]) -> Iterator[Item]:
    """Yield the titles that one page alone has."""
    pages: dict[str, set[str]] = defaultdict(set)
    for url, path in files.items():
        found = _TITLE.search(path.read_text(errors="replace"))
        title = html.unescape(found[1]) if found else ""
        title = _NUMBER.sub("", _OF_ALL.sub("", title).strip())
        if not _INDEXES.search(url) and any(map(str.isalpha, title)):
            pages[" ".join(title.split())].add(url)
    return (Item(text, frozenset(urls)) for text, urls in pages.items() if len(urls) == 1)


def _entries(files: Mapping[str, Path]) -> Iterator[Item]:
    """Yield the entries of the indexes of manuals, with the pages to which they lead."""
    pages: dict[tuple[str, str], set[str]] = defaultdict(set)
    for url, path in files.items():
        if url.endswith("genindex-all.html"):
            found = [(text, target) for target, text in _SPHINX.findall(path.read_text())]
        elif url.endswith("bookindex.html"):
            found = _DOCBOOK.findall(path.read_text())
        else:
            continue
        for text, target in found:
            at = urljoin(url, html.unescape(target)).partition("#")[0]
            said = " ".join(html.unescape(text).split())
            if at in files and not _INDEXES.search(at) and any(map(str.isalpha, said)):
                pages[url, said].add(at)
    return (
        Item(text, frozenset(urls))
        for (_, text), urls in pages.items()
        if len(urls) <= _RIGHT_MAX and len(text) > 2
    )


def _chosen(items: Iterable[Item], count: int) -> list[Item]:
    found = sorted(items, key=lambda each: each.text)
    return found if len(found) <= count else random.Random(1).sample(found, count)


def _write(folder: Path, files: Mapping[str, Path]) -> None:
    folder.mkdir()
    options = SeriesOptions(
        "docs", "bench", 10**9, {"software": "bench"}, MAX_AGE, "sha1", "isal-1"
    )
    series, ids = WarcSeries(folder, options), RecordIds()
    for number, (url, path) in enumerate(files.items()):
        if _INDEXES.search(url):
            continue
        body = path.read_bytes()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
        head %= len(body)
        series.append(
            Capture(
                identity=ids.new(),
                url=url,
                request_bytes=b"GET / HTTP/1.1\r\n\r\n",
                response_bytes=head + body,
                head=len(head),
                payload=body,
                status=200,
                media_type="text/html",
                started=1_790_000_000.0 + number,
                truncated="",
                wire=Wire("192.0.2.1"),
            )
        )
    series.close()


def table(figures: Mapping[str, Any]) -> str:
    """Return the figures as a table of Markdown."""
    lines = [
        "| queries | ranked by | MRR | first is right | ms | CPU ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in figures.items():
        if not isinstance(found, dict):
            continue
        for way, row in found.items():
            if isinstance(row, dict):
                lines.append(
                    f"| {found['queries']} {name} | {way} | {row['mrr']:.4f} |"
                    f" {row['first']:.1%} | {row['ms']:.1f} | {row['cpu_ms']:.1f} |"
                )
    return "\n".join(lines)
