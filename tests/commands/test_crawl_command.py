"""``scrapy crawl`` before the crawl begins."""

import signal
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


def test_ctrl_c_while_a_command_starts_is_one_line():
    script = (
        "import krowlspider.commands, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == "krowlspider: interrupted\n"
    assert done.returncode == -signal.SIGINT
