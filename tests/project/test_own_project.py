"""docs/own-project.md as a reader follows it: an empty folder, the wheel, `scrapy startproject`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.addon.installed import build_wheel, copy_source, environment, make_venv
from tests.mockweb import MockWeb
from tests.support.crawling import CONTACT, ROOT
from tests.support.crawls import page
from tests.support.documented import commands

PAGE = ROOT / "docs" / "own-project.md"
PAGES, EACH = 10, 10
INSTALL = [
    "python3 -m venv .venv",
    ".venv/bin/python -m pip install ../krowlspider",
    ".venv/bin/scrapy startproject shop .",
]
CRAWL = ".venv/bin/scrapy crawl quotes -o quotes.jsonl"


def quotes_on(number: int) -> str:
    quotes = "".join(f"<p class=quote>Thought {number}-{each}</p>" for each in range(EACH))
    return quotes + (f'<a class=next href="/{number + 1}">on</a>' if number + 1 < PAGES else "")


WEB = [page("/", quotes_on(0)), *(page(f"/{n}", quotes_on(n)) for n in range(1, PAGES))]


class Reader:
    """Does what the page says, in a folder. Names of hosts have the port of the mock web."""

    def __init__(self, folder: Path, web: MockWeb):
        self.folder, self._web = folder, web
        # A web on loopback needs these, and no other setting.
        self._environment = environment(
            KROWL_ALLOW_ADDRESSES="127.0.0.0/8",
            KROWL_RESOLVE=json.dumps({"example.org": "127.0.0.1"}),
        )

    def put(self, text: str) -> str:
        text = text.replace("https://example.org/", self._web.url("example.org", "/"))
        return text.replace("you@example.org", CONTACT)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", f"exec {self.put(command)}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, command: str) -> str:
        return self.ended(self.start(command))

    def ended(self, process: subprocess.Popen[bytes]) -> str:
        try:
            output = process.communicate(timeout=150)[0].decode()
        finally:
            process.kill()
        assert process.returncode == 0, output[-5000:]
        return output

    def items(self) -> list[dict[str, str]]:
        path = self.folder / "quotes.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_leads_to_a_hundred_items_and_their_archive(tmp_path: Path) -> None:
    """Ctrl-C in the middle. Every item once, every page once, at the template's delay."""
    *install, init, first, again, frontier, check, cat = commands(PAGE)
    assert (install, first, again) == (INSTALL, CRAWL, CRAWL)
    spider, lines = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    folder = tmp_path / "own"
    wheel = build_wheel(copy_source(tmp_path / "krowlspider"), tmp_path / "wheel")
    make_venv(wheel, folder / ".venv")
    put_scrapy(folder / ".venv")
    with MockWeb(spec=WEB) as web:
        reader = Reader(folder, web)
        reader.run(install[-1])
        (folder / "shop" / "spiders" / "quotes.py").write_text(reader.put(spider))
        template = (folder / "shop" / "settings.py").read_text()
        said = reader.run(init)
        assert "A start is refused" not in said
        assert "What differs:" not in said
        settings = (folder / "shop" / "settings.py").read_text()
        assert settings == template.replace("ADDONS = {}\n", reader.put(lines))
        process = reader.start(first)
        end = time.monotonic() + 100
        while len(reader.items()) < 3 * EACH and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        reader.ended(process)
        stopped = len(reader.items())
        assert 3 * EACH <= stopped < PAGES * EACH
        reader.run(again)
        items, asked = reader.items(), web.log()
        assert len(items) == PAGES * EACH
        assert {item["quote"] for item in items} == {
            f"Thought {n}-{each}" for n in range(PAGES) for each in range(EACH)
        }
        paths = [entry.path for entry in asked]
        assert sorted(paths) == sorted(["/robots.txt", "/", *(f"/{n}" for n in range(1, PAGES))])
        begun = sorted(entry.start for entry in asked if entry.path != "/robots.txt")
        assert all(later - earlier >= 1 for earlier, later in pairwise(begun))
        assert "queued   0" in reader.run(frontier)
        # A warcinfo for each start; request and response of each page and of robots.txt.
        assert (
            reader.run(check) == f"2 files, {2 + 2 * (PAGES + 1)} records: 0 problems, 0 warnings\n"
        )
        assert "Thought 0-9" in reader.run(cat)


def put_scrapy(venv: Path) -> None:
    """Put the program into the venv that pip would put there with Scrapy."""
    program = Path(sys.executable).with_name("scrapy")
    lines = program.read_text().split("\n", 1)
    target = venv / "bin" / "scrapy"
    target.write_text(f"#!{venv / 'bin' / 'python'}\n{lines[1]}")
    target.chmod(0o755)
