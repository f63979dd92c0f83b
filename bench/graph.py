"""Measure ``scrapy graph``: the graph of many links, from files of links, and links of WARC files.

The links are made. There are a tenth as many hosts as links, each of a domain of its own, so the
graph of domains is as large as that of hosts. Few hosts have most of the links: host number ``n *
x**3`` for x of chance is linked to, and ``n * x**2`` links. Each of 16 files has links of its own,
and some that another one has too. One process on the crawlers' core merges the files, computes the
ranks of hosts and domains, and writes both graphs. ``errors`` are those of HyperBall at the hosts
that rank first, whose centralities are then computed exactly, each by a search from it.

The pages of the WARC file have 40 KB of HTML and 77 links, of which 20 lead to other hosts.
"""

from __future__ import annotations

import gzip
import json
import random
import resource
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bench.process import measured
from krowlspider.graph import link_files
from krowlspider.graph.adjacency import Graph
from krowlspider.graph.build import LEVELS, GraphFolder, built
from tests.corpus.warcs import prose, response

FILES = 16
_HOSTS_A_LINK = 0.1
_EXACT = 20
_SUFFIXES = ("com", "de", "net", "org")


def measure(links: int, pages: int, scratch: Path | None = None) -> dict[str, Any]:
    """Return seconds, CPU seconds and peak memory of a graph of about ``links`` links, and the
    seconds of CPU for the links of a WARC file of ``pages`` pages."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        _make_parts(folder / "graph", links)
        made = sum(each.stat().st_size for each in (folder / "graph/links").iterdir())
        figures = _run("build", folder)
        warc = _make_warc(folder / "pages.warc.gz", pages)
        return {
            **figures,
            "parts_mb": made // 1_000_000,
            "warc": {**_run("take", folder), "pages": pages, "mb": warc // 1_000_000},
        }


def _run(what: str, folder: Path) -> dict[str, Any]:
    log = folder / f"{what}.log"
    usage = measured([sys.executable, "-m", "bench.graph", what, folder], log)
    told: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return {
        "seconds": usage.seconds,
        "cpu_seconds": usage.cpu_seconds,
        "rss_mb": usage.rss_mb,
        **told,
    }


def _make_parts(folder: Path, links: int) -> None:
    with closing(GraphFolder(folder)):
        pass
    chance = np.random.default_rng(1)
    size = max(int(links * _HOSTS_A_LINK), 10)
    names = sorted(
        f"{_SUFFIXES[number % 4]}.site{number // 3:07}.h{number % 3}" for number in range(size)
    )
    ranked = chance.permutation(size)
    for file in range(FILES):
        # Some of them twice, or to the host itself.
        count = int(links / FILES * 1.1)
        sources = ranked[(size * chance.random(count) ** 2).astype(np.int64)]
        targets = ranked[(size * chance.random(count) ** 3).astype(np.int64)]
        kept = sources != targets
        ends = np.stack((sources[kept], targets[kept]))
        own, places = np.unique(ends, return_inverse=True)
        places = places.reshape(ends.shape).astype(np.uint64)
        keys = np.unique(places[0] << np.uint64(32) | places[1])
        path = folder / "links" / f"{file}{link_files.SUFFIX}"
        link_files.write_sorted(path, [names[each] for each in own], keys)


def _make_warc(path: Path, pages: int) -> int:
    chance = random.Random(1)
    text = [prose(seed, 80) for seed in range(77)]
    with path.open("wb") as file:
        for number in range(pages):
            others = [f"https://www.site{chance.randrange(100_000)}.com/page" for _ in range(20)]
            hrefs = [*others, *(f"/page/{each}" for each in range(57))]
            body = "".join(
                f"<p>{words} <a href='{href}'>a link</a></p>"
                for words, href in zip(text, hrefs, strict=True)
            )
            page = f"<!doctype html><html><head><title>A page</title></head><body>{body}"
            url = f"https://www.host{number % 50}.org/{number}"
            file.write(gzip.compress(response(url, page.encode()), 3))
    return path.stat().st_size


def _build(folder: Path) -> dict[str, Any]:
    """Make the graph in this process; return the CPU seconds of its steps, and its figures."""
    steps: dict[str, float] = {}
    begun = time.process_time()

    def step(name: str) -> None:
        nonlocal begun
        now = time.process_time()
        steps[name], begun = now - begun, now

    found: dict[str, Any] = {"steps": steps}
    with closing(GraphFolder(folder / "graph")) as graph:
        hosts, names = graph.merge()
        step("merge")
        for level in LEVELS:
            made = built(level, hosts, names)
            step(f"ranks of {level}s")
            graph.write(made)
            step(f"files of {level}s")
            found[level] = {
                "vertices": made.graph.size,
                "links": len(made.graph.sources),
                "rounds": made.centralities.rounds,
                "deviation": made.centralities.deviation,
                "pagerank_rounds": made.pageranks.rounds,
            }
            if level == "host":
                first = made.ranks.order()[:_EXACT].tolist()
                values = made.centralities.values[first].tolist()
            del made
    found["rss_at_end_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    begun = time.process_time()
    by_target = _reversed(hosts)
    exact = [_exact(by_target, each) for each in first]
    step("exact")
    errors = [abs(ours - true) / true for ours, true in zip(values, exact, strict=True)]
    found["errors"] = {"mean": float(np.mean(errors)), "max": max(errors)}
    return found


def _reversed(graph: Graph) -> Graph:
    sources, targets = graph.into()
    return Graph(graph.size, targets, sources)


def _exact(by_target: Graph, vertex: int) -> float:
    """Return the harmonic centrality of a vertex by a breadth-first search against the links."""
    seen = np.zeros(by_target.size, np.bool_)
    seen[vertex] = True
    border, total, distance = np.array([vertex]), 0.0, 0
    while len(border):
        distance += 1
        found = np.unique(by_target.links_from(border)[1])
        border = found[~seen[found]].astype(np.int64)
        seen[border] = True
        total += len(border) / distance
    return total


def _take(folder: Path) -> dict[str, Any]:
    begun = time.process_time()
    with closing(GraphFolder(folder / "taken")) as graph:
        part = graph.take(folder / "pages.warc.gz", print)
    return {"take": time.process_time() - begun, "hosts": part.names, "links": part.links}


def table(figures: dict[str, Any]) -> str:
    rows = [f"{name:>18} {seconds:8.1f} s" for name, seconds in figures["steps"].items()]
    warc, errors = figures["warc"], figures["errors"]
    rows += [f"{level}: {figures[level]}" for level in LEVELS]
    # The exact search is no part of the command.
    whole = sum(figures["steps"].values()) - figures["steps"]["exact"]
    rows.append(
        f"in all {whole:.1f} s of CPU, {figures['rss_at_end_mb']} MB; error of the first"
        f" {_EXACT}: mean {errors['mean']:.2%}, largest {errors['max']:.2%}"
    )
    rows.append(
        f"WARC: {warc['pages'] / warc['take']:.0f} pages a CPU second"
        f" ({warc['pages']} pages, {warc['mb']} MB, {warc['links']} links), {warc['rss_mb']} MB"
    )
    return "\n".join(rows)


if __name__ == "__main__":
    print(json.dumps({"build": _build, "take": _take}[sys.argv[1]](Path(sys.argv[2]))))
