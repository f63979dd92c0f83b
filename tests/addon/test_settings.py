"""What the add-on sets in a project, what stays the project's, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from scrapy import Spider
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.settings import Settings, default_settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from krowlspider import __version__
from krowlspider.addon import (
    Krowl,
    KrowlArchive,
    KrowlFrontier,
    fill_in,
    profile_of,
    without_profiles,
)
from krowlspider.config.guarantees import out_of_place
from krowlspider.config.validation import validate, without_effect
from krowlspider.engine.archiving import Opening
from krowlspider.errors import SettingsError
from krowlspider.settings import defaults
from tests.mockweb import MockWeb
from tests.support.crawling import CONTACT, ROOT
from tests.support.crawls import page

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy.settings import BaseSettings

KROWL = "krowlspider.addon.Krowl"
# The settings that `scrapy startproject` writes.
TEMPLATE = {
    "BOT_NAME": "shop",
    "SPIDER_MODULES": ["tests.addon"],
    "NEWSPIDER_MODULE": "tests.addon",
    "ROBOTSTXT_OBEY": True,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "DOWNLOAD_DELAY": 1,
    "FEED_EXPORT_ENCODING": "utf-8",
}


def project(**changes: Any) -> Settings:
    """Return the settings of a project with the add-on."""
    settings = Settings()
    own = {"ADDONS": {KROWL: 100}, "KROWL_CONTACT": CONTACT}
    settings.setdict({**TEMPLATE, **own, **changes}, "project")
    return settings


def applied(settings: Settings, kind: type[Spider] = Spider) -> Settings:
    """Return the settings of a crawler after its add-ons."""
    crawler = Crawler(kind, settings)
    crawler.addons.load_settings(crawler.settings)
    return crawler.settings


class Changes:
    """An add-on that changes settings, as those of other packages do."""

    changes: ClassVar[dict[str, Any]] = {}

    def update_settings(self, settings: BaseSettings) -> None:
        settings.setdict(self.changes, "addon")


class OtherScheduler(Changes):
    changes: ClassVar = {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}


class Slower(Changes):
    changes: ClassVar = {"DOWNLOAD_TIMEOUT": 7, "ITEM_PIPELINES": {"tests.addon.Pipeline": 1}}


# --- priorities ---


def test_all_settings_of_the_table_are_set_below_the_project() -> None:
    settings = applied(project())
    for name, value in defaults.items():
        if name in {"ADDONS", "BOT_NAME", "COMMANDS_MODULE", "NEWSPIDER_MODULE", "SPIDER_MODULES"}:
            continue
        if name in {*TEMPLATE, "KROWL_CONTACT", "ASYNCIO_EVENT_LOOP"}:
            continue
        found = settings[name]
        assert (found.copy_to_dict() if hasattr(found, "copy_to_dict") else found) == value, name
        assert settings.getpriority(name) == 15, name
    assert settings["BOT_NAME"] == "shop"
    assert settings.getlist("SPIDER_MODULES") == ["tests.addon"]


def test_the_settings_of_a_new_project_give_no_warning() -> None:
    settings = applied(project())
    assert [*without_effect(settings), *out_of_place(settings)] == []


def test_the_project_and_its_spiders_override_what_is_no_guarantee() -> None:
    class Own(Spider):
        name = "own"
        custom_settings: ClassVar = {"KROWL_DELAY_MIN": 3}

    pipelines = {"shop.pipelines.Own": 300}
    settings = applied(
        project(DOWNLOAD_TIMEOUT=5, ITEM_PIPELINES=pipelines, LOG_LEVEL="ERROR"), Own
    )
    assert settings.getint("DOWNLOAD_TIMEOUT") == 5
    assert settings.getint("KROWL_DELAY_MIN") == 3
    assert settings["LOG_LEVEL"] == "ERROR"
    assert settings["ITEM_PIPELINES"].copy_to_dict() == pipelines


def test_own_components_come_on_top() -> None:
    own = {"tests.addon.test_settings.Changes": 100}
    settings = applied(project(EXTENSIONS=own, DOWNLOADER_MIDDLEWARES=own))
    for name in ("EXTENSIONS", "DOWNLOADER_MIDDLEWARES"):
        found = settings.get_component_priority_dict_with_base(name)
        assert {*map(load_object, defaults[f"{name}_BASE"]), Changes} == {*map(load_object, found)}


def test_the_environment_goes_before_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KROWL_DELAY_MIN", "4")
    monkeypatch.setenv("JOBDIR", "")
    settings = applied(project(KROWL_DELAY_MIN=2, JOBDIR="mine"))
    assert settings.getint("KROWL_DELAY_MIN") == 4
    assert settings["JOBDIR"] == "mine"


def test_twice_is_once() -> None:
    settings = project()
    Krowl.update_pre_crawler_settings(settings)
    before = settings.copy_to_dict()
    Krowl.update_pre_crawler_settings(settings)
    assert settings.copy_to_dict() == before


def test_settings_that_a_script_copied_into_a_dict_count_as_unset() -> None:
    """``{**get_project_settings(), ...}`` gives Scrapy's defaults the priority of the project."""
    settings = Settings({**project(DOWNLOAD_TIMEOUT=5), "JOBDIR": "job"})
    found = applied(settings)
    assert found["SCHEDULER"] == "krowlspider.engine.scheduler.Scheduler"
    assert found.getint("DOWNLOAD_TIMEOUT") == 5


def test_a_value_of_scrapy_that_a_project_names_stays() -> None:
    settings = applied(project(DOWNLOAD_TIMEOUT=default_settings.DOWNLOAD_TIMEOUT))
    assert settings.getint("DOWNLOAD_TIMEOUT") == default_settings.DOWNLOAD_TIMEOUT


def test_log_and_loop_are_set_before_any_crawler() -> None:
    settings = project()
    AsyncCrawlerRunner(settings)
    assert settings["LOG_FORMATTER"] == defaults["LOG_FORMATTER"]
    assert settings["LOG_LEVEL"] == "INFO"


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SCHEDULER", "scrapy_redis.scheduler.Scheduler"),
        ("DUPEFILTER_CLASS", "scrapy_redis.dupefilter.RFPDupeFilter"),
        ("DOWNLOADER", "scrapy.core.downloader.Downloader"),
    ],
)
def test_what_a_guarantee_rests_on_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}='{value}' .*: remove {name} from your set"):
        applied(project(**{name: value}))


@pytest.mark.parametrize("order", [50, 150])
def test_another_add_on_that_takes_a_guarantee_away_is_named(order: int) -> None:
    """Before this add-on, and after it."""
    other = "tests.addon.test_settings.OtherScheduler"
    said = f"an add-on has set it: remove {other} from ADDONS"
    settings = project(ADDONS={KROWL: 100, other: order})
    with pytest.raises(SettingsError, match=said):
        validate(applied(settings))


@pytest.mark.parametrize("order", [50, 150])
def test_another_add_on_may_set_the_rest(order: int) -> None:
    settings = applied(project(ADDONS={KROWL: 100, Slower: order}))
    assert settings.getint("DOWNLOAD_TIMEOUT") == 7
    assert settings["ITEM_PIPELINES"].copy_to_dict() == {"tests.addon.Pipeline": 1}


def test_without_a_contact_the_start_is_refused() -> None:
    with pytest.raises(SettingsError, match="KROWL_CONTACT is not set"):
        applied(project(KROWL_CONTACT=None))


def test_user_agent_of_the_project_must_hold_the_contact() -> None:
    with pytest.raises(SettingsError, match="USER_AGENT='shop' must hold"):
        applied(project(USER_AGENT="shop"))


# --- what has no effect ---


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"EXTENSIONS": {"scrapy.extensions.telnet.TelnetConsole": None}},
            "to turn that off, set TELNETCONSOLE_ENABLED=False",
        ),
        (
            {
                "EXTENSIONS": {"scrapy.extensions.telnet.TelnetConsole": None},
                "TELNETCONSOLE_ENABLED": False,
            },
            "",
        ),
        (
            {
                "DOWNLOADER_MIDDLEWARES": {
                    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None
                }
            },
            "set ROBOTSTXT_OBEY=False",
        ),
        (
            {"DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.retry.RetryMiddleware": 550}},
            "beside krowlspider.middlewares.retry.RetryMiddleware, which does its work: remove it",
        ),
        (
            {"EXTENSIONS": {"extensions.live_page.LivePage": None}},
            "its name is krowlspider.extensions.live_page.LivePage",
        ),
        ({"EXTENSIONS": {"scrapy.extensions.logstats.LogStats": None}}, ""),
    ],
)
def test_component_that_another_replaces_is_named(changes: dict[str, Any], said: str) -> None:
    lines = [*out_of_place(applied(project(**changes)))]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)


# --- which add-on a project has ---


class OwnKrowl(Krowl):
    pass


@pytest.mark.parametrize(
    ("addons", "found"),
    [
        ({KROWL: 100}, Krowl),
        ({Krowl: 0}, Krowl),
        ({"tests.addon.test_settings.OwnKrowl": 1}, OwnKrowl),
        ({KROWL: None}, None),
        ({"no.such.Addon": 1}, None),
        ({}, None),
    ],
)
def test_the_add_on_of_a_project_is_found(addons: dict[Any, Any], found: type | None) -> None:
    assert profile_of(project(ADDONS=addons)) is found


def test_single_pages_are_fetched_with_the_other_add_ons() -> None:
    settings = project(ADDONS={KROWL: 100, Slower: 1})
    assert [*without_profiles(settings)] == [Slower]


def test_commands_without_the_add_on_have_its_settings(caplog: pytest.LogCaptureFixture) -> None:
    settings = project(ADDONS={})
    with caplog.at_level(logging.WARNING):
        fill_in(settings)
    assert settings["SCHEDULER"] == defaults["SCHEDULER"]


# --- the other profiles ---


def test_frontier_alone_has_the_handlers_of_scrapy_and_no_archive() -> None:
    settings = applied(project(ADDONS={KrowlFrontier: 100}))
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    assert handlers["https"] == default_settings.DOWNLOAD_HANDLERS_BASE["https"]
    assert settings.getbool("KROWL_ARCHIVE") is False
    assert settings["SCHEDULER"] == defaults["SCHEDULER"]
    order = build_component_list(settings.getwithbase("DOWNLOADER_MIDDLEWARES"))
    assert any(path.endswith("HttpCompressionMiddleware") for path in order)


def test_archive_alone_leaves_the_rest_of_scrapy() -> None:
    settings = applied(project(ADDONS={KrowlArchive: 100}))
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    assert handlers["https"] == "krowlspider.engine.archiving.ArchivingHandler"
    changed = {
        name
        for name, value in vars(default_settings).items()
        if name.isupper() and (settings.getpriority(name) or 0) == 15
    }
    assert changed == {"DOWNLOAD_HANDLERS_BASE", "EXTENSIONS_BASE"}


class OtherHandler(Changes):
    changes: ClassVar = {"DOWNLOAD_HANDLERS": {"https": "tests.addon.test_settings.Changes"}}


def test_archive_alone_refuses_the_handler_of_a_later_add_on() -> None:
    settings = applied(project(ADDONS={KrowlArchive: 100, OtherHandler: 200}))
    with pytest.raises(SettingsError, match=r"Changes' for https, which archives nothing"):
        Opening.from_crawler(Crawler(Spider, settings))


def test_archive_alone_refuses_a_folder_that_it_cannot_have(tmp_path: Path) -> None:
    """Of a handler that fails Scrapy only logs the error, and each queued request would fail."""
    (tmp_path / "warc").write_text("a file")

    async def opened(**more: Any) -> None:
        archive = project(ADDONS={KrowlArchive: 100}, **more)
        Opening.from_crawler(Crawler(Spider, applied(archive)))

    with pytest.raises(SettingsError, match="KROWL_WARC_DIR is not set"):
        asyncio.run(opened())
    with pytest.raises(SettingsError, match="warc cannot be written: "):
        asyncio.run(opened(KROWL_WARC_DIR=str(tmp_path / "warc")))


@pytest.mark.parametrize("other", [KrowlArchive, KrowlFrontier])
@pytest.mark.parametrize("order", [50, 200])
def test_several_of_these_add_ons_are_refused(other: type[Krowl], order: int) -> None:
    """The first would have set what the others set."""
    said = f"ADDONS has krowlspider.addon.Krowl and krowlspider.addon.{other.__name__}"
    with pytest.raises(SettingsError, match=said):
        applied(project(ADDONS={KROWL: 100, other: order}))
    applied(project(ADDONS={KROWL: 100, other: None}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"DOWNLOAD_HANDLERS": {"http": "shop.Handler"}},
            "'shop.Handler' for http",
        ),
        ({"TWISTED_REACTOR_ENABLED": False}, "TWISTED_REACTOR_ENABLED=False must be True"),
        ({"KROWL_WARC_PREFIX": "a b"}, "KROWL_WARC_PREFIX='a b'"),
        ({"KROWL_CONTACT": None}, "KROWL_CONTACT is not set"),
    ],
)
def test_archive_alone_refuses_what_would_not_be_archived(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        applied(project(ADDONS={KrowlArchive: 100}, **changes))


# --- in one spider, by a script ---


SCRIPT = """
import sys
from scrapy import Spider
from scrapy.crawler import {process}
from tests.support.crawling import SETTINGS

class Quiet(Spider):
    def parse(self, response): ...

class Stock(Quiet):
    name = "stock"
    start_urls = [sys.argv[1] + "/stock"]

class Own(Quiet):
    name = "own"
    start_urls = [sys.argv[1] + "/own"]
    custom_settings = {{
        **SETTINGS,
        "STATS_CLASS": "scrapy.statscollectors.MemoryStatsCollector",
        "ADDONS": {{"krowlspider.addon.Krowl": 100}},
        "JOBDIR": sys.argv[2],
    }}

process = {process}()
process.crawl(Own)
process.crawl(Stock)
process.start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("process", ["AsyncCrawlerProcess", "CrawlerProcess"])
def test_add_on_of_one_spider_leaves_others_alone(tmp_path: Path, process: str) -> None:
    """The event loop is there already, and stays."""
    file, job = tmp_path / "script.py", tmp_path / "job"
    file.write_text(SCRIPT.format(process=process))
    with MockWeb(spec=[page("/robots.txt", ""), page("^/", "fine")]) as web:
        command = [sys.executable, file, web.url("127.0.0.1", ""), job]
        done = subprocess.run(
            command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True
        )
        log = web.log()
    agents = {entry.path: entry.ua for entry in log}
    assert agents["/own"] == f"krowlspider/{__version__} (+{CONTACT})"
    assert agents["/stock"].startswith("Scrapy/")
    assert b"Traceback" not in done.stderr
    (index,) = (job / "warc").glob("*.cdxj")
    assert "/own" in index.read_text()
    assert "/stock" not in index.read_text()
