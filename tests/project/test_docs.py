"""The documentation says what is: its commands run, its names and links exist."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import shlex
from collections import Counter
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from scrapy.settings import Settings, default_settings

from krowlspider import settings
from krowlspider.job.meters import STATS
from krowlspider.spiders.broad import BroadSpider
from tests.mockweb import MockWeb
from tests.support import metricsdoc, settingsdoc
from tests.support.crawling import ROOT
from tests.support.debian import program
from tests.support.demo import replay_commands
from tests.support.documented import Copy, commands, pages
from tests.support.tables import table

INDEX = ROOT / "docs" / "decisions" / "README.md"
DECISIONS = [path for path in sorted(INDEX.parent.glob("*.md")) if path != INDEX]
ALL = [*pages(), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", INDEX, *DECISIONS]
# Commands that no test runs from here, by how they begin, and why.
NOT_RUN = {
    "python3 -m venv": "makes an environment",
    ".venv/bin/python -m pip install": "installs from the network",
    "make test": "runs the tests",
    '.venv/bin/pytest -m "not slow"': "runs the tests",
    ".venv/bin/pytest tests/": "runs the tests",
    "make bench": "takes an hour",
    ".venv/bin/python -m bench": "takes minutes; peers come from the network",
    "jobs/default/replay/bin/pip": "installs from the network",
    ".venv/bin/scrapy warc replay": "runs until Ctrl-C: tests/replay/test_other_crawls.py",
    ".venv/bin/scrapy warc upload": "needs a bucket: tests/extensions/test_upload.py",
    ".venv/bin/scrapy seeds": "needs a list: tests/commands/test_seeds.py",
    ".venv/bin/scrapy ring": "needs Consul: tests/cluster",
    ".venv/bin/scrapy top": "needs a crawl that runs: tests/commands/test_top.py",
    ".venv/bin/scrapy node --profile": "needs a crawl that runs: tests/node/test_profile.py",
    "redis-cli": "needs Redis: tests/cluster",
    "sed -e '/^gemini:/!d'": "needs a list: tests/gemini/test_ancestor_urls.py",
}
# Crawls of a cluster, as above, by a setting that they have.
_CLUSTER = ("KROWL_CONSUL=", "KROWL_NODE_ID=")
# Pages whose commands look at a crawl that is there, and the one that they look at.
ON_A_CRAWL = (
    *("frontier-admin.md", "archive.md", "catalogue.md", "corpus.md", "databases.md", "graph.md"),
    "sql.md",
)
CRAWL = "make crawl SEEDS=seeds/example.txt CONTACT=you@example.org"
WEB = [
    {"path": path, "headers": {"Content-Type": "text/html"}, "body": "<a href=/more>more</a>"}
    for path in ("/", "/more")
]
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# A link of the code: `docs/decisions/store.md#...`.
_LINK_OF_CODE = re.compile(r"\b(docs/decisions/[\w-]+\.md)(?:#([\w-]+))?")
_NAME = re.compile(
    r"`((?:krowlspider|extensions|middlewares|tests|bench|docs|deploy)[/\w.-]*)(?:: ([\w.]+))?`"
)


def why_not(command: str) -> str:
    """Why a command is not run; empty for one that is."""
    if "scrapy crawl" in command and any(name in command for name in _CLUSTER):
        return "needs Consul or Redis: tests/cluster"
    return next((reason for start, reason in NOT_RUN.items() if command.startswith(start)), "")


def is_run(page: Path) -> bool:
    """Return whether commands of a page run here."""
    # tests/project/test_operators_path.py and test_own_project.py run these.
    is_path = page.name in {"operations.md", "own-project.md"}
    return not is_path and any(not why_not(each) for each in commands(page))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- commands ---


def run_page(page: Path, folder: Path, wanted: list[str]) -> None:
    if any("PROCESSES=" in command for command in wanted):
        program("redis-server")
    with MockWeb(spec=WEB) as web:
        copy = Copy(folder, web)
        for command in [CRAWL] * (page.name in ON_A_CRAWL) + wanted:
            copy.run(command)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    found = [each for each in commands(page) if not why_not(each) and each != "make demo"]
    assert len(found) > 4
    run_page(page, tmp_path, found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs(tmp_path: Path) -> None:
    with MockWeb(spec=WEB) as web:
        output = Copy(tmp_path, web).run("make demo")
    ended = re.search(r"Crawl ended \(finished\) after ([\d.]+) s", output)
    assert ended, output[-5000:]
    # The delays of its hosts take most of the time, on any machine.
    assert float(ended[1]) < 60
    # A steady rate: each host has about as many pages, and all have the same delay.
    feed = (tmp_path / "jobs" / "demo" / "pages.jsonl").read_text().splitlines()
    pages_of_hosts = Counter(urlsplit(json.loads(line)["url"]).hostname for line in feed)
    assert len(pages_of_hosts) == 150
    assert max(pages_of_hosts.values()) <= 1.5 * min(pages_of_hosts.values())
    (report,) = (tmp_path / "jobs" / "demo").rglob("report.html")
    assert str(report.relative_to(tmp_path)) in output
    assert ">301</td>" in report.read_text()
    assert all(f"\n  {command}\n" in output for command in replay_commands(Path("jobs/demo")))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [page for page in pages()[1:] if is_run(page)],
    ids=named,
)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, [each for each in commands(page) if not why_not(each)])


@table("page", pages())
def test_each_command_and_option_exists(page: Path) -> None:
    for command in commands(page):
        words = shlex.split(command)
        if words[0] == "make":
            targets = [word for word in words[1:] if "=" not in word]
            rules = (ROOT / "Makefile").read_text()
            assert all(re.search(rf"^{each}:", rules, re.MULTILINE) for each in targets), command
            arguments = next((word for word in words if word.startswith("ARGS=")), "ARGS=")
            check_options("crawl", shlex.split(arguments.removeprefix("ARGS=")))
        elif words[0].endswith("bin/scrapy") and words[1] not in {"list", "startproject"}:
            check_options(words[1], words[2:])


def check_options(name: str, words: list[str]) -> None:
    """Have the command of this name read its options, and look for the settings and arguments
    given."""
    command = import_module(f"krowlspider.commands.{name}").Command()
    command.settings = Settings()
    parser = argparse.ArgumentParser(conflict_handler="resolve", exit_on_error=False)
    command.add_options(parser)
    given, rest = parser.parse_known_args(words)
    assert not [word for word in rest if word.startswith("-")], words
    for each in given.set:
        setting = each.partition("=")[0]
        assert hasattr(settings, setting) or hasattr(default_settings, setting), setting
    arguments = inspect.signature(BroadSpider).parameters
    assert all(each.partition("=")[0] in arguments for each in getattr(given, "spargs", None) or [])


def test_every_reason_not_to_run_is_of_a_command() -> None:
    found = [each for page in pages() for each in commands(page)]
    assert [start for start in NOT_RUN if not any(each.startswith(start) for each in found)] == []


def test_the_demo_replays_as_documented() -> None:
    documented = commands(ROOT / "docs" / "archive.md")
    wanted = replay_commands(Path("jobs/default"))
    start = documented.index(wanted[0])
    assert documented[start : start + len(wanted)] == wanted


# --- names and links ---


def test_the_page_of_settings_is_that_of_the_module() -> None:
    assert settingsdoc.PAGE.read_text() == settingsdoc.page(), "run make docs"


def test_the_page_of_metrics_is_that_of_the_table() -> None:
    assert metricsdoc.PAGE.read_text() == metricsdoc.page(), "run make docs"


@table("page", ALL)
def test_every_name_and_link_of_a_page_exists(page: Path) -> None:
    text = page.read_text()
    for target, heading in _LINK.findall(text):
        if "://" in target:
            continue
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not heading or heading in anchors(found), f"{target}#{heading}"
    for setting in re.findall(r"\bKROWL_[A-Z_]+\b", text):
        assert hasattr(settings, setting) or setting.startswith("KROWL_TEST"), setting
    for path, member in _NAME.findall(text):
        found = ROOT / path
        if not found.exists() and "/" not in path:
            found = ROOT / (path.replace(".", "/") + ".py")
            found = found if found.exists() else found.with_suffix("")
        assert found.exists() or "*" in path, path
        if member:
            assert member in members(found), f"{path}: {member}"


def test_short_names_are_of_files_that_the_page_names() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    files = {path for path, _ in _NAME.findall(text) if path.endswith(".py")}
    known = set().union(*(members(ROOT / path) for path in files))
    short = re.findall(r"`([A-Z]\w+(?:\.\w+)?)`", text)
    assert len(short) > 20
    assert [name for name in short if name not in known and name != "UNKNOWN"] == []


def anchors(page: Path) -> set[str]:
    """Return the fragments by which links lead to the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {each.replace(" ", "-") for each in words}


def test_every_decision_that_code_names_has_its_heading() -> None:
    folders = ("krowlspider", "extensions", "middlewares", "tests", "bench", "deploy")
    for path in (each for name in folders for each in (ROOT / name).rglob("*.py")):
        for target, heading in _LINK_OF_CODE.findall(path.read_text()):
            found = ROOT / target
            assert found.exists(), f"{named(path)}: {target}"
            assert not heading or heading in anchors(found), f"{named(path)}: {target}#{heading}"


def members(path: Path) -> set[str]:
    """Functions and classes of a module, with the methods of the classes."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_the_page_of_stats_names_those_of_the_code_and_no_others() -> None:
    page = (ROOT / "docs" / "stats.md").read_text()
    listed = set(re.findall(r"`(krowl/[a-z_0-9]+/[a-z_0-9]+)", page)) - {
        "krowl/a/b_count",
        "krowl/a/b_ms",
        "krowl/a/b",
    }
    folders = (ROOT / name for name in ("krowlspider", "extensions", "middlewares"))
    source = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    written = set(re.findall(r'"(krowl/[a-z_0-9]+/[a-z_0-9]+)', source))
    assert {*written, *(name for name in STATS if name.startswith("krowl/"))} <= listed
    # Some parts are put together.
    assert [
        name
        for name in listed
        if f'"{name.rpartition("/")[2]}' not in source and name not in written
    ] == []


# --- shape ---


def test_readme_and_architecture_are_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= 1900


@table("page", DECISIONS)
def test_every_rule_has_its_reason_and_its_cost(page: Path) -> None:
    head, *rules = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    assert rules
    assert "**" not in head
    for rule in rules:
        heading, _, text = rule.partition("\n")
        parts = re.split(r"^\*\*(Reason|Cost)\.\*\* (?=\S)", text, flags=re.MULTILINE)
        assert parts[1::2] == ["Reason", "Cost"], heading
        # Five lines, and some with more to say.
        assert len(text.split()) <= 200, heading


def test_every_page_of_decisions_is_in_the_index() -> None:
    listed = [target for target, _ in _LINK.findall(INDEX.read_text())]
    assert listed == list(dict.fromkeys(listed))
    assert sorted(listed) == [path.name for path in DECISIONS]
    assert len(DECISIONS) <= 38


def test_the_picture_of_a_crawl_is_small() -> None:
    assert (ROOT / "docs" / "images" / "crawl.svg").stat().st_size < 150_000
