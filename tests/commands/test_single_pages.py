"""Scrapy's commands do here what they do elsewhere, with the project's settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import default_settings

from tests.mockweb import MockWeb
from tests.support.crawling import SETTINGS, scrapy
from tests.support.crawls import anchors, page

if TYPE_CHECKING:
    from pathlib import Path

SITE = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret"),
    page("/", f"<title>A title</title>{anchors('/a', '/secret')}"),
    page("/a", "<title>Another</title>"),
]
PARSE = ["parse", "--spider", "broad", "--nocolour", "-d", "2", "-v"]
SPIDER = '''
import scrapy

class Filed(scrapy.Spider):
    name = "filed"
    start_urls = ["{url}"]

    def parse(self, response):
        """
        @url {url}
        @returns items 1 1
        """
        yield {{"title": response.css("title::text").get()}}
'''


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["fetch", "--nolog"], "<title>A title"),
        pytest.param(
            ["shell", "--nolog", "-c", "response.text"], "<title>A title", marks=pytest.mark.slow
        ),
        ([*PARSE, "-s", "KROWL_OPT_OUTS=1", "-s", "KROWL_REQUISITES=any"], "'title': 'Another'"),
        ([*PARSE, "-s", "KROWL_POLICIES=sheets.toml"], "'title': 'Another'"),
    ],
    ids=str,
)
def test_a_single_page_needs_no_contact(command: list[str], said: str) -> None:
    """It is fetched with Scrapy's own User-Agent, and its robots.txt holds."""
    with MockWeb(spec=SITE) as web:
        done = scrapy(command[0], web.url("127.0.0.1"), *command[1:])
        output = done.stdout.decode()
        assert said in output
        assert "ERROR" not in done.stderr.decode()
        if command[0] == "parse":
            assert "'title': 'A title'" in output
            assert f"<GET {web.url('127.0.0.1', '/secret')}>" in output
        assert "/secret" not in {entry.path for entry in web.log()}
        assert {entry.ua for entry in web.log()} == {default_settings.USER_AGENT}


def test_a_single_page_sends_the_contact_there_is() -> None:
    with MockWeb(spec=SITE) as web:
        contact = SETTINGS["KROWL_CONTACT"]
        scrapy("fetch", web.url("127.0.0.1"), "-s", f"KROWL_CONTACT={contact}")
        assert all(str(contact) in entry.ua for entry in web.log())


@pytest.mark.parametrize(
    ("command", "setting", "said"),
    [
        (["fetch", "--nolog", "http://127.0.0.1:81/"], "LOG_LEVEL=LOUD", "is no level of a log"),
        pytest.param(
            ["shell", "-c", "1"], "LOG_FILE=/dev/null/x", "cannot be", marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_a_bad_setting_of_the_log_is_named(command: list[str], setting: str, said: str) -> None:
    message = scrapy(*command, "-s", setting, code=2).stderr.decode()
    name, _, value = setting.partition("=")
    assert message.startswith(f"krowlspider: {name}={value!r} {said}")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["parse", "--spider", "nope", "http://127.0.0.1:1/", "--nolog"], "there is no spider"),
        (["parse", "http://127.0.0.1:1/", "--nolog"], "no spider is for http://127.0.0.1:1/"),
        (["fetch", "--spider", "nope", "http://127.0.0.1:1/"], "there is no spider 'nope'"),
        (["list", "-s", "SPIDER_MODULES=nope"], "SPIDER_MODULES=nope: there is no module 'nope'"),
        (["crawl", "broad", "--pidfile", "/proc/x"], "--pidfile /proc/x cannot be written: No"),
        (["list", "--pidfile", "/proc/x"], "--pidfile /proc/x cannot be written: No such file"),
        (["frontier", "x", "--pidfile", "/proc/x"], "--pidfile /proc/x cannot be written: No"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_with_nolog_too(words: list[str], said: str) -> None:
    message = scrapy(*words, code=2).stderr.decode()
    assert message.startswith(f"krowlspider: {said}")
    assert message.count("\n") == 1


@pytest.mark.slow
def test_check_names_the_spiders_there_are() -> None:
    message = scrapy("check", "nope", code=2).stderr.decode()
    assert message == "krowlspider: there is no spider 'nope': give one of these: broad\n"


@pytest.mark.slow
def test_contracts_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with MockWeb(spec=SITE) as web:
        (tmp_path / "filed.py").write_text(SPIDER.format(url=web.url("127.0.0.1")))
        done = scrapy("check", "-s", "SPIDER_MODULES=filed")
        assert "Ran 1 contract" in done.stderr.decode()
        assert {entry.ua for entry in web.log()} == {default_settings.USER_AGENT}


def test_runspider_is_a_crawl(tmp_path: Path) -> None:
    """It needs a contact, archives, and ends with the exit codes of ``scrapy crawl``."""
    with MockWeb(spec=SITE) as web:
        file = tmp_path / "filed.py"
        file.write_text(SPIDER.format(url=web.url("127.0.0.1")))
        log = tmp_path / "log"
        refused = scrapy("runspider", file, "-s", f"LOG_FILE={log}", code=2).stderr.decode()
        assert "CRITICAL: The crawl failed with exit code 2: " in log.read_text()
        assert refused.startswith("krowlspider: KROWL_CONTACT is not set")
        assert refused.count("\n") == 1
        settings = {**SETTINGS, "JOBDIR": tmp_path / "job", "STATS_CLASS": None}
        words = [
            word
            for name, value in settings.items()
            if value is not None
            for word in ("-s", f"{name}={value}")
        ]
        scrapy("runspider", file, "-O", tmp_path / "items.jsonl", *words)
        assert json.loads((tmp_path / "items.jsonl").read_text()) == {"title": "A title"}
        assert list((tmp_path / "job" / "warc").glob("*.warc.gz"))
        assert {entry.path for entry in web.log()} == {"/robots.txt", "/"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.py", None, "is not a file of Python source"),
        ("empty.py", "", "holds no spider"),
        ("broken.py", "import nosuch", "cannot be imported: No module named 'nosuch'"),
    ],
)
@pytest.mark.slow
def test_a_bad_spider_file_is_named(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    message = scrapy("runspider", tmp_path / name, code=2).stderr.decode()
    assert message.startswith(f"krowlspider: {tmp_path / name} {said}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["list"], "broad"),
        (["settings", "--get", "BOT_NAME"], "krowlspider"),
        (["version", "-v"], "Twisted"),
        (["genspider", "--list"], "basic"),
        (["edit", "broad"], "class BroadSpider"),
        (["bench", "-s", "CLOSESPIDER_TIMEOUT=1"], ""),
    ],
    ids=str,
)
def test_other_commands_of_scrapy_work(
    command: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "cat")
    done = scrapy(*command)
    assert said in done.stdout.decode()
    assert " ERROR: " not in done.stderr.decode()
