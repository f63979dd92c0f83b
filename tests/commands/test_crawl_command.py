"""``scrapy crawl`` before the crawl begins."""

import signal
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
    "hook",
    [
        "from krowlspider.errors import report_interrupts; report_interrupts()",
        "import site; site.addpackage('deploy', 'krowlspider.pth', None)",
    ],
)
def test_ctrl_c_in_a_callback_of_a_weak_reference_counts(hook: str):
    """Such as that of a lock of the import system. Python prints the exception and goes on."""
    script = f"""
import signal, sys, weakref
{hook}
gone = type("Gone", (), {{}})()
reference = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGINT))
del gone
print("lost", file=sys.stderr)
"""
    # Without the venv's own copy of the file.
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == "krowlspider: interrupted\n"
    assert done.returncode == -signal.SIGINT


def test_closed_streams_are_the_null_device():
    """No file that is opened later gets the number of one."""
    script = """
import os, sys
from krowlspider.errors import replace_closed_streams
replace_closed_streams()
print("nobody reads this", file=sys.stderr)
os._exit(os.open(os.devnull, os.O_RDONLY))
"""
    closing = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script]
    assert subprocess.run(closing, cwd=ROOT, check=False).returncode > 2
