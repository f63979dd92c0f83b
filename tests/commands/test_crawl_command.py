"""``scrapy crawl`` before the crawl begins."""

import subprocess
import sys

from tests.support.crawling import ROOT


def test_crawl_command_loads_no_cluster_client():
    script = (
        "import sys; from scrapy.cmdline import execute\n"
        "try: execute(['scrapy', 'crawl', '--help'])\n"
        "finally: print(sorted({'redis', 'consul'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"
