"""``make demo``: crawl a mock web on this machine, offline, and check the archive.

It starts the mock web of the tests on loopback, runs ``scrapy crawl broad`` as a user does and
shows its log. Then it validates the WARC files and compares the pages fetched with the reachable
ones. The crawl stays in jobs/demo, until the next demo replaces it, with its report.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from krowlspider.archive.tools.check import check_folder
from krowlspider.errors import counted
from tests.mockweb.audit import violations
from tests.mockweb.client import MockWeb
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.oracle import reachable
from tests.support.crawling import Crawl, frontier_view

JOBDIR = Path("jobs/demo")
# Where ``scrapy warc replay`` serves pages.
REPLAY = "http://localhost:8080/crawl/"
# All hosts have as many pages and no long waits: the rate is steady, and the end within a minute.
GRAPH = Graph(hosts=150, pages=20, seed=42, features=DEFAULT_FEATURES - {"crawl_delay", "busy"})
DELAY = 1.0
SETTINGS = {
    "KROWL_DELAY_MIN": DELAY,
    "KROWL_COMMIT_INTERVAL": 1,
    "KROWL_STATUS_INTERVAL": 5,
    "STATS_CLASS": "scrapy.statscollectors.MemoryStatsCollector",
}


def main() -> int:
    """Run the demo. Return the exit status: 0 if all checks pass."""
    if JOBDIR.exists():
        print(f"Replacing {JOBDIR}, the crawl of the last demo.")
        shutil.rmtree(JOBDIR)
    with MockWeb(graph=GRAPH) as web:
        print(
            f"A mock web of {GRAPH.hosts} hosts is on 127.0.0.0/8, port {web.port}; three seeds.\n",
            flush=True,
        )
        seeds = ",".join(web.seeds()[:3])
        crawl = Crawl(JOBDIR, arguments={"seeds": seeds}, settings=SETTINGS, feed=False)
        command = [_scrapy(), *crawl.words(), "-o", str(JOBDIR / "pages.jsonl")]
        if code := subprocess.run(command, check=False).returncode:
            print(f"The crawl ended with exit code {code}")
            return code
        return _judge(crawl, web)


def replay_commands(jobdir: Path) -> list[str]:
    """Return the commands of docs/archive.md that replay a job with pywb."""
    return [
        f"python3 -m venv {jobdir}/replay",
        f"{jobdir}/replay/bin/pip install pywb",
        f".venv/bin/scrapy warc replay {jobdir}",
    ]


def _scrapy() -> str:
    """Return the program as a user types it in the project's folder."""
    program = Path(sys.executable).with_name("scrapy")
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def _judge(crawl: Crawl, web: MockWeb) -> int:
    view = frontier_view(crawl.jobdir)
    print(f"\nFrontier afterwards: {counted(view['queued'], 'URL')} queued, {view['done']:,} done")
    check = check_folder(crawl.jobdir / "warc")
    print(
        f"WARC check: {counted(check.files, 'file')}, {counted(check.records, 'record')},"
        f" {counted(len(check.problems), 'problem')}"
    )
    differences = reachable(web.graph, web.seeds()[:3]).differences(web.log())
    print(
        f"Compared with the reachable pages: {counted(len(differences), 'difference')}"
        f" in {counted(len(web.log()), 'request')}"
    )
    impolite = violations(web.log(), min_delay=DELAY)
    print(f"Politeness audit of the server's log: {counted(len(impolite), 'violation')}")
    found = [*map(str, check.problems), *differences, *impolite]
    if found:
        print("\n".join(found[:20]), file=sys.stderr)
    report = crawl.jobdir / "reports" / "report.html"
    print(
        f"\nThe crawl is kept in {crawl.jobdir}. To see how it went, open {report} in a browser."
        "\nTo replay the pages with pywb:"
    )
    print("".join(f"  {command}\n" for command in replay_commands(crawl.jobdir)), end="")
    print(f"and open {REPLAY}{web.seeds()[0]}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
