"""``scrapy krowl init``: the three lines in the settings of any project, and what it says."""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from krowlspider.config.settings_file import FURTHER_LINE, LINE, UneditableError, edited
from krowlspider.programs.krowl import SettingsModule
from tests.support import warm
from tests.support.crawling import CONTACT
from tests.support.in_process import run_here
from tests.support.installed import installed
from tests.support.tables import table

VALUES = {"KROWL_CONTACT": "a@b.c", "JOBDIR": "jobs/{spider}"}
TWO = 'KROWL_CONTACT = "a@b.c"\nJOBDIR = "jobs/{spider}"\n'
OURS = '"krowlspider.addon.Krowl": 100'


def values_of(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)
    return {name: value for name, value in names.items() if name.isupper()}


# --- the text of a settings module ---


@table(
    ("before", "after"),
    [
        ("ADDONS = {}\nA = 1\n", f"{LINE}\n{TWO}A = 1\n"),
        ("ADDONS = {  # none\n}\n", f"ADDONS = {{{OURS}  # none\n}}\n{TWO}"),
        ('ADDONS = {"a.B": 1}\n', f'ADDONS = {{{OURS}, "a.B": 1}}\n{TWO}'),
        ('É = {"é": 1}; ADDONS: dict = {"é": 1}\n', None),
        (
            'ADDONS = {  # all\n    # one\n    "a.B": 1,  # two\n}\n',
            f'ADDONS = {{  # all\n    {OURS},\n    # one\n    "a.B": 1,  # two\n}}\n{TWO}',
        ),
        ("B = {'c.D': 2}\nADDONS = {\n  **B,\n}\n", None),
        ("B = {'c.D': 2}\nADDONS = {**B}", None),
        ("A = 1\n\n\n", None),
        ("A = 1", None),
        ("", None),
        ("if True:\n    A = 1\n", None),
        ('"""A text.\n\nADDONS = {}\n"""\n', None),
    ],
)
@table("newline", ["\n", "\r\n"])
def test_the_lines_come_in_and_all_else_stays(before: str, after: str | None, newline: str) -> None:
    text = edited(before.replace("\n", newline), VALUES, addon=LINE)
    assert text.count("\n") == text.count(newline if "\n" in before else "\n")
    text = text.replace("\r\n", "\n")
    assert after is None or text == after
    had, has = values_of(before), values_of(text)
    assert has == had | VALUES | {
        "ADDONS": {"krowlspider.addon.Krowl": 100} | had.get("ADDONS", {})
    }
    # Each line that was there is there, in its order.
    lines = iter(text.split("\n"))
    kept = [line for line in before.rstrip().split("\n") if "ADDONS" not in line]
    assert all(any(line == each for each in lines) for line in kept)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("ADDONS = dict()\n", "ADDONS is not written as {...}"),
        ("ADDONS = {}\nADDONS['a.B'] = 1\n", "lines 1 and 2 name ADDONS"),
        ("A = 1\nif A:\n    ADDONS = {}\n", "line 3 sets ADDONS only in some cases"),
        ("ADDONS = A = {}\n", "line 1 sets ADDONS only in some cases, or not ADDONS alone"),
    ],
)
def test_a_text_that_cannot_be_edited_safely_is_refused(text: str, fault: str) -> None:
    with pytest.raises(UneditableError, match=fault):
        edited(text, VALUES, addon=LINE)


def test_mixed_and_old_line_breaks_stay() -> None:
    text = edited('A = """a\r\nb"""\nADDONS = {\n}\n', {"JOBDIR": "x"}, addon=LINE)
    assert text == f'A = """a\r\nb"""\nADDONS = {{{OURS}\n}}\nJOBDIR = "x"\r\n'
    text = edited("A = 1\rADDONS = {}\rB = 2", {"JOBDIR": "x"}, addon=LINE)
    assert text == f'A = 1\rADDONS = {{{OURS}}}\rJOBDIR = "x"\rB = 2\r'


def test_settings_come_last_where_the_add_on_is_there() -> None:
    text = edited(
        "ADDONS = dict(a=1)\nA = 1\n",
        {"JOBDIR": "x"},
    )
    assert text == 'ADDONS = dict(a=1)\nA = 1\n\n\nJOBDIR = "x"\n'


# --- the command ---


@cache
def started() -> dict[str, str]:
    """Return the files of a project, as `scrapy startproject` makes it."""
    with TemporaryDirectory() as folder:
        run_here(["startproject", "shop", folder])
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_text() for path in files}


class Project:
    """A project as `scrapy startproject` makes it, with more settings and a spider."""

    def __init__(self, folder: Path, more: str = "", custom: str = "{}"):
        self.folder = folder
        self._environment = installed(folder / "site")
        for name, text in started().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.path = folder / "shop" / "settings.py"
        self.path.write_text(self.path.read_text() + dedent(more))
        for name, given in (("one", "{}"), ("two", custom)):
            (folder / "shop" / "spiders" / f"{name}.py").write_text(
                f"from scrapy import Spider\n\n\nclass {name.title()}(Spider):\n"
                f"    name = '{name}'\n    custom_settings = {given}\n"
            )

    def scrapy(self, *words: str, code: int = 0) -> str:
        done = warm.run(
            [sys.executable, "-m", "scrapy", *words],
            cwd=self.folder,
            environment=self._environment,
            timeout=100,
        )
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == code, said
        assert "Traceback" not in said
        return said

    def init(self, *words: str, code: int = 0) -> str:
        return self.scrapy("krowl", "init", *words, code=code)


def test_init_writes_three_lines_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before, mode = project.path.read_text(), 0o640
    project.path.chmod(mode)
    said = project.init("--contact", CONTACT, "--dry-run")
    assert f"\n-ADDONS = {{}}\n+{LINE}\n+KROWL_CONTACT" in said
    assert project.path.read_text() == before
    project.init("--contact", CONTACT)
    lines = f'{LINE}\nKROWL_CONTACT = "{CONTACT}"\nJOBDIR = "jobs/{{spider}}"'
    assert project.path.read_text() == before.replace("ADDONS = {}", lines)
    assert project.path.stat().st_mode & 0o777 == mode
    # The template's own settings hold: nothing is said of them.
    again = project.init()
    assert "settings.py has all three lines" in again
    assert "What differs:" not in again
    assert project.path.read_text() == before.replace("ADDONS = {}", lines)
    # The commands of a project with the add-on: the name of a spider is checked.
    assert "give one of these: one, two" in project.scrapy("crawl", "three", code=2)


def test_init_says_what_differs_in_this_project(tmp_path: Path) -> None:
    """For settings of the project, and for those of one spider."""
    more = """
    AUTOTHROTTLE_ENABLED = True
    HTTPCACHE_ENABLED = True
    COMPRESSION_ENABLED = False
    CONCURENT_REQUESTS = 8
    JOBDIR = "jobs/all"
    DOWNLOADER_MIDDLEWARES = {
        "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
        "shop.middlewares.RandomUserAgentMiddleware": 400,
    }
    """
    project = Project(tmp_path, more, custom="{'CONCURRENT_REQUESTS_PER_DOMAIN': 8}")
    middlewares = project.path.with_name("middlewares.py")
    middlewares.write_text("class RandomUserAgentMiddleware: ...\n")
    said = project.init("--contact", CONTACT)
    listed = [line.removeprefix("- ") for line in said.splitlines() if line.startswith("- ")]
    starts = (
        "AutoThrottle: the delay of a host follows its latency without it too",
        "HTTP cache: an answer from the cache is not archived",
        "shop.middlewares.RandomUserAgentMiddleware has no effect on what is sent",
        "COMPRESSION_ENABLED=False has no effect: ",
        "CONCURENT_REQUESTS is not a known setting: did you mean CONCURRENT_REQUESTS?",
        "two: CONCURRENT_REQUESTS_PER_DOMAIN=8 has no effect: ",
        "JOBDIR=jobs/all is for one spider: give each its own",
    )
    assert len(listed) == len(starts)
    assert all(line.startswith(start) for line, start in zip(listed, starts, strict=True)), said
    assert 'JOBDIR = "jobs/all"' in project.path.read_text()
    assert said.splitlines()[-1].endswith("scrapy crawl one")


def test_init_says_what_a_start_refuses(tmp_path: Path) -> None:
    more = """
    USER_AGENT = "shop/1.0"
    TWISTED_REACTOR = None
    DOWNLOAD_HANDLERS = {"https": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}
    SCHEDULER = "scrapy_redis.scheduler.Scheduler"
    """
    project = Project(tmp_path, more)
    said = project.init("--contact", CONTACT, code=1)
    assert "A start is refused:\n- " in said
    assert "USER_AGENT='shop/1.0' must hold {contact}" in said
    assert "TWISTED_REACTOR is None: give a value, or leave it out" in said
    assert "- scrapy-redis: remove SCHEDULER and DUPEFILTER_CLASS" in said
    assert "- scrapy-playwright: its pages are fetched by the same delays" in said
    assert said.endswith("krowlspider: no crawl starts before that is mended\n")
    # What it says is what a start says.
    refusal = project.scrapy("crawl", "one", code=2)
    assert "USER_AGENT='shop/1.0' must hold {contact}" in refusal


def test_init_prints_the_lines_where_it_cannot_write_them(tmp_path: Path) -> None:
    project = Project(tmp_path, "ADDONS['a.B'] = None\n")
    before = project.path.read_text()
    said = project.init("--contact", CONTACT, code=1)
    assert said.startswith(
        f'{FURTHER_LINE}\nKROWL_CONTACT = "{CONTACT}"\nJOBDIR = "jobs/{{spider}}"\n'
    )
    assert "name ADDONS: put the lines above at its end\n" in said
    assert project.path.read_text() == before


def test_add_ons_of_an_imported_module_stay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    shared = 'ADDONS = {"shop.addon.Other": 300}\n'
    project.path.with_name("shared.py").write_text(shared)
    project.path.with_name("addon.py").write_text("class Other: ...\n")
    text = project.path.read_text().replace("ADDONS = {}\n", "from shop.shared import ADDONS\n")
    project.path.write_text(text)
    assert f"+{FURTHER_LINE}\n" in project.init("--contact", CONTACT)
    kept = json.loads(project.scrapy("settings", "--get", "ADDONS"))
    assert kept == {"krowlspider.addon.Krowl": 100, "shop.addon.Other": 300}


def test_add_ons_as_json_are_printed_in_full(tmp_path: Path) -> None:
    """Scrapy takes them. A dictionary cannot continue them."""
    project = Project(tmp_path)
    text = "ADDONS = '{\"shop.addon.Other\": 300}'\n"
    project.path.write_text(project.path.read_text().replace("ADDONS = {}\n", text))
    project.path.with_name("addon.py").write_text("class Other: ...\n")
    said = project.init("--contact", CONTACT, code=1)
    assert said.startswith(f"ADDONS = {{'shop.addon.Other': 300, {OURS}}}\n")
    assert "because ADDONS is not written as {...}" in said


def test_a_read_only_module_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("settings")
    module.__file__ = str(tmp_path / "settings.py")
    (tmp_path / "settings.py").write_text("A = 1\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert (
        SettingsModule(module).planned({"JOBDIR": "x"}, addon=True).hindrance == "it is read-only"
    )


def test_lines_that_would_be_overridden_are_not_written(tmp_path: Path) -> None:
    """They would stand in the file, and have no effect."""
    project = Project(tmp_path, "globals().update(JOBDIR=None)\n")
    before = project.path.read_text()
    assert "because its other lines change JOBDIR" in project.init("--contact", CONTACT, code=1)
    assert project.path.read_text() == before


def test_a_contact_is_needed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.path.read_text()
    assert "--contact is not given: site owners must be able" in project.init(code=2)
    assert "is a placeholder" in project.init("--contact", "you@example.org", code=2)
    assert project.path.read_text() == before


def test_outside_of_a_project_the_way_out_is_named(tmp_path: Path) -> None:
    done = warm.run(
        [sys.executable, "-m", "scrapy", "krowl", "init", "--contact", CONTACT],
        cwd=tmp_path,
        environment=installed(tmp_path / "site"),
    )
    assert done.returncode == 2
    assert b"run this in the folder of its scrapy.cfg" in done.stderr


def test_a_project_with_the_archive_alone_keeps_its_profile(tmp_path: Path) -> None:
    """Scrapy's own components crawl there: nothing of them is refused, and nothing differs."""
    more = """
    ADDONS = {"krowlspider.addon.KrowlArchive": 100}
    SCHEDULER = "scrapy_redis.scheduler.Scheduler"
    COMPRESSION_ENABLED = False
    """
    project = Project(tmp_path, more)
    said = project.init("--contact", CONTACT)
    assert 'Krowl"' not in project.path.read_text()
    assert [line for line in said.splitlines() if line.startswith("- ")] == []
