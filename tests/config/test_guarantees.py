"""What the invariants rest on stays, whatever a user's settings hold; what takes it away is
refused."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.settings import Settings, default_settings
from scrapy.statscollectors import MemoryStatsCollector

from krowlspider import __version__
from krowlspider.config.guarantees import HANDLER, NEEDED, misplaced, missing
from krowlspider.config.validation import validate
from krowlspider.engine.downloader import middlewares_of
from krowlspider.engine.dupefilter import DupeFilter
from krowlspider.engine.handler import DownloadHandler
from krowlspider.errors import SettingsError
from krowlspider.frontier.store.schema import KEY_SIZE
from krowlspider.job.crawls import job_of
from krowlspider.middlewares.politeness import PolitenessMiddleware
from krowlspider.middlewares.retry import RetryMiddleware
from krowlspider.middlewares.robots import RobotsMiddleware
from tests.support.archived import assert_archived, valid_records
from tests.support.crawling import CONTACT, Crawl, frontier_view
from tests.support.crawls import page, pages, refused
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy.settings import BaseSettings


RETRY = "krowlspider.middlewares.retry.RetryMiddleware"
EXCLUDE = "krowlspider.extensions.exclude.Exclude"
SCRAPYS_HANDLER = "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"
# More than any disk has free.
NEVER = 10**18
LATENCY = 0.2
REST = 2
NAMES = [f"/{number}" for number in range(5)]
SITE = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret", latency=LATENCY),
    page("/", "".join(f"<a href={path}>x</a>" for path in ["/secret", "/sick", "/broken", *NAMES])),
    page("/sick", "ill", status=503, retry_after=REST, first=1, latency=LATENCY),
    page("/broken", "broken", status=500, first=1, latency=LATENCY),
    page("^/", "fine", latency=LATENCY),
]
FOUND = {"/", "/sick", "/broken", *NAMES}


class OwnRetry(RetryMiddleware):
    pass


class OwnHandler(DownloadHandler):
    pass


def project_settings(**changes: Any) -> Settings:
    settings = Settings()
    settings.setmodule("krowlspider.settings", priority="project")
    settings.setdict({"KROWL_CONTACT": CONTACT, **changes}, priority="spider")
    return settings


WITHOUT = "has no effect|is not sent"


def overriding_crawl(web: SimulatedWeb, folder: Path, **settings: Any) -> SimulatedCrawl:
    return SimulatedCrawl(
        folder / "job",
        spider="overriding",
        arguments={"root": web.url("a.test", "")},
        settings={
            "SPIDER_MODULES": "tests.support.spiders",
            "KROWL_DELAY_FACTOR": 3,
            "KROWL_STATUS_INTERVAL": 0.3,
            **settings,
        },
    )


# --- a spider that overrides everything ---


def test_own_components_keep_delay_robots_and_retry(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        crawl = overriding_crawl(web, tmp_path).run()
        log = web.log()
        asked = [entry.path for entry in log]
        assert asked[0] == "/robots.txt"
        assert "/secret" not in asked
        assert sorted(asked[1:]) == sorted([*FOUND, "/sick", "/broken"])
        # The moving average of the latency is at least this, after the root that answered at once.
        assert min(b.start - a.end for a, b in pairwise(log[2:])) > 2 * LATENCY
        after = next(b.start - a.end for a, b in pairwise(log) if a.status == 503)
        assert after >= REST
        assert crawl.stats["krowl/politeness/throttling_count"] == 1
        assert crawl.stats["retry/reason_count/500"] == 1
        assert {entry.ua for entry in log} == {f"krowlspider/{__version__} (+{CONTACT})"}
        assert_archived(crawl.jobdir, log)
        sent = valid_records(crawl.jobdir / "warc").of_kind("request")
        assert not [record.url for record in sent if b"price" in record.block.lower()]
        view = frontier_view(crawl.jobdir)
        assert (view["queued"], view["dropped"]) == (0, {"robots": 1})
    named = [line.partition("] WARNING: ")[2] for line in crawl.complaints]
    assert sorted(line.partition(" of ")[0] for line in named if re.search(WITHOUT, line)) == [
        "The User-Agent header",
        "bindaddress=('127.0.0.9', 0) in the meta",
        "dont_obey_robotstxt=True in the meta",
        "download_slot='mine' in the meta",
        "download_timeout=5",
        "user_agent='another'",
    ]
    assert crawl.log.count("offers to pay by one of the headers") == 1


def test_own_components_keep_the_commit(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        first = overriding_crawl(web, tmp_path)
        # Each takes longer than a commit's interval of 0.2 s.
        first.run_until_killed(web, lambda: len(pages(web.log())) >= 5)
        done = frontier_view(first.jobdir)["done"]
        assert done > 0
        overriding_crawl(web, tmp_path).run()
        asked = [entry.path for entry in pages(web.log())]
        assert set(asked) == FOUND
        # Again: the two that fail at first, and what was in flight or not yet committed.
        assert len(asked) <= len(FOUND) + 2 + (5 - done) + 1


async def test_robots_and_politeness_are_next_to_the_wire(tmp_path: Path) -> None:
    crawler = start(DOWNLOADER_MIDDLEWARES={OwnRetry: 10**9}, JOBDIR=str(tmp_path / "job"))
    crawler.stats = MemoryStatsCollector(crawler)
    job_of(crawler)
    nearest = [type(each) for each in middlewares_of(crawler).middlewares[-3:]]
    assert nearest == [OwnRetry, RobotsMiddleware, PolitenessMiddleware]
    await job_of(crawler).close()


class ShortFingerprinter:
    def fingerprint(self, request: Request) -> bytes:
        return b"abc"


def test_a_short_fingerprint_makes_a_whole_identity() -> None:
    crawler = start()
    crawler.request_fingerprinter = ShortFingerprinter()
    url = "http://a.test/"
    assert len(DupeFilter(crawler).identity(Request(url, method="POST"), url)) == KEY_SIZE


def test_own_exporters_keep_the_csv_without_formulas() -> None:
    settings = project_settings(FEED_EXPORTERS={"lines": "scrapy.exporters.JsonLinesItemExporter"})
    exporters = settings.getwithbase("FEED_EXPORTERS")
    assert exporters["csv"] == "krowlspider.engine.csv_export.CsvItemExporter"
    assert {"lines", "jsonl"} <= set(exporters)


# --- what is refused ---


class Changing:
    """An add-on that changes the settings after all others, as ``CHANGES`` has it."""

    def update_settings(self, settings: Settings) -> None:
        settings.setdict(settings["CHANGES"], priority="cmdline")


def start(how: str = "custom_settings", **changes: Any) -> Crawler:
    """Come as far as a crawl does before there is an engine, with a spider that makes changes."""

    class Spiteful(Spider):
        name = "spiteful"
        custom_settings = changes if how == "custom_settings" else {}

        @classmethod
        def update_settings(cls, settings: BaseSettings) -> None:
            super().update_settings(settings)
            if how == "update_settings":
                settings.setdict(changes, priority="cmdline")

    settings = project_settings()
    if how == "command line":
        settings.setdict(changes, priority="cmdline")
    if how == "add-on":
        settings.setdict({"CHANGES": changes, "ADDONS": {**settings["ADDONS"], Changing: 9}})
    crawler = Crawler(Spiteful, settings)
    crawler.addons.load_settings(crawler.settings)
    return crawler


WAYS = ["custom_settings", "update_settings", "command line", "add-on"]
SEAMS = {
    "SCHEDULER": "scrapy.core.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    "DOWNLOADER": "scrapy.core.downloader.Downloader",
}


@table(
    "attack",
    [
        *({name: foreign} for name, foreign in SEAMS.items()),
        *({name: None} for name in SEAMS),
        {"DOWNLOAD_HANDLERS": {"https": None}},
        {"DOWNLOAD_HANDLERS_BASE": default_settings.DOWNLOAD_HANDLERS_BASE},
        {"DOWNLOADER_MIDDLEWARES": {RETRY: None}},
        {"DOWNLOADER_MIDDLEWARES": {RetryMiddleware: None}},
        {"DOWNLOADER_MIDDLEWARES": {RobotsMiddleware: None}},
        {"DOWNLOADER_MIDDLEWARES_BASE": {}},
        {"SPIDER_MIDDLEWARES": {"krowlspider.middlewares.joining.Joining": None}},
        {"SPIDER_MIDDLEWARES_BASE": default_settings.SPIDER_MIDDLEWARES_BASE},
        {"EXTENSIONS": {EXCLUDE: None}, "KROWL_EXCLUDE": __file__},
        {"EXTENSIONS_BASE": {}, "KROWL_EXCLUDE": __file__},
        {"TWISTED_REACTOR": "twisted.internet.epollreactor.EPollReactor"},
        {"TWISTED_REACTOR_ENABLED": False},
        {"CONCURRENT_ITEMS": 0},
        {"USER_AGENT": "Mozilla/5.0"},
        {"DEFAULT_REQUEST_HEADERS": {"user-agent": "Mozilla/5.0"}},
        {"DEFAULT_REQUEST_HEADERS": {"crawler-exact-price": "USD 0.01"}},
        {"KROWL_DELAY_MIN": -1},
        {"KROWL_CONTACT": None},
    ],
)
def test_no_way_to_a_setting_leads_round_the_checks(attack: dict[str, Any]) -> None:
    """Neither with nor without the add-on that checks before there is a reactor."""

    def is_refused(how: str, addons: dict[str, Any]) -> bool:
        try:
            job_of(start(how, **attack, **addons))
        except SettingsError:
            return True
        return False

    assert [how for how in WAYS if not is_refused(how, {})] == []
    # The last way needs the add-on.
    assert [how for how in WAYS[:-1] if not is_refused(how, {"ADDONS": {}})] == []


def test_a_spider_that_replaces_all_is_refused_in_one_line(tmp_path: Path) -> None:
    crawl = Crawl(
        tmp_path / "job", spider="stripping", settings={"SPIDER_MODULES": "tests.support.spiders"}
    )
    assert "SCHEDULER='scrapy.core.scheduler.Scheduler' is neither krowlspider." in refused(crawl)
    assert not crawl.jobdir.exists()


@pytest.mark.parametrize("order", [None, 900])
@pytest.mark.parametrize(
    ("setting", "path", "way_out"),
    [
        (
            "DOWNLOADER_MIDDLEWARES",
            "krowlspider.middlewares.robots.RobotsMiddleware",
            "; to ignore robots.txt, set ROBOTSTXT_OBEY=False",
        ),
        ("DOWNLOADER_MIDDLEWARES", "krowlspider.middlewares.politeness.PolitenessMiddleware", ""),
    ],
)
def test_what_is_built_in_is_not_taken_out_or_moved(
    setting: str, path: str, way_out: str, order: int | None
) -> None:
    with pytest.raises(SettingsError) as caught:
        validate(project_settings(**{setting: {path: order}}))
    assert str(caught.value) == (
        f"{setting} names {path}, which is built in and always there:"
        f" remove it from {setting}{way_out}"
    )


def test_a_class_that_is_built_in_is_known_as_its_path_is() -> None:
    (fault,) = misplaced(project_settings(DOWNLOADER_MIDDLEWARES={RobotsMiddleware: None}))
    assert "krowlspider.middlewares.robots.RobotsMiddleware" in fault


@pytest.mark.parametrize("in_base", [False, True])
@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.path)
def test_a_component_that_is_needed_is_not_taken_away(needed: Any, in_base: bool) -> None:
    name = needed.setting
    taken = {f"{name}_BASE": {}} if in_base else {name: {needed.path: None}}
    (fault,) = missing(project_settings(KROWL_EXCLUDE="patterns.txt", **taken))
    assert fault.startswith(
        f"{name} lacks {needed.path}, which {needed.does}: delete its entry with None from"
        f" {name}, and any {name}_BASE of your own"
    )
    assert fault.endswith(needed.way_out)


class OwnRobots(RobotsTxtMiddleware): ...


@pytest.mark.parametrize("kind", [RobotsTxtMiddleware, OwnRobots])
def test_a_second_robots_middleware_is_refused(kind: type[RobotsTxtMiddleware]) -> None:
    """Its request would wait for its own page, and the crawl would stand still."""
    (fault,) = missing(project_settings(DOWNLOADER_MIDDLEWARES={kind: 100}))
    assert f"{kind.__name__}, whose requests for robots.txt would wait" in fault
    assert not missing(project_settings(DOWNLOADER_MIDDLEWARES={kind: None}))
    off = project_settings(DOWNLOADER_MIDDLEWARES={kind: 100}, ROBOTSTXT_OBEY=False)
    assert not missing(off)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("name", ["DOWNLOAD_HANDLERS", "DOWNLOAD_HANDLERS_BASE"])
def test_a_start_without_own_handler_is_refused(scheme: str, name: str) -> None:
    """Another project's is named in DOWNLOAD_HANDLERS."""
    handler = None if name == "DOWNLOAD_HANDLERS" else SCRAPYS_HANDLER
    base = dict(project_settings()["DOWNLOAD_HANDLERS_BASE"])
    handlers = {scheme: handler} if handler is None else {**base, scheme: handler}
    (fault,) = missing(project_settings(**{name: handlers}))
    assert fault.startswith(
        f"DOWNLOAD_HANDLERS has {handler!r} for {scheme}, which is not derived from {HANDLER}, so"
    )
    assert f"remove {scheme} from it" in fault


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SPIDER_MIDDLEWARES": {"nosuch.Component": 1}}, "SPIDER_MIDDLEWARES cannot be loaded: "),
        (
            {"DOWNLOAD_HANDLERS": {"http": "nosuch.H"}},
            "DOWNLOAD_HANDLERS has a handler for http that cannot",
        ),
    ],
)
def test_a_component_that_cannot_be_loaded_is_named(changes: dict[str, Any], said: str) -> None:
    (fault,) = missing(project_settings(**changes))
    assert fault.startswith(said)
    assert "No module named 'nosuch'" in fault


@pytest.mark.parametrize(
    ("name", "foreign", "does"),
    [
        ("SCHEDULER", "scrapy.core.scheduler.Scheduler", "keeps the delay of each host"),
        ("DUPEFILTER_CLASS", "scrapy.dupefilters.RFPDupeFilter", "asks the seen set"),
        ("DOWNLOADER", "scrapy.core.downloader.Downloader", "fetches only what the scheduler"),
    ],
)
def test_a_foreign_seam_is_refused_with_the_way_out(name: str, foreign: str, does: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate(project_settings(**{name: foreign}))
    assert does in str(caught.value)
    assert str(caught.value).endswith(f": remove {name} from your settings")


# --- what is not ---


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"DOWNLOADER_MIDDLEWARES": {RETRY: None, OwnRetry: 550}},
        {"DOWNLOADER_MIDDLEWARES": {"krowlspider.middlewares.redirect.RedirectMiddleware": None}},
        {"DOWNLOAD_HANDLERS": {"http": OwnHandler, "https": f"{__name__}.OwnHandler"}},
        {"DOWNLOAD_HANDLERS": {"http": SCRAPYS_HANDLER}},
        {
            "EXTENSIONS": {
                "krowlspider.extensions.core_stats.CoreStats": None,
                EXCLUDE: None,
                **{
                    f"extensions.{name}": None
                    for name in (
                        "telnet.TelnetConsole",
                        "status.Status",
                        "upload.Upload",
                        "gc_tuning.GcTuning",
                        "loop_lag.LoopLag",
                        "watchdog.Watchdog",
                        "metrics.Metrics",
                    )
                },
            }
        },
    ],
)
def test_components_without_guarantee_may_be_replaced(
    changes: dict[str, Any],
) -> None:
    """Or switched off."""
    settings = project_settings(**changes)
    validate(settings)
    assert missing(settings) == []
