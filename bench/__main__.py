"""Run benchmarks, print their figures and write them as JSON to bench-results/.

``make bench`` runs frontier, page, archive and crawl. ``python -m bench NAME`` runs one:

- ``frontier``: the frontier alone, at growing sizes (``--urls 1000000 10000000``)
- ``page``: the cost of a page by the number of URLs queued
- ``control``: the calls to a running crawl, and what its watchers cost (``--urls 10000000``)
- ``archive``: the archive writer beside warcio's and fastwarc's
- ``corpus``: ``scrapy corpus`` over pages of documentation; with ``--quality`` its texts beside
  the sources of the pages, with ``--peers`` its rate beside others'
- ``corpus-quality``: its texts, rules, languages and duplicates on data of others (``--sets DIR``)
- ``databases``: rows of a catalogue into Parquet, PostgreSQL and SQLite
- ``duplicates``: the index of a corpus as it grows (``--urls 1000000 20000000``)
- ``follow``, ``follow-catalogue``: a crawl with and without ``scrapy corpus --follow`` beside it,
  or ``scrapy catalogue --follow``
- ``beside``: two crawls at once, one of which gets floods of gRPC, CDX, searches and SQL, in turns
- ``crawl``: whole crawls of one web by this crawler and others
- ``gemini``: a crawl of capsules without delays
- ``graph``: the graph of 10 million links, and links of WARC files (``--links 1000000``)
- ``growth``: this crawler with more hosts
- ``transit``: this crawler with more requests in flight and a slower web
- ``pair``: one process, two of a cluster, and two crawls apart
- ``trees``: this checkout beside another one (``--other DIR``), both at once
- ``profile``: a flame graph
- ``stages``: the CPU of a page by stage; ``python -m bench.calls`` counts its Python calls
- ``recrawl``: the schedule of recrawls beside others', on a simulated web or on histories of
  documentation (``--sets DIR``; docs/recrawl-schedule.md)
- ``requisites``: what it costs to find the requisites of a page
- ``rows``: the frontier with rows of pages (``--urls 50000000 --queued-hosts 500000``)
- ``search-index``: made documents into a search index, and pages from WARC files
- ``search-quality``: how well searches find known pages of four manuals
- ``search-latency``: the times of queries over an index (``--index INDEX``)
- ``sheets``: 100,000 sheets of KROWL_POLICIES
- ``ring``: the simulation of a cluster (docs/scale.md)
- ``forwarding``: URLs sent from node to node through Redis
- ``handover``: hosts sent from node to node through Redis
- ``join``: a crawl while a second node takes half of its hosts
- ``hostile``: crawls of good hosts beside one attack at a time (docs/hostile.md)
- ``soak``: a crawl of good hosts beside all attacks for an hour
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import (
    archive,
    beside,
    control,
    corpora,
    corpus,
    corpusquality,
    crawl,
    databases,
    duplicates,
    exact,
    follow,
    forwarding,
    frontier,
    gemini,
    graph,
    growth,
    handover,
    join,
    page,
    pagerows,
    pair,
    plot,
    profile,
    quality,
    recrawl,
    requisites,
    ringsim,
    search,
    search_latency,
    search_quality,
    sheets,
    stages,
    trees,
)
from bench.crawlers import CRAWLERS
from bench.hostile import run as hostile
from bench.hostile import soak
from bench.hostile.attacks import ATTACKS
from bench.pages import Shape
from bench.process import exit_on_sigterm
from bench.recrawlhistory import histories
from bench.recrawlweb import web

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path("bench-results")


def _write(name: str, figures: Any) -> None:
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1))


def _frontier(args: argparse.Namespace) -> None:
    hosts = args.queued_hosts if len(args.queued_hosts) > 1 else args.queued_hosts * len(args.urls)
    rows = [
        frontier.measure(urls, most or urls // 4, args.scratch)
        for urls, most in zip(args.urls, hosts, strict=True)
    ]
    print(frontier.table(rows))
    _write("frontier", rows)


def _rows(args: argparse.Namespace) -> None:
    figures = pagerows.measure(args.urls[0], args.queued_hosts[0], args.scratch)
    print(pagerows.table(figures))
    _write("rows", figures)


def _sheets(args: argparse.Namespace) -> None:
    figures: dict[str, Any] = {**sheets.measure(100_000, args.rounds)}
    figures["crawls"] = sheets.crawls(100_000, args.pages, args.rounds)
    print(json.dumps(figures))
    _write("sheets", figures)


def _gemini(args: argparse.Namespace) -> None:
    figures = gemini.measure(args.hosts[0], args.pages, args.rounds)
    print(json.dumps(figures))
    _write("gemini", figures)


def _page(args: argparse.Namespace) -> None:
    rows = page.measure(args.urls, args.rounds, args.scratch)
    print(page.table(rows))
    _write("page", rows)


def _archive(args: argparse.Namespace) -> None:
    figures = archive.measure(args.rounds, scratch=args.scratch)
    print(archive.table(figures))
    _write("archive", figures)


def _corpus(args: argparse.Namespace) -> None:
    if args.quality:
        scores = quality.measure()
        print(quality.table(scores))
        _write("corpus-texts", scores)
        return
    if args.peers:
        beside = corpora.measure(args.rounds, args.pages, args.scratch)
        print(corpora.table(beside))
        _write("corpus-peers", beside)
        return
    figures = corpus.measure(args.rounds, args.pages, args.scratch)
    print(corpus.table(figures))
    _write("corpus", figures)


def _corpus_quality(args: argparse.Namespace) -> None:
    figures = corpusquality.measure(args.sets, args.scratch)
    print(corpusquality.table(figures))
    _write("corpus-quality", figures)


def _crawl(args: argparse.Namespace) -> None:
    shape = _shape(args)
    exactly = exact.check(shape, args.scratch)
    print(exact.sentence(exactly))
    settings = dict(setting.split("=", 1) for setting in args.set)
    plan = crawl.Plan(args.pages, args.rounds, args.concurrency[0], settings, args.scratch)
    figures = crawl.measure(shape, args.crawlers, plan)
    print(crawl.table(figures))
    _write("crawl", {**figures, "exact": exactly})
    plot.crawlers(figures, RESULTS / "crawl.png")


def _graph(args: argparse.Namespace) -> None:
    figures = graph.measure(args.links, args.pages, args.scratch)
    print(graph.table(figures))
    _write("graph", figures)


def _growth(args: argparse.Namespace) -> None:
    rows = growth.hosts(_shape(args), args.hosts, pages=args.pages, rounds=args.rounds)
    print(growth.table(rows))
    _write("growth", rows)
    plot.lines(rows, "hosts", "latency", RESULTS / "growth.png")


def _transit(args: argparse.Namespace) -> None:
    rows = growth.transit(
        _shape(args), args.concurrency, args.latency, pages=args.pages, rounds=args.rounds
    )
    print(growth.table(rows))
    _write("transit", rows)
    plot.lines(rows, "concurrency", "latency", RESULTS / "transit.png")


def _pair(args: argparse.Namespace) -> None:
    rows = pair.measure(_shape(args), pages=args.pages, rounds=args.rounds)
    print(growth.table(rows))
    _write("pair", rows)
    plot.processes(rows, RESULTS / "pair.png")


def _trees(args: argparse.Namespace) -> None:
    if args.other is None:
        raise SystemExit("trees: give the folder of the other checkout by --other")
    rows = trees.measure(_shape(args), args.other, pages=args.pages, rounds=args.rounds)
    print(f"{rows['ratio']:.3f} of the pages of {args.other}; rounds {rows['rounds']}")
    _write("trees", rows)


def _databases(args: argparse.Namespace) -> None:
    figures = databases.measure(args.pages, args.rounds, args.scratch)
    print(json.dumps(figures))
    _write("databases", figures)


def _duplicates(args: argparse.Namespace) -> None:
    rows = list(duplicates.measure(args.urls, args.scratch))
    print(growth.table(rows))
    _write("duplicates", rows)


def _search_index(args: argparse.Namespace) -> None:
    if args.keep is not None and len(args.urls) > 1:
        raise SystemExit("search-index: one number of --urls alone can be kept by --keep")
    figures = [search.made(count, args.scratch, args.keep) for count in args.urls]
    figures.append(search.warc(args.pages, args.rounds, args.scratch))
    for each in figures:
        print(corpus.table(each))
    _write("search-index", figures)


def _search_quality(args: argparse.Namespace) -> None:
    figures = search_quality.measure(args.queries or search_quality.QUERIES, args.scratch)
    print(search_quality.table(figures))
    _write("search-quality", figures)


def _search_latency(args: argparse.Namespace) -> None:
    if args.index is None:
        raise SystemExit("search-latency needs an index: give its folder with --index")
    figures = search_latency.measure(args.index, args.queries or search_latency.QUERIES)
    print(search_latency.table(figures))
    _write("search-latency", figures)


def _follow(args: argparse.Namespace) -> None:
    figures = follow.measure(_shape(args), pages=args.pages, rounds=args.rounds)
    print(corpus.table(figures))
    _write("follow", figures)


def _follow_catalogue(args: argparse.Namespace) -> None:
    shape = _shape(args)
    figures = follow.measure(shape, pages=args.pages, rounds=args.rounds, program="catalogue")
    print(corpus.table(figures))
    _write("follow-catalogue", figures)


def _beside(args: argparse.Namespace) -> None:
    rows = beside.measure(_shape(args), pages=args.pages, rounds=args.rounds, floods=args.floods)
    print(growth.table(rows))
    _write("beside", rows)


def _profile(args: argparse.Namespace) -> None:
    profile.record(_shape(args), args.pages, RESULTS / "profile.svg", flame=True)
    raw = RESULTS / "profile.txt"
    ticks = profile.record(_shape(args), args.pages, raw, flame=False)
    print(profile.top(profile.stacks(raw), ticks))
    print(f"\nFlame graph: {RESULTS / 'profile.svg'}")


def _stages(args: argparse.Namespace) -> None:
    figures = stages.measure(_shape(args), args.pages, RESULTS)
    print(stages.table(figures))
    _write("stages", figures)


def _recrawl(args: argparse.Namespace) -> None:
    if args.sets:
        days = 365
        figures = recrawl.measure(histories(sorted(args.sets.iterdir()), days), days)
    else:
        figures = recrawl.measure(web(), our_crawl=recrawl.OnFrontier())
        recrawl.plot(figures, RESULTS / "recrawl.svg")
    print(recrawl.table(figures))
    _write("recrawl", figures)


def _requisites(_: argparse.Namespace) -> None:
    figures = requisites.measure()
    print(requisites.table(figures))
    _write("requisites", figures)


def _ring(_: argparse.Namespace) -> None:
    figures = ringsim.measure()
    print(ringsim.table(figures))
    _write("ring", figures)


def _forwarding(args: argparse.Namespace) -> None:
    rows = [
        forwarding.measure(args.rounds, sink, scratch=args.scratch) for sink in forwarding.SINKS
    ]
    print("\n\n".join(map(forwarding.table, rows)))
    _write("forwarding", rows)


def _handover(args: argparse.Namespace) -> None:
    rows = handover.measure(args.hosts[0], args.urls[0], args.scratch)
    print(handover.table(rows))
    _write("handover", rows)


def _join(args: argparse.Namespace) -> None:
    figures = join.measure(args.hosts[0], args.urls[0], args.scratch)
    print(join.table(figures))
    _write("join", figures)


def _control(args: argparse.Namespace) -> None:
    figures = control.measure(args.urls[0], args.rounds, args.scratch)
    print(control.table(figures))
    _write("control", figures)


def _hostile(args: argparse.Namespace) -> None:
    rows = hostile.measure_all(args.attacks)
    print(hostile.table(rows))
    _write("hostile", rows)


def _soak(args: argparse.Namespace) -> None:
    rows = soak.measure(args.seconds, RESULTS, args.busy)
    print(soak.summary(rows))
    _write("soak", rows)
    soak.plot(rows, RESULTS / "soak.png")


def _all(args: argparse.Namespace) -> None:
    for measure in (_frontier, _page, _archive, _crawl):
        measure(args)


def _shape(args: argparse.Namespace) -> Shape:
    return Shape(
        hosts=args.hosts[0],
        per_host=args.per_host,
        tls=args.tls,
        gzip=args.gzip,
        missing=args.missing,
        names=args.names,
        latency=args.latency[0],
        small=args.small,
    )


WHAT: dict[str, Callable[[argparse.Namespace], None]] = {
    "all": _all,
    "frontier": _frontier,
    "page": _page,
    "archive": _archive,
    "corpus": _corpus,
    "corpus-quality": _corpus_quality,
    "control": _control,
    "crawl": _crawl,
    "databases": _databases,
    "duplicates": _duplicates,
    "follow": _follow,
    "follow-catalogue": _follow_catalogue,
    "beside": _beside,
    "gemini": _gemini,
    "graph": _graph,
    "growth": _growth,
    "transit": _transit,
    "pair": _pair,
    "trees": _trees,
    "profile": _profile,
    "stages": _stages,
    "recrawl": _recrawl,
    "requisites": _requisites,
    "rows": _rows,
    "search-index": _search_index,
    "search-latency": _search_latency,
    "search-quality": _search_quality,
    "sheets": _sheets,
    "ring": _ring,
    "forwarding": _forwarding,
    "handover": _handover,
    "join": _join,
    "hostile": _hostile,
    "soak": _soak,
}
# Defaults of single benchmarks that differ from the common ones.
_OWN: dict[str, dict[str, Any]] = {
    "beside": {"rounds": 10, "pages": 2_000_000, "per_host": 2000},
    "control": {"urls": [1_000_000], "rounds": 20},
    "databases": {"pages": 20_000, "rounds": 10},
    "duplicates": {"urls": [100_000, 1_000_000, 2_000_000]},
    "follow": {"rounds": 2, "pages": 150_000},
    "follow-catalogue": {"rounds": 2, "pages": 150_000},
    "gemini": {"hosts": [200], "pages": 20_000, "rounds": 3},
    "growth": {"hosts": [200, 2000, 20_000], "rounds": 1, "pages": 200_000},
    "rows": {"urls": [50_000_000], "queued_hosts": [500_000]},
    "join": {"hosts": [join.HOSTS], "urls": [join.URLS]},
    "handover": {"hosts": [handover.HOSTS], "urls": [handover.URLS]},
    "search-index": {"urls": [1_000_000], "pages": 2000},
    "sheets": {"pages": 8000, "rounds": 5},
    "trees": {"hosts": [80], "pages": 4000, "rounds": 12},
    "transit": {
        "concurrency": [50, 200, 500, 1000, 2000],
        "latency": [0.0, 0.1, 1.0],
        "rounds": 1,
        "pages": 20_000,
    },
}


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Show the defaults, and the list of benchmarks as it is written."""


def _parser(what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=_HelpFormatter,
    )
    add = parser.add_argument
    add("what", nargs="?", choices=WHAT, default="all")
    add(
        "--rounds",
        "--runs",
        type=int,
        default=3,
        help="number of runs; the figures are their medians",
    )
    add("--scratch", type=Path, help="folder for temporary files")
    add("--other", type=Path, help="trees: the other checkout")
    queued = parser.add_argument_group("frontier, page, duplicates, handover, join").add_argument
    queued("--urls", type=int, nargs="+", default=[10_000, 1_000_000], help="URLs queued")
    queued("--queued-hosts", type=int, nargs="+", default=[0], help="0: one host per 4 URLs")
    add = parser.add_argument_group(
        "corpus, crawl, follow, growth, transit, profile, stages, handover"
    ).add_argument
    add("--pages", type=int, default=10_000, help="pages of a run")
    add("--crawlers", "--contenders", nargs="+", choices=CRAWLERS, default=list(CRAWLERS))
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="for krowlspider only")
    add("--hosts", type=int, nargs="+", default=[2000], help="hosts of the web; hosts to hand over")
    add("--per-host", type=int, default=100, help="pages of a host; growth: 400,000 pages in all")
    add("--concurrency", type=int, nargs="+", default=[256], help="requests in flight")
    add("--latency", type=float, nargs="+", default=[0.0], help="seconds before an answer")
    add("--tls", action="store_true", help="https only")
    add("--gzip", action="store_true", help="gzip-coded pages")
    add("--small", action="store_true", help="pages of 5 kB")
    add("--missing", type=float, default=0.0, help="share of pages that are 404")
    add("--names", action="store_true", help="hosts with names and a name server; krowlspider only")
    add = parser.add_argument_group("corpus").add_argument
    add("--quality", action="store_true", help="compare texts with the sources of the pages")
    add("--peers", action="store_true", help="compare its rate with others' (--pages 200)")
    add("--sets", type=Path, help="corpus-quality: checkouts (bench/labelled.py); recrawl: clones")
    add = parser.add_argument_group("search-index").add_argument
    add("--keep", type=Path, metavar="DIR", help="make the index there, and leave it")
    add = parser.add_argument_group("search-latency, search-quality").add_argument
    add("--index", type=Path, help="search-latency: a folder that scrapy index has made")
    add("--queries", type=int, default=0, help="queries of a kind; 0: as many as are usual")
    add = parser.add_argument_group("graph").add_argument
    add("--links", type=int, default=10_000_000, help="links between hosts")
    add = parser.add_argument_group("beside").add_argument
    add("--floods", nargs="+", choices=beside.ALL, default=list(beside.ALL), help="what to measure")
    add = parser.add_argument_group("hostile, soak").add_argument
    add("--attacks", nargs="+", choices=ATTACKS, default=[], help="default: all")
    add("--seconds", type=float, default=3600.0, help="duration of the soak")
    add("--busy", type=int, default=0, help="processes beside the soak, in its second third")
    parser.set_defaults(**_OWN.get(what, {}))
    return parser


def main() -> None:
    what = _parser("all").parse_args().what
    args = _parser(what).parse_args()
    exit_on_sigterm()
    RESULTS.mkdir(exist_ok=True)
    WHAT[what](args)


if __name__ == "__main__":
    main()
