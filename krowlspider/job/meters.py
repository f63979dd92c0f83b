"""What is measured of a crawl: histograms, the table of metrics, and the reasons of drops.

Why URLs are refused and dropped: words for people, and what decides. Each is a clause, and the
setting or the spider's argument that decides; "" for none.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.fetch.errors import Exchange, FetchError, NameFailed, Times
from krowlspider.frontier.hosts.table import SchedulingState
from krowlspider.frontier.robots.gate import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

# Why a URL that is found would not be queued, by the word of `Scope.refusal`.
REFUSED = {
    "length": ("it is too long", "URLLENGTH_LIMIT"),
    "port": ("its port is one that links may not lead to", "KROWL_PORTS"),
    "deny": ("an expression of deny matches it", "deny"),
    "allow": ("no expression of allow matches it", "allow"),
    "path_depth": ("its path has too many segments", ""),
    "repeated_segments": ("a segment of its path is repeated too often", ""),
    "extension": ("files with this extension are skipped", "KROWL_SKIP_EXTENSIONS"),
    "calendar": ("it looks like a page of an endless calendar", ""),
    "mirror": ("its Gemini server has many like it: a mirror, or pages without end", ""),
    "exclude": ("an expression of KROWL_EXCLUDE matches it", "KROWL_EXCLUDE"),
    "sheet_depth": ("it is deeper than the depth of a sheet", "KROWL_POLICIES"),
    "sheet_exclude": ("an expression of a sheet's exclude matches it", "KROWL_POLICIES"),
    "sheet_include": ("no expression of a sheet's include matches it", "KROWL_POLICIES"),
    "max_pages": ("max_pages of a sheet is reached", "KROWL_POLICIES"),
    "max_bytes": ("max_bytes of a sheet is reached", "KROWL_POLICIES"),
    "max_seconds": ("max_seconds of a sheet are over", "KROWL_POLICIES"),
}
_LATE = "its host did not answer in time, to the last try"
# Why an entry was dropped, by the reason of its acknowledgement.
_DROPPED = {
    **{
        reason: REFUSED[reason]
        for reason in (
            *("exclude", "sheet_depth", "sheet_exclude", "sheet_include"),
            *("max_pages", "max_bytes", "max_seconds"),
        )
    },
    "port": REFUSED["port"],
    Verdict.DISALLOWED.value: ("its robots.txt forbids it", "ROBOTSTXT_OBEY"),
    Verdict.UNDECIDED.value: ("its robots.txt takes too long to decide on it", "ROBOTSTXT_OBEY"),
    Verdict.UNREACHABLE.value: ("its robots.txt cannot be fetched", "ROBOTSTXT_OBEY"),
    Verdict.TOO_SLOW.value: (
        "its robots.txt asks for a longer delay than KROWL_CRAWL_DELAY_MAX",
        "KROWL_CRAWL_DELAY_MAX",
    ),
    "throttled": ("its host answered 429, 503 or (Gemini) 44 too often", ""),
    "redirect_scheme": ("it redirects from Gemini to the web, or back", "KROWL_GEMINI_REDIRECTS"),
    "gemini_input": ("its answer 1x asks a person for input", ""),
    "gemini_temporary": ("its answer was 4x to the last try", "RETRY_TIMES"),
    "gemini_permanent": ("its answer was 5x", ""),
    "gemini_missing": ("its answer was 51 or 52: it is not there", ""),
    "gemini_certificate": ("its answer 6x asks for a certificate of the client", ""),
    "too_large": ("its answer is larger than DOWNLOAD_MAXSIZE", "DOWNLOAD_MAXSIZE"),
    "address_forbidden": ("its address is not of the public internet", "KROWL_ALLOW_ADDRESSES"),
    "connect_timeout": (_LATE, "KROWL_CONNECT_TIMEOUT"),
    "first_byte_timeout": (_LATE, ""),
    "total_timeout": (_LATE, "DOWNLOAD_TIMEOUT"),
    "hook": ("a hook does not want it", "KROWL_HOOKS"),
    "head_type": ("its answer to HEAD has a type that is skipped", "KROWL_SKIP_EXTENSIONS"),
    "stopped": ("a spider stopped its download", ""),
    "ignored": ("a middleware refused it", ""),
    "not_awaited": ("a pipeline or callback waited for it, which a restart has ended", ""),
    "seed_depth": ("it is deeper than the words of its seed allow", "depth"),
    "seed_pages": ("its seed has as many pages as its words allow", "max_pages"),
    "error": ("its request ended with an error, which the log names", ""),
}


def words_of_drop(reason: str) -> tuple[str, str]:
    """Return why an entry was dropped, and what decides.

    A reason without words of its own is a kind of failure of `krowlspider.fetch.errors`.
    """
    return _DROPPED.get(reason, (f"its fetch failed to the last try ({reason})", "RETRY_TIMES"))


# Upper bounds of the buckets: seconds of the network, seconds of the disk, bytes, and counts.
NETWORK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
DISK = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0)
LOOP = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
SIZES = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 1e8)
COUNTS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
# Labels. Anything else is "other", an answer without a Content-Type is of "none".
CONTENT_TYPES = (
    *("html", "text", "json", "xml", "image", "media", "style", "script", "pdf", "font", "other"),
    "none",
)
HTTP_VERSIONS = ("1.0", "1.1")
TLS_VERSIONS = ("none", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3", "other")
# Bytes of a Content-Type that are read: the last ones read are kept.
_TYPE_MAX = 100
# Exchanges that are counted at a time: amid the work on a page, the tables of one are in no cache.
_TOGETHER = 256
# Parts of a media type, each with its class. The first one found decides.
_CLASSES = (
    ("html", "html"),
    ("image/", "image"),
    ("video/", "media"),
    ("audio/", "media"),
    ("font", "font"),
    ("css", "style"),
    ("javascript", "script"),
    ("json", "json"),
    ("xml", "xml"),
    ("pdf", "pdf"),
    ("text/", "text"),
)


class Histogram:
    """Counts values in buckets. A value is in the first bucket whose bound is not below it."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        # The last one counts the values over all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Meters:
    """The histograms of a crawl, and the counts of its answers by content type and version."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Times, tuple[str, str] | None, int, str, bytes]] = []
        self.dns = Histogram(NETWORK)
        self.connect = Histogram(NETWORK)
        self.tls = Histogram(NETWORK)
        self.first_byte = Histogram(NETWORK)
        self.fetch = Histogram(NETWORK)
        self.size = Histogram(SIZES)
        self.links = Histogram(COUNTS)
        self.commit = Histogram(DISK)
        self.batch = Histogram(DISK)
        self.pair = Histogram(DISK)
        self.inbox = Histogram(DISK)
        self.redis = Histogram(DISK)
        self.consul = Histogram(NETWORK)
        self.loop_lag = Histogram(LOOP)
        self.content_types: dict[str, float] = dict.fromkeys(CONTENT_TYPES, 0)
        self.http_versions: dict[str, float] = dict.fromkeys(HTTP_VERSIONS, 0)
        self.tls_versions: dict[str, float] = dict.fromkeys(TLS_VERSIONS, 0)

    def fetched(self, exchange: Exchange) -> None:
        """Measure an exchange, by the next `count`, or with `_TOGETHER` of them."""
        content_type = b""
        for name, text in exchange.headers:
            if len(name) == 12 and name.lower() == b"content-type":
                content_type = text[:_TYPE_MAX]
                break
        stored = exchange.stored
        # Not `response_size`, which is a call.
        size = len(exchange.response_bytes) if stored is None else stored.size
        tls = exchange.peer.tls
        self._waiting.append((exchange.times, tls, size, exchange.version, content_type))
        if len(self._waiting) == _TOGETHER:
            self.count()

    def count(self) -> None:
        """Count the exchanges that wait. Call it before anything is read."""
        for times, tls, size, version, content_type in self._waiting:
            self.first_byte.observe(times.latency)
            self.fetch.observe(times.duration)
            self.size.observe(size)
            if (dialled := times.dialled) is not None:
                self.connect.observe(dialled.connect)
                if tls is not None:
                    self.tls.observe(dialled.tls)
            # None for another protocol.
            if version:
                self.http_versions[version] += 1
            named = "none" if tls is None else tls[0]
            self.tls_versions[named if named in self.tls_versions else "other"] += 1
            self.content_types[content_class(content_type)] += 1
        self._waiting.clear()


@lru_cache(maxsize=256)
def content_class(content_type: bytes) -> str:
    """Return the class of a Content-Type, one of `CONTENT_TYPES`."""
    kind = content_type.partition(b";")[0].strip().lower().decode("latin-1")
    if not kind:
        return "none"
    return next((found for part, found in _CLASSES if part in kind), "other")


def _kinds(kind: type[FetchError]) -> list[str]:
    return [kind.kind, *(name for each in kind.__subclasses__() for name in _kinds(each))]


ERRORS = (*_kinds(FetchError)[1:], "stopped", "error")
NAME_ERRORS = tuple(_kinds(NameFailed))
# Those of `RedisTrouble`, whose module would load Redis for a crawl of one process.
REDIS_ERRORS = ("full", "readonly", "loading", "auth", "timeout", "down", "type", "disk", "other")
_REFUSING = {*Verdict} - {Verdict.ALLOWED, Verdict.UNKNOWN}
# Why URLs are dropped; docs/stats.md explains each.
DROPPED = tuple(
    sorted(
        {
            *REFUSED,
            *ERRORS,
            *(verdict.value for verdict in _REFUSING),
            *("host", "domain", "depth", "url", "frontier", "domain_budget", "domain_share"),
            *("outbox", "redirects", "redirect_loop", "redirect_scheme"),
            *("gemini_input", "gemini_temporary", "gemini_permanent", "gemini_missing"),
            *("gemini_certificate", "sitemap_domain", "sitemap_depth"),
            *("sitemap_count", "requisite_site", "requisite_budget", "throttled", "poison"),
            *(
                "head_type",
                "hook",
                "seed_depth",
                "seed_pages",
                "operator",
                "hops",
                "ignored",
                "not_awaited",
                "unserializable",
                "recrawled",
            ),
        }
    )
)
STATES = tuple(state.value.replace(" ", "_") for state in SchedulingState)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
STATUSES = (
    *("200", "204", "206", "301", "302", "303", "304", "307", "308", "400", "401", "403", "404"),
    *("405", "406", "410", "429", "451", "500", "502", "503", "504"),
)


# The names of hooks, as of krowlspider.hooks.
_HOOKS = (
    *("archive", "compute_delay", "disallowed", "end", "enqueued", "error", "fetch"),
    *("fetched_robots", "filter", "log", "priority", "recrawl_weight", "request_get"),
    *("request_robots", "scope", "start", "visit", "visited"),
)


class Stat(NamedTuple):
    """A stat. With a ``label``, ``values`` are there from zero; others may come."""

    help: str
    label: str = ""
    values: tuple[str, ...] = ()


class Observed(NamedTuple):
    """A histogram. ``meter`` is its field of `Meters`."""

    name: str
    meter: str
    help: str


class Measured(NamedTuple):
    """A counter or gauge that is no stat. ``kind`` is the TYPE of Prometheus.

    The samples of a counter have ``_total`` behind ``name``.
    """

    name: str
    kind: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ()


STATS: dict[str, Stat] = {
    "downloader/exception_count": Stat("Requests that ended without a usable answer."),
    "downloader/request_count": Stat("Requests that have ended, robots.txt and retries included."),
    "downloader/response_bytes": Stat("Bytes of the answers' heads and bodies."),
    "downloader/response_count": Stat("Answers, those of robots.txt and retries included."),
    "downloader/response_status_count": Stat("Answers by status code.", "status", STATUSES),
    "dupefilter/filtered": Stat("URLs that were known already."),
    "item_scraped_count": Stat("Items that the spider made."),
    "log_count": Stat("Lines of the log, by level.", "level", LEVELS),
    "memusage/max": Stat("Most resident memory since the start, bytes."),
    "response_received_count": Stat("Answers that came to the spider."),
    "retry/count": Stat("Requests that are sent again."),
    "retry/max_reached": Stat("Pages that were given up after the last try."),
    "robotstxt/response_count": Stat("Answers to requests for robots.txt."),
    "robotstxt/response_status_count": Stat(
        "Answers to requests for robots.txt, by status code.", "status", STATUSES
    ),
    "scheduler/enqueued": Stat("URLs queued."),
    "krowl/archive/bytes_count": Stat("Bytes of WARC written, compressed."),
    "krowl/archive/failed_count": Stat(
        "Captures that were not archived: a failed disk, or bytes that fit no WARC record."
    ),
    "krowl/archive/files_count": Stat("WARC files begun."),
    "krowl/archive/left_out_count": Stat("Answers that a sheet keeps out of the archive."),
    "krowl/archive/records_count": Stat("WARC records written."),
    "krowl/archive/revisits_count": Stat("Revisit records, written in place of a known body."),
    "krowl/browser/cut_count": Stat("Pages in the browser that were not loaded in time."),
    "krowl/browser/failed_count": Stat(
        "Requests of pages in the browser without an answer, by kind of failure; why one was"
        " refused is in krowl_frontier_dropped_total.",
        "reason",
        ("refused", *ERRORS),
    ),
    "krowl/browser/kept_count": Stat("Requests of pages in the browser answered from memory."),
    "krowl/browser/page_count": Stat("Pages opened in the browser."),
    "krowl/browser/page_failed_count": Stat(
        "Pages that stay as they were fetched, by reason.",
        "reason",
        ("answer", "error", "size", "url"),
    ),
    "krowl/browser/refused_count": Stat(
        "Requests of pages in the browser that are never made, by reason.",
        "reason",
        ("count", "method", "prefetch", "url", "websocket"),
    ),
    "krowl/browser/request_count": Stat("Requests of pages in the browser, made by the crawl."),
    "krowl/cluster/again_count": Stat("Messages sent again, because they were lost."),
    "krowl/cluster/arrived_count": Stat("Hosts received from other nodes."),
    "krowl/cluster/dead_count": Stat("Unreadable messages of our inbox."),
    "krowl/cluster/dead_lost_count": Stat("Unreadable messages that no list kept."),
    "krowl/cluster/failed_count": Stat("Failed calls of Redis, by kind.", "reason", REDIS_ERRORS),
    "krowl/cluster/held_count": Stat("Times that a full inbox held messages back."),
    "krowl/cluster/members": Stat("Nodes that live."),
    "krowl/cluster/moved_count": Stat("Hosts handed over to other nodes."),
    "krowl/cluster/moving": Stat("Hosts on their way to other nodes."),
    "krowl/cluster/sent_count": Stat("Messages sent to other inboxes."),
    "krowl/cluster/stays": Stat("Entries of other nodes' hosts that no other node can read."),
    "krowl/cluster/taken_count": Stat("Messages taken from our inbox."),
    "krowl/control/change_count": Stat(
        "Changes to the crawl by a person, by kind.",
        "reason",
        ("pause", "resume", "block", "unblock", "delay", "add", "forget", "reload", "set"),
    ),
    "krowl/disk/pauses_count": Stat("Times that the crawl waited for room on its disk."),
    "krowl/dns/cached_count": Stat("Names found in the cache."),
    "krowl/dns/failed_count": Stat(
        "Names without an address, by kind of failure.", "reason", NAME_ERRORS
    ),
    "krowl/dns/joined_count": Stat("Calls that waited for a look-up under way."),
    "krowl/dns/question_count": Stat("Questions to the DNS."),
    "krowl/dns/wait_seconds": Stat("Time of look-ups, all together."),
    "krowl/fetch/failed_count": Stat(
        "Fetches without an answer that is of use, by kind of failure.", "reason", ERRORS
    ),
    "krowl/fetch/truncated_count": Stat("Answers accepted that may be cut: TLS without its end."),
    "krowl/fetch/unknown_seed_count": Stat("Look-ups that found no host for a seed."),
    "krowl/crawl/ending": Stat(
        "1 while the crawl is being stopped, or may reach its end within two minutes."
    ),
    "krowl/frontier/deferred": Stat("URLs queued for hosts that are deferred."),
    "krowl/frontier/done_count": Stat("Pages acknowledged."),
    "krowl/frontier/fetched_count": Stat(
        "URLs fetched, by kind; pages are those of done.",
        "kind",
        (
            "page",
            "redirect",
            "not_modified",
            "sitemap",
            "requisite",
            "opt_out",
            "index_key",
            "subrequest",
            "robots",
        ),
    ),
    "krowl/frontier/dropped_count": Stat("URLs dropped, by reason.", "reason", DROPPED),
    "krowl/frontier/due": Stat("Hosts that could be asked now, of those in memory."),
    "krowl/frontier/foreign_count": Stat("URLs of other nodes put into the outbox."),
    "krowl/frontier/hosts": Stat("Hosts with URLs queued."),
    "krowl/frontier/in_flight": Stat("Requests sent and not ended."),
    "krowl/frontier/outbox": Stat("URLs of other nodes that wait in the outbox."),
    "krowl/frontier/queued": Stat("URLs queued now, those that are deferred included."),
    "krowl/indexnow/refused_count": Stat(
        "Submissions of IndexNow that were refused, or whose key was wrong, by reason.",
        "reason",
        ("flood", "form", "host", "key", "late", "owner", "size", "url"),
    ),
    "krowl/indexnow/taken_count": Stat("URLs in submissions of IndexNow whose key was right."),
    "krowl/pages/validator_left_count": Stat(
        "ETag and Last-Modified that no row of a page keeps: too long, binary, repeated, without"
        " quotes, or not before the Date of the answer.",
        "reason",
        ("etag", "modified"),
    ),
    "krowl/policies/failed_count": Stat("Versions of KROWL_POLICIES that had an error."),
    "krowl/policies/faulty": Stat(
        "1 while the file of KROWL_POLICIES, or that of its cluster, cannot be used."
    ),
    "krowl/policies/reload_count": Stat("Versions of KROWL_POLICIES put into force since."),
    "krowl/policies/sheets": Stat("Sheets of KROWL_POLICIES in force."),
    "krowl/recrawl/asked_count": Stat("Answers for pages fetched again by the schedule."),
    "krowl/recrawl/changed_count": Stat("Those of asked that had another main text or status."),
    "krowl/recrawl/due_count": Stat("Pages queued since they were due again."),
    "krowl/recrawl/gone_count": Stat("Pages dropped from the schedule as they are gone."),
    "krowl/recrawl/hinted_changed_count": Stat("Those of hinted that had changed."),
    "krowl/recrawl/hinted_count": Stat("Pages brought forward by what their site says."),
    "krowl/recrawl/late_seconds": Stat("Time for which the pages queued next have been due."),
    "krowl/recrawl/not_modified_count": Stat("Those of asked that were answered 304."),
    "krowl/recrawl/postponed_count": Stat("Pages that came up and are not worth a fetch yet."),
    "krowl/recrawl/threshold": Stat("Seconds of freshness that a fetch is worth at least."),
    "krowl/links/left_count": Stat(
        "Links dropped before they became URLs, by reason.",
        "reason",
        ("scheme", "link_count", "length", "nofollow"),
    ),
    "krowl/loop/lag_max_ms": Stat("Lag of the event loop: most since the start."),
    "krowl/loop/lag_p50_ms": Stat("Lag of the event loop: median since the start."),
    "krowl/loop/lag_p999_ms": Stat("Lag of the event loop: 99.9th percentile since the start."),
    "krowl/loop/lag_p99_ms": Stat("Lag of the event loop: 99th percentile since the start."),
    "krowl/loop/recent_lag_max_ms": Stat(
        "Lag of the event loop: most in the last KROWL_STATUS_INTERVAL."
    ),
    "krowl/loop/recent_lag_p99_ms": Stat(
        "Lag of the event loop: 99th percentile in the last KROWL_STATUS_INTERVAL."
    ),
    "krowl/head/request_count": Stat("Requests by HEAD, before the GET of their page."),
    "krowl/hooks/failed_count": Stat("Calls of hooks that failed, by hook.", "hook", _HOOKS),
    "krowl/hooks/slow_count": Stat("Calls of hooks that took too long, by hook.", "hook", _HOOKS),
    "krowl/hooks/cut_off_count": Stat("Hooks that are cut off, by hook.", "hook", _HOOKS),
    "krowl/memory/held_bytes": Stat("Bytes of bodies in memory."),
    "krowl/memory/waits_count": Stat("Times that a body or the next request waited for memory."),
    "krowl/pages/duplicate_count": Stat(
        "Pages whose links were left: the host sent the body before."
    ),
    "krowl/politeness/address_rested_count": Stat("Times that an address backed off."),
    "krowl/politeness/blameless_count": Stat("Failures that count against no host."),
    "krowl/politeness/outages_count": Stat("Outages of our own network, name servers or proxy."),
    "krowl/politeness/parked_count": Stat("Times that a host was parked for a day."),
    "krowl/identity/signed_count": Stat("Answers to signed requests."),
    "krowl/identity/refused_count": Stat("Answers 401 and 403 to signed requests."),
    "krowl/identity/challenged_count": Stat("Times that a host asked for signatures."),
    "krowl/politeness/throttling_count": Stat(
        "Answers 429 and 503, and 500 or more for robots.txt."
    ),
    "krowl/politeness/turned_back_count": Stat(
        "Requests not sent for want of room at their address, or as other sheets hold there."
    ),
    "krowl/prices/asked_count": Stat("Answers 402: the host asks for a payment. None is made."),
    "krowl/requisites/fetched_count": Stat(
        "Requisites answered, by kind.", "reason", ("image", "style", "manifest", "other")
    ),
    "krowl/requisites/left_count": Stat(
        "References of requisites that were left out, by reason.",
        "reason",
        ("scheme", "length", "count", "level", "size"),
    ),
    "krowl/requisites/queued_count": Stat("Requisites queued."),
    "krowl/robots/overridden_count": Stat(
        "Pages that robots.txt refuses, fetched by the permission in a sheet."
    ),
    "krowl/seeds/bad_count": Stat("Seed lines skipped as bad."),
    "krowl/seeds/fallback_count": Stat("Bare seeds that went on with http after one try of https."),
    "krowl/seeds/read_count": Stat("Seed lines read."),
    "krowl/seen/expected_losses": Stat(
        "New URLs that the seen filter may have taken for known: an upper bound."
    ),
    "krowl/seen/false_positives_count": Stat("Mistakes of the seen filter that were found."),
    "krowl/seen/fill": Stat("Part of the seen filter that is full, 0 to 1."),
    "krowl/seen/keys": Stat("URLs in the seen set."),
    "krowl/seen/layers": Stat("Layers of the seen filter."),
    "krowl/sitemaps/bad_count": Stat(
        "Answers that are no sitemap, are broken, or are over a limit."
    ),
    "krowl/sitemaps/read_count": Stat("Sitemaps read."),
    "krowl/sitemaps/url_count": Stat("URLs in sitemaps."),
    "krowl/upload/bytes_count": Stat("Bytes verified in the bucket."),
    "krowl/upload/failed_count": Stat("Tries to upload a file that failed."),
    "krowl/upload/files_count": Stat("Files verified in the bucket."),
    "krowl/upload/waiting": Stat("Files that are not uploaded yet."),
    "krowl/watchdog/blamed_count": Stat("Holds of the event loop for which a host is blamed."),
    "krowl/watchdog/holds_count": Stat("Times that the event loop was held for over 5 s."),
    "krowl/watchdog/set_aside_count": Stat(
        "Hosts that were set aside at the start for their holds."
    ),
}
_LEVELS = tuple(map(str, range(7)))
_DISKS = ("archive", "frontier")
HISTOGRAMS: tuple[Observed, ...] = (
    Observed("krowl_dns_seconds", "dns", "Time of a look-up that asked the DNS."),
    Observed(
        "krowl_fetch_connect_seconds", "connect", "Time of a TCP connection of an answered request."
    ),
    Observed("krowl_fetch_tls_seconds", "tls", "Time of a TLS handshake of an answered request."),
    Observed(
        "krowl_fetch_first_byte_seconds", "first_byte", "Time from the request to the first byte."
    ),
    Observed(
        "krowl_fetch_seconds", "fetch", "Time of a whole fetch, look-up and connection included."
    ),
    Observed(
        "krowl_fetch_size_bytes", "size", "Bytes of an answer as received, its head included."
    ),
    Observed("krowl_page_links", "links", "Links of a page."),
    Observed("krowl_commit_seconds", "commit", "Time of a group commit, its syncs included."),
    Observed("krowl_leveldb_batch_seconds", "batch", "Time of a write to LevelDB, syncs excluded."),
    Observed(
        "krowl_archive_pair_seconds", "pair", "Time to write the records of a request and answer."
    ),
    Observed("krowl_cluster_inbox_batch_seconds", "inbox", "Time to take messages in, durably."),
    Observed(
        "krowl_cluster_redis_seconds",
        "redis",
        "Time to ask this node's Redis for the length of the inbox, each second.",
    ),
    Observed(
        "krowl_cluster_consul_seconds",
        "consul",
        "Time of an answered call of Consul, without blocking queries.",
    ),
    Observed("krowl_loop_lag_seconds", "loop_lag", "How late the event loop runs a timer."),
)
_C, _G = "counter", "gauge"
MEASURED: tuple[Measured, ...] = (
    Measured(
        "krowl_fetch_content_type",
        _C,
        "Answers by class of Content-Type.",
        "content_type",
        CONTENT_TYPES,
    ),
    Measured(
        "krowl_fetch_http_version", _C, "Answers by version of HTTP.", "version", HTTP_VERSIONS
    ),
    Measured("krowl_fetch_tls_version", _C, "Answers by version of TLS.", "version", TLS_VERSIONS),
    Measured("krowl_frontier_hosts_in_memory", _G, "Hosts in memory by state.", "state", STATES),
    Measured(
        "krowl_frontier_oldest_due_seconds",
        _G,
        "How long the next host has been due; 0 if none is.",
    ),
    Measured("krowl_dns_cache_names", _G, "Names in the DNS cache."),
    Measured("krowl_archive_queue_bytes", _G, "Bytes of captures that wait for the WARC writer."),
    Measured("krowl_archive_queue_limit_bytes", _G, "Bytes at which nothing more is popped."),
    Measured("krowl_memory_limit_bytes", _G, "Most bytes of bodies in memory."),
    Measured("krowl_machine_memory_bytes", _G, "Memory that this process may use."),
    Measured("krowl_disk_free_bytes", _G, "Free bytes of a disk.", "disk", _DISKS),
    Measured("krowl_disk_floor_bytes", _G, "KROWL_DISK_FLOOR."),
    Measured(
        "krowl_crawl_paused",
        _G,
        "1 while no request is sent for this reason, else 0.",
        "reason",
        ("person", "disk", "outage", "memory", "cluster"),
    ),
    Measured("krowl_process_threads", _G, "Threads of Python."),
    Measured("krowl_leveldb_files", _G, "Tables of LevelDB by level.", "level", _LEVELS),
    Measured(
        "krowl_leveldb_size_bytes", _G, "Bytes of LevelDB's tables by level.", "level", _LEVELS
    ),
    Measured("krowl_leveldb_memory_bytes", _G, "Memory of LevelDB's buffers and caches."),
    Measured("krowl_leveldb_compaction_seconds", _C, "Time of merges.", "level", _LEVELS),
    Measured("krowl_leveldb_compaction_read_bytes", _C, "Bytes read by merges.", "level", _LEVELS),
    Measured(
        "krowl_leveldb_compaction_written_bytes", _C, "Bytes written by merges.", "level", _LEVELS
    ),
    Measured("krowl_cluster_joined", _G, "1 if this process is a member of a cluster, else 0."),
    Measured("krowl_cluster_lease", _G, "1 while no other node may take over our hosts, else 0."),
    Measured("krowl_cluster_ring", _G, "A number of the ring: equal on nodes that agree."),
    Measured("krowl_cluster_dead_nodes", _G, "Nodes that have died with work on their disks."),
    Measured(
        "krowl_cluster_inbox_messages", _G, "Messages in our inbox; -1 if Redis does not answer."
    ),
)
