"""Measure a crawl of capsules without delays: pages a second and for each CPU second.

A page is a new TCP connection and a TLS handshake, as Gemini has it. The server of the capsules
runs on the other core, and is started anew for each run.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.process import measured
from tests.gemini.capsules import CapsuleProcess
from tests.gemini.tree import Tree
from tests.gemini.visits import counts
from tests.support.crawling import Crawl

_SETTINGS = {
    "KROWL_GEMINI": "1",
    "KROWL_DELAY_MIN": "0",
    "KROWL_GEMINI_DELAY_MIN": "0",
    "KROWL_DELAY_FACTOR": "0",
    "KROWL_COMMIT_INTERVAL": "1",
    "LOG_LEVEL": "INFO",
}


def measure(hosts: int, pages: int, rounds: int) -> dict[str, Any]:
    """Return the figures of each crawl of ``pages`` pages of ``hosts`` capsules, and medians."""
    tree = Tree(hosts=hosts, pages=max(pages // hosts, 1))
    runs = []
    for number in range(rounds):
        runs.append(_once(tree))
        print(f"round {number + 1}: {json.dumps(runs[-1])}", flush=True)
    names = ("pages_per_second", "pages_per_cpu_second", "rss_mb")
    medians = {name: statistics.median(run[name] for run in runs) for name in names}
    return {"hosts": tree.hosts, "pages": tree.hosts * tree.pages, **medians, "runs": runs}


def _once(tree: Tree) -> dict[str, Any]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with CapsuleProcess(tree, folder) as server:
            seeds = {"seeds": server.tree.seed}
            crawl = Crawl(folder / "job", arguments=seeds, settings=_SETTINGS, feed=False)
            usage = measured(crawl.command(), crawl.log_path)
            visits = server.stop()
            missing = server.tree.all_pages() - counts(visits).keys()
        pages = tree.hosts * tree.pages - len(missing)
        # Without the start of the process and its end.
        busy = max(each.ended for each in visits) - min(each.opened for each in visits)
        return {
            "pages_per_second": round(pages / busy, 1),
            "pages_per_cpu_second": round(pages / usage.cpu_seconds, 1),
            "rss_mb": usage.rss_mb,
            "connections_per_page": round(len(visits) / pages, 2),
            "missing": len(missing),
        }
