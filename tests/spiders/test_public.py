"""Projects as public ones are: with the three lines of the add-on, each does the same as with
Scrapy alone. docs/spiders.md has the table."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.support.crawling import CONTACT, DEADLINE, ROOT, SETTINGS
from tests.support.installed import installed
from tests.support.proxy import TestProxy
from tests.support.publicsite import PublicSite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PROJECTS = ROOT / "tests" / "spiders" / "public"


@dataclass(frozen=True)
class Case:
    """The commands of a project, the number of its items, and that of its other files.

    Without commands it is ``scrapy crawl NAME -O out/items.jsonl``.
    """

    items: int
    commands: Sequence[str] = ()
    files: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    # Requests that go through the proxy.
    proxied: int = 0


CASES = {
    "quotes": Case(34, ["runspider tutorial/spiders/quotes.py -O out/items.jsonl"]),
    "books": Case(12, files=24),
    "login": Case(4),
    "api": Case(15),
    "sitemap": Case(12),
    "stations": Case(8, ["crawl stations -O out/items.csv"]),
    "authors": Case(4, files=1),
    "proxied": Case(30, proxied=4),
    "files": Case(4, files=4),
    "shop": Case(12),
    "products": Case(12),
    "scroll": Case(34),
    "statuses": Case(7),
    "catalogue": Case(6),
    "ranked": Case(7, ["crawl ranked -a folder=out"], files=1),
    "bookshelf": Case(
        8,
        [
            "crawl shelf -a stock=1 -a pages=2 -O out/items.jsonl",
            "crawl writers -a born_after=1601 -o out/items.jsonl",
        ],
        files=2,
    ),
    "exports": Case(31, ["crawl exports"], files=6),
    "reports": Case(8, files=1),
    "delta": Case(12, ["crawl delta -o out/items.jsonl"] * 2, files=1),
    "stages": Case(30, ["crawl stages"], environment={"SCRAPY_PROJECT": "staging"}),
    "wide": Case(19),
}
QUICK = "login"
# Settings of `SETTINGS` for a site on loopback. All else is as the project has it.
ON_LOOPBACK = {
    *("KROWL_ALLOW_ADDRESSES", "KROWL_IP_CONCURRENCY", "KROWL_IP_DELAY_MIN", "KROWL_DELAY_MIN"),
    *("KROWL_DELAY_FACTOR", "KROWL_RETRY_DELAY", "KROWL_COMMIT_INTERVAL", "KROWL_DISK_FLOOR"),
    *("TELNETCONSOLE_ENABLED", "PROMETHEUS_PORT"),
}
ROBOTS = ("GET", "/robots.txt")
# Scrapy fetches the Public Suffix List when a cookie comes. Port 9 does not answer.
STOCK = {"https_proxy": "http://127.0.0.1:9"}


def scrapy(folder: Path, command: str, environment: Mapping[str, str], code: int = 0) -> str:
    """Run a command in the folder of a project; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", *shlex.split(command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}"
    return done.stdout


def copied(name: str, site: PublicSite, folder: Path, *, stock: bool) -> dict[str, str]:
    """Copy a project to a new folder, with the three lines or without; return the environment of
    its commands."""
    shutil.copytree(PROJECTS / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "out").mkdir()
    environment = installed(folder.parent / "site") | {"SITE": site.url}
    if stock:
        return environment | STOCK
    scrapy(folder, f"krowl init --contact {CONTACT}", environment | CASES[name].environment)
    return environment


@dataclass
class Result:
    """What a project asked for, and what it left in ``out/``."""

    requests: list[tuple[str, str]]
    files: dict[str, object]


def crawl(name: str, site: PublicSite, folder: Path, *, stock: bool) -> Result:
    """Run the commands of a project: as it is, or with the three lines."""
    case = CASES[name]
    environment = copied(name, site, folder, stock=stock) | case.environment
    # The template's delay of a second makes no difference to the items.
    settings = {"DOWNLOAD_DELAY": "0"}
    if not stock:
        settings |= {each: str(value) for each, value in SETTINGS.items() if each in ON_LOOPBACK}
    site.asked.clear()
    with TestProxy() as proxy:
        settings["PROXIES"] = proxy.url()
        options = " ".join("-s {}={}".format(*each) for each in settings.items())
        for command in case.commands or [f"crawl {name} -O out/items.jsonl"]:
            log = scrapy(folder, f"{command} {options}", environment)
            assert stock or " ERROR: " not in log
        assert len(proxy.passed) == case.proxied
    assert ROBOTS in site.asked
    out = folder / "out"
    return Result(
        # With a JOBDIR, robots.txt is fetched once for several commands.
        requests=sorted(each for each in site.asked if each != ROBOTS),
        files={
            str(path.relative_to(out)): content_of(path)
            for path in out.rglob("*.*")
            if path.is_file()
        },
    )


def content_of(path: Path) -> object:
    """Return the content of a file; the rows of a feed and of a table sorted, because they come in
    any order."""
    if path.suffix == ".db":
        with closing(sqlite3.connect(path)) as connection:
            (table,) = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return sorted(connection.execute(f"SELECT * FROM {table[0]}"))
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        return sorted(json.dumps(json.loads(line), sort_keys=True) for line in content.splitlines())
    if path.suffix == ".gz":
        return sorted(gzip.decompress(content).splitlines())
    return sorted(content.splitlines()) if path.suffix in {".csv", ".xml"} else content


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in CASES]
)
def test_a_public_project_does_the_same_here(name: str, tmp_path: Path) -> None:
    """The same requests, items, feeds, media files and rows of databases."""
    with PublicSite() as site:
        stock = crawl(name, site, tmp_path / "stock", stock=True)
        ours = crawl(name, site, tmp_path / "ours", stock=False)
    assert ours == stock
    (items,) = (rows for path, rows in ours.files.items() if path.startswith("items."))
    assert isinstance(items, list)
    # A CSV begins with a line of names.
    assert len(items) - ("items.csv" in ours.files) == CASES[name].items
    assert len(ours.files) == CASES[name].files + 1


@pytest.mark.slow
def test_the_whole_template_does_the_same_here(tmp_path: Path) -> None:
    """Each setting that `scrapy startproject` writes as a comment is on, but two: the User-Agent
    names no contact, and its spider middleware fails with Scrapy too."""
    found = []
    spider = (PROJECTS / "quotes" / "tutorial" / "spiders" / "quotes.py").read_text()
    with PublicSite() as site:
        for stock in (True, False):
            folder = tmp_path / str(stock)
            folder.mkdir()
            environment = installed(tmp_path / "site") | {"SITE": site.url}
            scrapy(folder, "startproject tutorial .", environment)
            path = folder / "tutorial" / "settings.py"
            text = re.sub(r'(?m)^#(?=[A-Z_]+ = |    "|\})', "", path.read_text())
            text = re.sub(r"(?m)^USER_AGENT = .*\n|^.*TutorialSpiderMiddleware.*\n", "", text)
            # In place of its seconds.
            path.write_text(f"{text}AUTOTHROTTLE_START_DELAY = DOWNLOAD_DELAY = 0\n")
            path.with_name("__init__.py").write_text(f"SITE = {site.url!r}\n")
            (folder / "tutorial" / "spiders" / "quotes.py").write_text(spider)
            options = ""
            if not stock:
                scrapy(folder, f"krowl init --contact {CONTACT}", environment)
                options = " ".join(f"-s {name}={SETTINGS[name]}" for name in sorted(ON_LOOPBACK))
            site.asked.clear()
            scrapy(folder, f"crawl quotes -O items.jsonl {options}", environment)
            found.append((sorted(site.asked), content_of(folder / "items.jsonl")))
    assert found[0] == found[1]
    assert isinstance(found[1][1], list)
    assert len(found[1][1]) == 34


@pytest.mark.slow
def test_contracts_of_a_public_spider_hold_here(tmp_path: Path) -> None:
    with PublicSite() as site:
        for stock in (True, False):
            folder = tmp_path / str(stock)
            log = scrapy(folder, "check shop", copied("shop", site, folder, stock=stock))
            assert re.search(r"Ran 3 contracts in [\d.]+s\s+OK\s", log), log


def test_the_table_has_every_public_project() -> None:
    page = (ROOT / "docs" / "spiders.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \| (\d+) \|", page, re.MULTILINE)
    assert rows == [(name, str(case.items), str(case.items)) for name, case in CASES.items()]
    found = {path.parent.name for path in PROJECTS.glob("*/scrapy.cfg")}
    assert found == {*CASES, "redisqueue"}
