"""``make bench``: the frontier at growing sizes, then a whole crawl of real pages, each printed and written as JSON.

``python -m bench frontier --urls 1000000 10000000`` and ``python -m bench crawl`` run one of them, ``page`` the cost of
a page by how much is queued.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import crawl, frontier, page

RESULTS = Path("bench-results")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("all", "frontier", "page", "crawl"), default="all"
    )
    parser.add_argument("--urls", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--hosts", type=int, nargs="+", default=[0], help="0: one for each 4 URLs")
    parser.add_argument("--scratch", type=Path, help="folder for the frontiers")
    parser.add_argument("--runs", type=int, default=3, help="crawls, of which the median counts")
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if args.what in ("all", "frontier"):
        hosts = args.hosts if len(args.hosts) > 1 else args.hosts * len(args.urls)
        rows = [
            frontier.measure(urls, most or urls // 4, args.scratch)
            for urls, most in zip(args.urls, hosts, strict=True)
        ]
        print(frontier.table(rows))
        (RESULTS / "frontier.json").write_text(json.dumps(rows, indent=1))
    if args.what in ("all", "page"):
        rows = [
            page.measure(urls, max(urls // 4, min(urls, page.FEW_HOSTS)), args.scratch)
            for urls in args.urls
        ]
        print(page.table(rows))
        (RESULTS / "page.json").write_text(json.dumps(rows, indent=1))
    if args.what in ("all", "crawl"):
        figures = crawl.measure(args.runs)
        print(crawl.table(figures))
        (RESULTS / "crawl.json").write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
