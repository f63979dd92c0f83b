"""A crawl loads only what it needs: no other command, cluster client, proxy or web server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.crawling import ROOT

LOOK = """
import asyncio, json, sys
from scrapy.cmdline import execute
try:
    execute(["scrapy", "crawl", "--help"])
except SystemExit:
    pass
command = sorted(sys.modules)
import krowlspider.engine.handler, krowlspider.fetch.client
import krowlspider.extensions.live_page, krowlspider.extensions.metrics
from krowlspider.job.monitoring.page_server import PageServer, ListenAddress
served = asyncio.run(PageServer([]).serve(ListenAddress("127.0.0.1", range(1))))
print(json.dumps([command, sorted(sys.modules), served]))
"""


@pytest.fixture(scope="module")
def look() -> tuple[list[str], list[str], str]:
    """Return what the command has loaded, what the parts of a crawl have, and a served address."""
    run = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    command, crawl, served = json.loads(run.stdout.splitlines()[-1])
    return command, crawl, served


def test_a_start_imports_no_program_of_another_command(
    look: tuple[list[str], list[str], str],
) -> None:
    loaded = look[0]
    assert "krowlspider.commands.corpus" in loaded
    others = ("krowlspider.corpus", "krowlspider.archive.tools.wacz")
    programs = [name for name in loaded if name.startswith("krowlspider.programs.")]
    assert programs == ["krowlspider.programs.deferred"]
    assert not [name for name in loaded if name.startswith(others)]
    assert not {"redis", "consul"} & set(loaded)


def test_crawl_without_proxies_imports_nothing_for_them(
    look: tuple[list[str], list[str], str],
) -> None:
    assert "krowlspider.fetch.client" in look[1]
    assert not [name for name in look[1] if name.startswith("krowlspider.fetch.proxy")]


def test_a_crawl_that_signs_nothing_imports_no_signatures(
    look: tuple[list[str], list[str], str],
) -> None:
    assert "krowlspider.job.parts" in look[1]
    assert "krowlspider.fetch.signing" not in look[1]


def test_no_web_server_is_loaded_without_a_client(look: tuple[list[str], list[str], str]) -> None:
    """aiohttp would take a tenth of the CPU time of a start."""
    _, loaded, served = look
    assert served.startswith("http://127.0.0.1:")
    assert "aiohttp" not in loaded
