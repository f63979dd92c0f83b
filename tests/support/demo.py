"""``make demo``: crawl a mock web on this machine, offline, and check the archive.

It starts the mock web of the tests on loopback, runs ``scrapy crawl broad`` as a user does and
shows its log. Then it validates the WARC files and compares the pages fetched with the reachable
ones.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from krowlspider.archive.tools.check import check_folder
from tests.mockweb.audit import violations
from tests.mockweb.client import MockWeb
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.oracle import reachable
from tests.support.crawling import ROOT, Crawl, frontier_view, write_seeds

# Without Crawl-delay of a second, the crawl ends within a minute.
GRAPH = Graph(hosts=150, pages=40, seed=42, features=DEFAULT_FEATURES - {"crawl_delay"})
DELAY = 0.25
SETTINGS = {
    "KROWL_DELAY_MIN": DELAY,
    "KROWL_COMMIT_INTERVAL": 1,
    "KROWL_STATUS_INTERVAL": 5,
    "STATS_CLASS": "scrapy.statscollectors.MemoryStatsCollector",
}


def main() -> int:
    """Run the demo. Return the exit status: 0 if all checks pass."""
    with (
        tempfile.TemporaryDirectory(prefix="krowlspider-demo-") as scratch,
        MockWeb(graph=GRAPH) as web,
    ):
        folder = Path(scratch)
        seeds = write_seeds(folder / "seeds.txt", web.seeds()[:3])
        print(
            f"A mock web of {GRAPH.hosts} hosts is on 127.0.0.0/8, port {web.port}; three seeds.\n"
        )
        crawl = Crawl(folder / "job", arguments={"seeds": seeds}, settings=SETTINGS)
        if code := subprocess.run(crawl.command(), cwd=ROOT, check=False).returncode:
            print(f"The crawl ended with exit code {code}")
            return code
        return _judge(crawl, web)


def _judge(crawl: Crawl, web: MockWeb) -> int:
    view = frontier_view(crawl.jobdir)
    print(f"\nFrontier afterwards: {view['queued']} URLs queued, {view['done']} done")
    report = check_folder(crawl.jobdir / "warc")
    print(
        f"WARC check: {report.files} files, {report.records} records,"
        f" {len(report.problems)} problems"
    )
    differences = reachable(web.graph, web.seeds()[:3]).differences(web.log())
    print(
        f"Compared with the reachable pages: {len(differences)} differences"
        f" in {len(web.log())} requests"
    )
    impolite = violations(web.log(), min_delay=DELAY)
    print(f"Politeness audit of the server's log: {len(impolite)} violations")
    found = [*map(str, report.problems), *differences, *impolite]
    print("\n".join(found[:20]), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
