"""``scrapy crawl`` before the crawl begins."""

import signal
import subprocess
import sys

from tests.support.crawling import ROOT


def test_ctrl_c_while_a_command_starts_is_one_line():
    """From the import of the settings on: the commands are imported next."""
    script = """
import signal, sys
from scrapy.cmdline import execute
class Finder:
    def find_spec(name, *_):
        if name == "krowlspider.commands":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
signal.signal(signal.SIGINT, signal.default_int_handler)
execute(["scrapy", "crawl", "broad"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == "krowlspider: interrupted\n"
    assert done.returncode == -signal.SIGINT
