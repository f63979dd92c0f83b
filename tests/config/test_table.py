"""The table of settings: each row takes its default, and refuses each kind of wrong value."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from krowlspider import settings
from krowlspider.config.kinds import Number, boolean
from krowlspider.config.log import IN_FILES
from krowlspider.config.validation import KNOWN, ROWS, problem, validate
from tests.support.settings import project_settings, refusal
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET_FILES = {f"{name}_FILE" for name in IN_FILES}
# Wrong values of the rows that are neither numbers nor True or False, and what is said of each.
WRONG: list[tuple[str, object, str]] = [
    ("KROWL_HOST_QUEUE_MAX", "9" * 400, "is not a whole number of URLs"),
    ("KROWL_ALLOW_ADDRESSES", "10.0.0.1/8", "has '10.0.0.1/8'"),
    ("KROWL_ALLOW_ADDRESSES", ["10.0.0.0/8", " fd00::/8"], "has ' fd00::/8'"),
    ("KROWL_ALLOW_ADDRESSES", 10, "is not a list"),
    ("KROWL_BROWSER_URLS", "(", "is no list of regular expressions: '(' is not a regular"),
    ("KROWL_BROWSER_URLS", "(a+)+$", "is no list of regular expressions: '(a+)+$' could take"),
    ("KROWL_PORTS", "80,http", "is no list of ports and ranges: 'http' is neither a port nor"),
    ("KROWL_PORTS", "65536", "is no list of ports and ranges: '65536'"),
    ("KROWL_PORTS", "1-2-3", "is no list of ports and ranges: '1-2-3'"),
    ("KROWL_PORTS", "9-8", "is no list of ports and ranges: '9-8' is no range"),
    ("KROWL_PORTS", "80,22", "is no list of ports and ranges: '22' is a port of another"),
    ("KROWL_PORTS", 8080, "is no list of ports and ranges: "),
    ("KROWL_RESOLVE", "*.test=127.0.0.1", "is not a mapping"),
    ("KROWL_RESOLVE", "[1]", "is not a mapping"),
    ("KROWL_RESOLVE", '{"*.test": "localhost"}', "has 'localhost' for '*.test'"),
    ("KROWL_RESOLVE", '{"a.*.test": "127.0.0.1"}', "has 'a.*.test'"),
    ("KROWL_RESOLVE", '{"http://a.test": "127.0.0.1"}', "has 'http://a.test'"),
    ("KROWL_DNS_SERVERS", "dns.example", "has 'dns.example'"),
    ("KROWL_DNS_SERVERS", "1.2.3.4:0", "has '1.2.3.4:0'"),
    ("KROWL_DNS_SERVERS", "1.2.3.4:65536", "has '1.2.3.4:65536'"),
    ("KROWL_DNS_SERVERS", "[1.2.3.4]:53", "has '[1.2.3.4]:53'"),
    ("KROWL_DNS_SERVERS", "[::1]", "has '[::1]'"),
    ("KROWL_WARC_DIR", "", "is not a folder's path"),
    ("KROWL_WARC_DIR", "a\0b", "is not a folder's path"),
    ("KROWL_WARC_INFO", "operator=me", "is not a mapping"),
    ("KROWL_WARC_INFO", '["operator"]', "is not a mapping"),
    ("KROWL_WARC_INFO", {"is part": "x"}, "has 'is part', which is not the name of a field"),
    ("KROWL_WARC_INFO", {"a\r\nb": "x"}, "has 'a\\r\\nb', which is not the"),
    ("KROWL_WARC_INFO", {"Software": "x"}, "has 'Software', which is written by the crawler"),
    ("KROWL_WARC_INFO", {"RETRY_TIMES": "x"}, "has 'RETRY_TIMES', which is written"),
    ("KROWL_WARC_INFO", {"ispartof": "x"}, "has 'ispartof', which is spelt 'isPartOf'"),
    ("KROWL_WARC_INFO", {"curator": 1}, "has 'curator', which must have a text"),
    (
        "KROWL_WARC_INFO",
        '{"operator": "a\\r\\nsoftware: b"}',
        "has 'operator', which must be one",
    ),
    ("KROWL_WARC_INFO", {"operator": "a\u2028b"}, "has 'operator', which must be one"),
    ("KROWL_WARC_INFO", {"operator": "a\x00b"}, "has 'operator', which must be one"),
    ("KROWL_WARC_INFO", {"operator": "\udcff"}, "has 'operator', which must be one"),
    ("KROWL_WARC_PREFIX", "../krowl", "is not of letters"),
    ("KROWL_WARC_PREFIX", ".hidden", "is not of letters"),
    ("KROWL_WARC_PREFIX", "-x", "is not of letters"),
    ("KROWL_WARC_PREFIX", "krowl\n", "is not of letters"),
    (
        "TWISTED_REACTOR",
        "twisted.internet.epollreactor.EPollReactor",
        "is not twisted.internet.asyncioreactor",
    ),
    ("RETRY_HTTP_CODES", "500,fast", "has 'fast', which is not one of the status codes"),
    ("RETRY_HTTP_CODES", [500, 5000], "has 5000"),
    ("RETRY_HTTP_CODES", 500, "is not a list"),
    ("FEEDS", {"a.foo": {"format": "foo"}}, "has 'a.foo' in the format 'foo': give one of csv"),
    ("FEEDS", {"a.jsonl": {}}, "has 'a.jsonl' in the format None: give one of csv"),
    ("FEEDS", {"xx://a": {"format": "csv"}}, "has 'xx://a', which has the unknown scheme 'x"),
    (
        "FEEDS",
        {"gs://a/b": {"format": "csv"}},
        "has 'gs://a/b', which needs the package google",
    ),
    (
        "FEEDS",
        {"/proc/a": {"format": "csv"}},
        "has '/proc/a', which cannot be written: No such",
    ),
    ("FEEDS", {"/proc/no/a": {"format": "csv"}}, "has '/proc/no/a', which cannot be written: "),
    ("FEEDS", {"file:///proc/a": {"format": "csv"}}, "has 'file:///proc/a', which cannot be"),
    ("FEEDS", {"/proc/%(name)s/a": {"format": "csv"}}, "has '/proc/%(name)s/a', which cannot"),
    ("FEEDS", {"/dev": {"format": "csv"}}, "has '/dev', which is a folder: give a file"),
    ("LOG_LEVEL", "LOUD", "is no level of a log: give CRITICAL, ERROR, WARNING, INFO or DEBUG"),
    ("LOG_LEVEL", [], "is no level of a log"),
    ("TELNETCONSOLE_PORT", "[6023,6023]", "is no list of the first and the last of several"),
    ("TELNETCONSOLE_PORT", 6023, "is no list of the first and the last of several ports"),
    ("TELNETCONSOLE_PORT", [6, 5], "is no list of the first and the last of several ports"),
    (
        "SCHEDULER",
        "scrapy.core.scheduler.Scheduler",
        "is neither krowlspider.engine.scheduler.Scheduler nor derived from it",
    ),
    ("ADDONS", {"nosuch.Component": 1}, "names 'nosuch.Component', which cannot be loaded: No"),
    ("ADDONS", {"x.Y": "first"}, "is wrong: Invalid value first for component x.Y"),
    ("ITEM_PIPELINES", {"x.Y": "first"}, "is wrong: Invalid value first for component x.Y"),
    ("SCHEDULER", "krowlspider.nosuch.Scheduler", "cannot be loaded: No module named"),
    ("SCHEDULER", "krowlspider.engine.scheduler.Nosuch", "cannot be loaded: Module"),
    ("SCHEDULER", "Scheduler", "cannot be loaded: Error loading object"),
    ("SCHEDULER", 7, "cannot be loaded: "),
    ("DUPEFILTER_CLASS", "scrapy.dupefilters.RFPDupeFilter", "is neither krowlspider."),
    ("DOWNLOADER", "scrapy.core.downloader.Downloader", "is neither krowlspider."),
    ("KROWL_MEMORY_LIMIT", "-1", "is out of range: 0 or more bytes"),
    (
        "KROWL_MEMORY_LIMIT",
        "2 bytes",
        "is not a whole number of bytes, such as 2000000000, 2GB or 512MiB",
    ),
    ("KROWL_MEMORY_LIMIT", 40_000_000, "is less than four times DOWNLOAD_MAXSIZE"),
    ("USER_AGENT", "", "must be plain printable ASCII"),
    ("USER_AGENT", "Mozilla/5.0", "must hold {contact}"),
    ("USER_AGENT", "bot\r\nX: y", "must be plain printable ASCII"),
    ("ROBOTSTXT_USER_AGENT", "krowl spider", "is not a product token"),
    ("KROWL_LOG_FORMAT", "xml", "is not text or json"),
    ("CONCURRENT_REQUESTS_PER_IP", -1, "is out of range: 0 or more requests"),
    ("CONCURRENT_REQUESTS_PER_IP", "few", "is not a whole number of requests"),
    ("DOWNLOADER_MIDDLEWARES", {"x.Y": "first"}, "is wrong: Invalid value first for component x.Y"),
    ("DOWNLOAD_SLOTS", {"a.test": 5}, "has 5 for 'a.test', which is not a mapping"),
    ("EXTENSIONS", {"x.Y": "first"}, "is wrong: Invalid value first for component x.Y"),
    ("SPIDER_MIDDLEWARES", {"x.Y": "first"}, "is wrong: Invalid value first for component x.Y"),
    ("KROWL_CONTACT", "you", "is neither an e-mail address nor an http(s) URL"),
    ("KROWL_CONTROL_PORT", [2, 1], "is neither a port, 0 to 65535, nor the first and the last"),
    ("KROWL_CONTROL_TOKEN", "short", "is not at least 16 plain printable characters"),
    ("KROWL_METRICS_NAMES", "a.test:80", "has 'a.test:80', which is not one of the names and add"),
    ("KROWL_EXCLUDE", "/none/such", "is not an existing file"),
    ("KROWL_EXCLUDE", "", "is not a file's path"),
    ("KROWL_EXCLUDE", "a\0b", "is not a file's path"),
    ("KROWL_POLICIES", "/none/such", "is not an existing file"),
    ("KROWL_GEMINI_CERTIFICATES", "yes", "is not refuse or accept"),
    ("KROWL_GEMINI_REDIRECTS", "all", "is not same or any"),
    ("KROWL_SIGN", "sometimes", "is not challenged or always"),
    ("KROWL_SIGN_AGENT", "http://bot.test", "is not the https origin that serves the directory"),
    ("KROWL_HOOKS", "none.such.Hooks", "cannot be loaded: No module named 'none'"),
    ("KROWL_SIGN_KEY", "/none/such", "is not an existing file"),
    ("KROWL_SIGN_KEY", __file__, "is neither a private key as PEM (PKCS #8) nor a JWK: make one"),
    ("KROWL_SKIP_EXTENSIONS", "zip,a/b", "has 'a/b', which is not one of the extensions"),
    ("KROWL_SKIP_EXTENSIONS", "tar.gz", "has 'tar.gz'"),
    ("KROWL_CLUSTER", "a/b", "is not 1 to 63 letters"),
    ("KROWL_CONSUL", "127.0.0.1:8500", "is not the http(s) URL of a server"),
    ("KROWL_CONSUL_TOKEN", "a\nb", "must be plain printable ASCII"),
    ("REDIS_URL", "http://h.test/0", "is not the URL of a Redis"),
    ("REDIS_URL", "redis://h.test/0?db=1", "is not the URL of a Redis"),
    ("KROWL_NODE_ID", "a b", "is not a node id"),
    ("KROWL_NODE_ID", ".a", "is not a node id"),
    ("KROWL_CONSUL", "unix://a", "is not the http(s) URL of a server"),
    ("KROWL_NOTIFY", "https://u:p@hooks.test/", "is neither the http(s) URL of a webhook"),
    ("KROWL_TRACES", "collector:4318", "is not the http(s) URL of a collector"),
    ("KROWL_GRPC", "50051", "is not HOST:PORT: give 127.0.0.1:50051"),
    ("KROWL_GRPC", "::1:50051", "is not HOST:PORT"),
    ("KROWL_GRPC", "127.0.0.1:65536", "is not HOST:PORT"),
    ("KROWL_SEARCH", "a\nb", "is not a folder's path"),
    ("KROWL_GRPC_CERT", "/none.pem", "is not an existing file"),
    ("KROWL_GRPC_KEY", "/none.pem", "is not an existing file"),
    ("KROWL_GRPC_CLIENT_CA", "/none.pem", "is not an existing file"),
    ("KROWL_PYROSCOPE", "pyroscope:4040", "is not the http(s) URL of a server"),
    ("KROWL_REQUISITES", "all", "is not none, site or any"),
    ("KROWL_RECRAWL", "twice", "is not off, once or continuous"),
    ("KROWL_WARC_ALSO", "dns,all", "has 'all', which is not one of the words metadata, failures a"),
    ("KROWL_WARC_ALSO", 1, "is not a list of words metadata, failures and dns"),
    ("KROWL_WARC_COMPRESSION", "gzip", "is not isal-0 to isal-3, or zlib-ng-1 to zlib-ng-9"),
    ("KROWL_WARC_DEDUP", 1, "is not a list of JOBDIRs, CDXJ files and dedup indexes"),
    ("KROWL_WARC_DIGEST", "md5", "is not sha1 or sha256"),
    ("KROWL_WARC_UPLOAD", "bucket/prefix", "is not s3://bucket or s3://bucket/prefix"),
    ("KROWL_WARC_UPLOAD", "s3://bucket/../x", "has a prefix that is not of letters"),
    ("KROWL_WARC_UPLOAD_ENDPOINT", "minio:9000", "is not the http(s) URL of a server"),
    ("LOG_FILE", "/", "is a folder: give a file"),
    ("LOG_FILE", "/none/such/log", "cannot be written: there is no folder /none/such"),
    ("PROMETHEUS_HOST", "a b", "is not an address to listen at"),
    ("PROMETHEUS_PATH", "a b", "is not a path such as metrics"),
    ("PROMETHEUS_PORT", "http", "is neither a port, 0 to 65535, nor the first and the last"),
    ("TWISTED_REACTOR_ENABLED", "0", "must be True"),
]


def wrong_values() -> Iterator[tuple[str, object, str]]:
    """Yield names, wrong values, and what is said of each."""
    for name, row in ROWS.items():
        if isinstance(row.check, Number):
            yield from ((name, *wrong) for wrong in wrong_numbers(row.check))
        elif row.check is boolean:
            yield from ((name, value, "is neither True nor False") for value in ("yes", []))
    yield from WRONG


def wrong_numbers(check: Number) -> Iterator[tuple[object, str]]:
    none = f"is not a {'whole ' if check.whole else ''}number of {check.unit}"
    out = f"is out of range: {'more than ' if check.above else ''}{check.low:g}"
    yield from (("some", none), ([1], none), ("nan", none if check.whole else out))
    yield check.low if check.above else check.low - 1, out
    if check.whole:
        yield check.low + 0.5, none
    if isfinite(check.high):
        yield check.high + 1, out


def test_each_row_has_a_wrong_value() -> None:
    assert ROWS.keys() - {name for name, _, _ in wrong_values()} == SECRET_FILES


@table(("name", "value", "reason"), list(wrong_values()))
def test_wrong_value_is_refused_by_name_value_and_reason(
    name: str, value: object, reason: str
) -> None:
    """The value of a secret is not shown."""
    shown = name if name in IN_FILES else f"{name}={value!r}"
    assert refusal(**{name: value}).startswith(f"{shown} {reason}")


def test_defaults_are_valid_with_a_contact() -> None:
    validate(project_settings())


@table("name", sorted(ROWS.keys() - {"KROWL_CONTACT"}))
def test_default_passes_the_check_of_its_row(name: str) -> None:
    assert problem(project_settings(), name) is None


def test_table_has_every_setting_of_the_project() -> None:
    assert {name for name in vars(settings) if name.startswith("KROWL_")} == KNOWN


# None says that there is none.
OPTIONAL = {
    *(
        "KROWL_EXCLUDE",
        "KROWL_POLICIES",
        "KROWL_HOOKS",
        "KROWL_SIGN_KEY",
        "KROWL_WARC_DIR",
        "KROWL_WARC_UPLOAD",
        "KROWL_WARC_UPLOAD_ENDPOINT",
    ),
    *("LOG_FILE", "TELNETCONSOLE_PORT", "CONCURRENT_REQUESTS_PER_IP"),
    # None is an empty mapping.
    *("ADDONS", "DOWNLOAD_SLOTS", "DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "FEEDS"),
    *("ITEM_PIPELINES", "SPIDER_MIDDLEWARES"),
}


@table("name", sorted(ROWS.keys() - OPTIONAL - {"KROWL_CONTACT"}))
def test_none_is_refused_where_a_value_is_needed(name: str):
    assert refusal(**{name: None}) == f"{name} is None: give a value, or leave it out"
