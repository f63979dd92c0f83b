"""`scrapy crawl` does not wait for the imports of other commands."""

import subprocess
import sys

from tests.support.crawling import ROOT

LOOK = """
import sys
from scrapy.cmdline import execute
try:
    execute(["scrapy", "version"])
except SystemExit:
    pass
print(*sorted(name for name in sys.modules if name.startswith("krowlspider.")))
"""


def test_a_start_imports_no_program_of_another_command() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = run.stdout.split()
    assert "krowlspider.commands.corpus" in loaded
    others = ("krowlspider.corpus", "krowlspider.views.top", "krowlspider.archive.tools.wacz")
    programs = [name for name in loaded if name.startswith("krowlspider.programs.")]
    assert programs == ["krowlspider.programs.deferred"]
    assert not [name for name in loaded if name.startswith(others)]
