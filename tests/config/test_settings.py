"""The settings: what is there is valid and checked, and what is wrong is named before a crawl
starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import default_settings
from scrapy.utils.conf import build_component_list

from krowlspider import settings as defaults
from krowlspider.config.contact import is_placeholder, is_unreachable
from krowlspider.config.validation import KNOWN, ROWS, validate
from krowlspider.engine.downloader import Downloader
from krowlspider.engine.dupefilter import DupeFilter
from krowlspider.engine.scheduler import Scheduler
from krowlspider.errors import KrowlError
from krowlspider.fetch.signing import SigningKey
from krowlspider.spiders.broad import BroadSpider
from tests.support.settings import project_settings, refusal
from tests.support.tables import table

ROOT = Path(__file__).parents[2]


class OwnScheduler(Scheduler):
    pass


class OwnDupeFilter(DupeFilter):
    pass


class OwnDownloader(Downloader):
    pass


def components(crawler: Crawler, name: str) -> list[Any]:
    return build_component_list(crawler.settings.get_component_priority_dict_with_base(name))


def test_broad_spider_passes_only_middlewares_it_needs():
    # As `scrapy crawl` does it: a crawler is made, and then its settings are set again from the
    # process's.
    settings = project_settings()
    crawler = Crawler(BroadSpider, settings)
    crawler.settings.update(settings)
    assert components(crawler, "SPIDER_MIDDLEWARES") == [
        # It leaves the broad spider alone, when it is made.
        "krowlspider.middlewares.joining.Joining",
        "scrapy.spidermiddlewares.start.StartSpiderMiddleware",
    ]
    assert components(crawler, "DOWNLOADER_MIDDLEWARES") == [
        "krowlspider.middlewares.retry.RetryMiddleware"
    ]


def test_ordinary_spider_keeps_scrapys_middlewares():
    """Those that the broad spider leaves out."""
    crawler = Crawler(Spider, project_settings())
    assert "krowlspider.middlewares.redirect.RedirectMiddleware" in components(
        crawler, "DOWNLOADER_MIDDLEWARES"
    )
    assert "scrapy.spidermiddlewares.depth.DepthMiddleware" in components(
        crawler, "SPIDER_MIDDLEWARES"
    )


def test_every_other_setting_is_one_that_scrapy_knows():
    # Those of Prometheus and Redis have the names that scrapy-prometheus-exporter and scrapy-redis
    # gave them.
    own = ("KROWL_", "PROMETHEUS_", "REDIS_URL")
    ours = {name for name in vars(defaults) if name.isupper() and not name.startswith(own)}
    assert ours - set(vars(default_settings)) == set()
    assert {name for name in ROWS if not name.startswith(own)} - set(vars(default_settings)) == {
        "CONCURRENT_REQUESTS_PER_IP"
    }


def test_every_krowl_setting_named_in_the_source_is_defined():
    sources = [
        p
        for room in ("krowlspider", "extensions", "middlewares")
        for p in ROOT.glob(f"{room}/**/*.py")
    ]
    named = {
        name
        for path in sources
        for name in re.findall(r"[\"'](KROWL_[A-Z0-9_]+)[\"']", path.read_text(encoding="utf-8"))
    }
    assert named - KNOWN == set()


@pytest.mark.parametrize("absent", [None, "", "  "])
def test_without_a_contact_the_message_says_why_and_how(absent: str | None):
    assert refusal(KROWL_CONTACT=absent) == (
        "KROWL_CONTACT is not set: site owners must be able to reach you;"
        " give -s KROWL_CONTACT=you@example.org (or a URL)"
    )


@pytest.mark.parametrize(
    "contact",
    [
        "you@company.internal",
        "first.last+crawl@sub.example.co.uk",
        "https://contest.org/bot?x=1",
        "http://[::1]/",
    ],
)
def test_a_contact_is_an_address_or_a_web_page(contact: str):
    validate(project_settings(KROWL_CONTACT=contact))


@table(
    "contact",
    [
        "you",
        "you@localhost",
        "@example.org",
        "you@@example.org",
        "you@example..org",
        "you@example.org, me@example.org",
        "ftp://example.org/",
        "https://",
        "https://[::1",
        "https://example.org/a b",
        "you@example.org\r\nX-Other: header",
        "https://example.org/\n",
        "you@example.org\x7f",
        "you@exämple.org",
        7,
    ],
)
def test_any_other_contact_is_refused_by_name_and_value(contact: object):
    message = refusal(KROWL_CONTACT=contact)
    assert message.startswith("KROWL_CONTACT=")
    assert repr(contact) in message
    assert len(message.splitlines()) == 1


@table(
    "contact",
    [
        "you@example.org",
        "me@Crawler.Example.COM",
        "your.name@mail.test",
        "someone@your-company.com",
        "https://www.yourdomain.org/bot",
        "name@domain.com",
        "your@email.com",
        "You@Domain.com",
        "your.name@company.com",
        "email@example.com",
        "name@example.de",
        "test@test.com",
        "foo@bar.com",
    ],
)
def test_a_placeholder_as_contact_is_refused(contact: str):
    assert refusal(KROWL_CONTACT=contact) == (
        f"KROWL_CONTACT={contact!r} is a placeholder: give an address or URL of yours,"
        " where site owners reach you"
    )


@pytest.mark.parametrize(
    "contact",
    [
        "me@gmail.com",
        "user@mail.com",
        "you@sub.domain.com.au",
        "jane@email.com",
        "crawl@domain.com",
        "https://domain.com/bot",
    ],
)
def test_addresses_of_people_are_no_placeholders(contact: str):
    validate(project_settings(KROWL_CONTACT=contact))


@pytest.mark.parametrize("contact", ["crawl@example.org", "https://example.net.:443/bot"])
def test_other_contacts_at_reserved_domains_are_warned_of(contact: str):
    assert not is_placeholder(contact)
    assert is_unreachable(contact)
    assert not is_unreachable("you@sub.example.co.uk")


def test_unknown_setting_is_refused_with_the_nearest_name():
    assert (
        refusal(KROWL_DELAY_MN="1")
        == "KROWL_DELAY_MN is not a setting: did you mean KROWL_DELAY_MIN?"
    )
    assert refusal(KROWL_QQ="1") == "KROWL_QQ is not a setting"


def test_settings_of_others_are_left_alone():
    validate(project_settings(SOMEONE_ELSES="x", FILES_EXPIRES="not looked at"))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("COOKIES_ENABLED", "perhaps", "is neither True nor False"),
        ("CLOSESPIDER_PAGECOUNT", "1h", "is not a whole number"),
        ("CLOSESPIDER_TIMEOUT", "1h", "is not a number"),
    ],
)
def test_setting_of_scrapys_has_the_type_of_its_default(name: str, value: object, reason: str):
    assert refusal(**{name: value}) == f"{name}={value!r} {reason}"
    validate(project_settings(**{name: None}))


def test_all_problems_are_reported_together():
    problems = refusal(
        KROWL_DELAY_MIN="fast", KROWL_SEEN_VERIFY="perhaps", KROWL_NONE_SUCH=1, DOWNLOAD_TIMEOUT="0"
    ).split("; ")
    assert sorted(problems) == [
        "DOWNLOAD_TIMEOUT='0' is out of range: more than 0 seconds",
        "KROWL_DELAY_MIN='fast' is not a number of seconds",
        "KROWL_NONE_SUCH is not a setting",
        "KROWL_SEEN_VERIFY='perhaps' is neither True nor False",
    ]


# As text, the way the command line and scrapyd give them.
@table(
    ("name", "value"),
    [
        ("KROWL_DELAY_MIN", "0"),
        ("KROWL_DELAY_MIN", "0.5"),
        ("KROWL_DELAY_FACTOR", "1e1"),
        ("KROWL_DOMAIN_CONCURRENCY", "1"),
        ("KROWL_IP_DELAY_MIN", "0"),
        ("KROWL_ROBOTS_TTL", "86400"),
        ("KROWL_COMMIT_INTERVAL", "0.05"),
        ("KROWL_SEEN_VERIFY", "true"),
        ("KROWL_SEEN_VERIFY", "0"),
        ("KROWL_ALLOW_ADDRESSES", ""),
        ("KROWL_ALLOW_ADDRESSES", "127.0.0.0/8,fd00::/8"),
        ("KROWL_ALLOW_ADDRESSES", ["10.1.2.3"]),
        ("KROWL_RESOLVE", '{"*.test": "127.0.0.1", "one.example": "::1"}'),
        ("KROWL_RESOLVE", {"*.test": "127.0.0.1"}),
        ("KROWL_PORTS", ""),
        ("KROWL_PORTS", "80,443, 8080,1024-65535"),
        ("KROWL_PORTS", [8080, "1-65535"]),
        ("KROWL_DNS_SERVERS", "1.2.3.4,1.2.3.4:53,2001:db8::1,[2001:db8::1]:5353"),
        ("KROWL_WARC_DIR", "/data/my warcs"),
        ("KROWL_WARC_DIR", Path("warcs")),
        ("KROWL_WARC_INFO", '{"operator": "B\u00fccherei", "isPartOf": "x"}'),
        ("KROWL_WARC_PREFIX", "crawl-2026.07_a"),
        ("KROWL_EXCLUDE", None),
        ("KROWL_EXCLUDE", __file__),
        ("KROWL_EXCLUDE", Path(__file__)),
        ("KROWL_SKIP_EXTENSIONS", ""),
        ("KROWL_SKIP_EXTENSIONS", "zip, .ZIP"),
        ("RETRY_HTTP_CODES", "500, 502"),
        ("RETRY_HTTP_CODES", [500, "502"]),
        ("RETRY_HTTP_CODES", []),
        ("URLLENGTH_LIMIT", "0"),
        ("LOG_LEVEL", "WARNING"),
        ("LOG_LEVEL", 10),
        ("TELNETCONSOLE_PORT", "6023,6073"),
        ("TELNETCONSOLE_PORT", [6023]),
        ("TELNETCONSOLE_PORT", ""),
        ("TELNETCONSOLE_PORT", None),
        ("SCHEDULER", Scheduler),
        ("SCHEDULER", "tests.config.test_settings.OwnScheduler"),
        ("DUPEFILTER_CLASS", OwnDupeFilter),
        ("DOWNLOADER", "tests.config.test_settings.OwnDownloader"),
    ],
)
def test_a_right_value_is_taken_as_text_or_typed(name: str, value: object):
    validate(project_settings(**{name: value}))


@table(
    ("given", "size"),
    [
        ("2GB", 2_000_000_000),
        ("2 gb", 2_000_000_000),
        ("1.5GB", 1_500_000_000),
        ("0.1kB", 100),
        ("512MiB", 512 * 1024**2),
        ("1TiB", 1024**4),
        ("7", 7),
        (7, 7),
    ],
)
@table("name", ["KROWL_DISK_FLOOR", "KROWL_WARC_MAX_SIZE"])
def test_size_may_have_a_unit(name: str, given: object, size: int):
    settings = project_settings(**{name: given})
    validate(settings)
    assert settings.getint(name) == size


def test_size_in_a_spiders_settings_may_have_a_unit():
    class Sized(Spider):
        name = "sized"
        custom_settings: ClassVar = {"DOWNLOAD_MAXSIZE": "5MB"}

    crawler = Crawler(Sized, project_settings())
    crawler.addons.load_settings(crawler.settings)
    assert crawler.settings.getint("DOWNLOAD_MAXSIZE") == 5_000_000


@pytest.mark.parametrize(
    ("name", "given", "parts"),
    [
        ("KROWL_ALLOW_ADDRESSES", "10.0.0.0/8, fd00::/8", ["10.0.0.0/8", "fd00::/8"]),
        ("KROWL_DNS_SERVERS", " 1.1.1.1 ,8.8.8.8,", ["1.1.1.1", "8.8.8.8"]),
        ("KROWL_PORTS", "80, 443", ["80", "443"]),
        ("KROWL_WARC_ALSO", "dns, failures,", ["dns", "failures"]),
    ],
)
def test_list_as_text_may_have_blanks(name: str, given: str, parts: list[str]):
    settings = project_settings(**{name: given})
    validate(settings)
    assert settings.getlist(name) == parts


def test_a_least_delay_above_the_greatest_is_refused():
    assert refusal(KROWL_DELAY_MIN="31") == "KROWL_DELAY_MIN=31 is more than KROWL_DELAY_MAX=30"


def test_the_add_on_refuses_wrong_settings_only():
    right = project_settings()
    Crawler(Spider, right).addons.load_settings(right)
    wrong = project_settings(KROWL_CONTACT=None)
    with pytest.raises(KrowlError, match="KROWL_CONTACT is not set"):
        Crawler(Spider, wrong).addons.load_settings(wrong)


def test_a_key_and_its_directory_need_each_other(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SigningKey.new().pem())
    key, agent = {"KROWL_SIGN_KEY": str(tmp_path / "key")}, {"KROWL_SIGN_AGENT": "https://b.test"}
    for given in (key, agent):
        assert "KROWL_SIGN_KEY and KROWL_SIGN_AGENT need each other" in refusal(**given)
    assert "there is no KROWL_SIGN_KEY: nothing would be signed" in refusal(KROWL_SIGN="always")
    validate(project_settings(**key, **agent, KROWL_SIGN="always"))
    own = {"DEFAULT_REQUEST_HEADERS": {"signature-agent": '"https://c.test"', "Signature": "x"}}
    faults = refusal(**key, **agent, **own)
    assert "DEFAULT_REQUEST_HEADERS has Signature, and KROWL_SIGN_KEY is set" in faults
    assert "DEFAULT_REQUEST_HEADERS has Signature-Agent, and KROWL_SIGN_KEY is set" in faults
    validate(project_settings(**own))


def test_dedup_without_revisits_is_refused():
    assert refusal(KROWL_WARC_DEDUP="a", KROWL_WARC_REVISIT="0") == (
        "KROWL_WARC_DEDUP is set, and KROWL_WARC_REVISIT is False: set it to True"
    )


def test_index_now_needs_a_crawl_that_goes_on():
    assert "KROWL_RECRAWL is not continuous" in refusal(KROWL_INDEXNOW="1", KROWL_RECRAWL="once")


def test_feeds_that_can_be_written_are_taken(tmp_path: Path) -> None:
    """Whatever lies beside them; nothing is left by the check but their folders."""
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "there").write_text("kept")
    names = ("new/a", "link", "there", "%(name)s", "new/x-%(batch_id)d")
    for name in names:
        validate(project_settings(FEEDS={str(tmp_path / name): {"format": "csv"}}))
    found = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")}
    assert found == {"x", "link", "there", "new"}
    assert (tmp_path / "there").read_text() == "kept"


def test_a_feed_with_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    feed = str(tmp_path / ("a" * 300))
    assert "cannot be written: File name too long" in refusal(FEEDS={feed: {"format": "csv"}})
