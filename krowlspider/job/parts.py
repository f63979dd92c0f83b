"""Build the parts of a crawl by its settings, and those that may change while it runs."""

from __future__ import annotations

import logging
import resource
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.misc import load_object

from krowlspider.archive.write.series import SeriesOptions
from krowlspider.config import scrapy_politeness
from krowlspider.config.validation import validate
from krowlspider.errors import SettingsError
from krowlspider.fetch.client import KEEPALIVE, Client
from krowlspider.fetch.errors import LoopClock
from krowlspider.fetch.guard import AddressGuard
from krowlspider.fetch.memory import Memory, Spills
from krowlspider.fetch.resolver import Resolver
from krowlspider.fetch.tcp import Routes
from krowlspider.frontier.limits import DOMAIN_SHARE, OUTBOX_MAX, FrontierLimits, SessionLimits
from krowlspider.frontier.pages.rows import PageRows
from krowlspider.frontier.pages.seed_names import has_words
from krowlspider.frontier.robots.fetches import Peers, RobotsFetches
from krowlspider.frontier.seen import FilterFile, SeenSet
from krowlspider.job.monitoring.disk_guard import memory_to_be_had
from krowlspider.job.recrawl import CONTINUOUS, OFF
from krowlspider.politeness.delay import DelayPolicy, SiteDelays
from krowlspider.politeness.gemini import AGENTS, PrefixRules
from krowlspider.urls.canonical import IdentityHasher, Ports
from krowlspider.urls.gemini import PORT as GEMINI_PORT
from krowlspider.urls.scope import LinkRules, Traps

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from krowlspider.archive.write.composer import PayloadIndex
    from krowlspider.archive.write.writer import WarcWriter
    from krowlspider.fetch.signing import Signer
    from krowlspider.frontier.frontier import Frontier
    from krowlspider.frontier.hosts.host import RobotsFetch
    from krowlspider.frontier.store.store import LevelStore
    from krowlspider.job.folder import JobFolder
    from krowlspider.job.in_flight import Decoders
    from krowlspider.job.monitoring.crawl_log import CrawlLog
    from krowlspider.job.site_policies import SitePolicies
    from krowlspider.job.sites import Sites
    from krowlspider.job.tracing import Traces
    from krowlspider.politeness.gemini import ReadPrefixes

logger = logging.getLogger(__name__)

# Most idle connections, and files that are open besides. LevelDB maps its tables into memory and
# closes their files.
_IDLE_MAX = 2048
_OTHER_FILES = 300
# Bodies may take one part in so many of the available memory. The frontier, its caches and the
# kernel's file cache need the rest.
MEMORY_SHARE = 4
# By its path: its room imports this one.
_GEMINI_ROBOTS = "krowlspider.gemini.robots.read"
_GEMINI_MIRRORS = "krowlspider.gemini.mirrors.Mirrors"


def warc_folder(settings: BaseSettings, folder: Path) -> Path:
    """Return the folder of the WARC files; ``folder`` is the job folder."""
    chosen: str | None = settings["KROWL_WARC_DIR"]
    return Path(chosen) if chosen else folder / "warc"


def process_warc_folder(settings: BaseSettings, folder: Path) -> Path:
    """Return the folder of the WARC files of the process of `scrapy node` that has a job folder."""
    chosen = warc_folder(settings, folder)
    return chosen / folder.name if settings["KROWL_WARC_DIR"] else chosen


def seen_set(settings: BaseSettings, folder: JobFolder, store: LevelStore) -> SeenSet:
    """Return the URLs seen by the crawl in a job folder, whose store is open."""
    return SeenSet(
        store,
        verify=settings.getbool("KROWL_SEEN_VERIFY"),
        file=FilterFile(folder.seen),
    )


def page_rows(settings: BaseSettings, store: LevelStore, hasher: IdentityHasher) -> PageRows | None:
    """Return the rows of the pages that were fetched; None if none are kept.

    :raises SettingsError: none are kept, but seeds of the frontier have words, which need them
    """
    if keeps_pages(settings):
        return PageRows(store, hasher.key)
    if has_words(store):
        raise SettingsError(
            "KROWL_PAGES=False, but seeds of this JOBDIR have words, which need the rows of pages:"
            " set KROWL_PAGES=True"
        )
    return None


def site_policies(
    settings: BaseSettings, address_of: Callable[[str], str] | None = None
) -> SitePolicies | None:
    """Return the sheets that KROWL_POLICIES names; None if it names none. ``address_of`` is as in
    `SitePolicies`.

    :raises SettingsError: the file cannot be read, or has an error
    """
    if (path := settings["KROWL_POLICIES"]) is None:
        return None
    # Crawls without sheets do not load it.
    from krowlspider.job.site_policies import SitePolicies  # noqa: PLC0415

    delay_min = settings.getfloat("KROWL_DELAY_MIN")
    if address_of is None:
        return SitePolicies(Path(path), delay_min=delay_min)
    return SitePolicies(Path(path), delay_min=delay_min, address_of=address_of)


def keeps_pages(settings: BaseSettings) -> bool:
    """Return whether each page that is fetched gets a row."""
    return settings.getbool("KROWL_PAGES") or settings["KROWL_RECRAWL"] != OFF


def again_share(settings: BaseSettings) -> float:
    """Return the part of a host's requests for pages that are fetched again by the schedule; 0
    without one."""
    is_on = settings["KROWL_RECRAWL"] == CONTINUOUS
    return settings.getfloat("KROWL_RECRAWL_SHARE") if is_on else 0.0


def frontier_limits(settings: BaseSettings) -> FrontierLimits:
    return FrontierLimits(
        host_queue=settings.getint("KROWL_HOST_QUEUE_MAX"),
        total=settings.getint("KROWL_FRONTIER_MAX"),
        domain_concurrency=settings.getint("KROWL_DOMAIN_CONCURRENCY"),
        address_concurrency=scrapy_politeness.requests_per_address(settings),
        address_delay=settings.getfloat("KROWL_IP_DELAY_MIN"),
        slots=settings.getint("CONCURRENT_REQUESTS"),
        domain_budget=settings.getint("KROWL_DOMAIN_BUDGET"),
        domain_share=DOMAIN_SHARE,
        outbox=OUTBOX_MAX,
        again_share=again_share(settings),
        sessions=SessionLimits(
            requests=settings.getint("KROWL_SESSION_REQUESTS"),
            wait=KEEPALIVE,
            hosts=idle_connections(settings),
        ),
        ports=linked_ports(settings),
    )


def linked_ports(settings: BaseSettings) -> Ports:
    """Return the ports that links may lead to: with KROWL_GEMINI that of Gemini too."""
    ports = list(map(str, settings.getlist("KROWL_PORTS")))
    return Ports([*ports, str(GEMINI_PORT)] if settings.getbool("KROWL_GEMINI") else ports)


def trap_rules(settings: BaseSettings) -> LinkRules:
    """Return the rules against crawler traps, as of today; with KROWL_GEMINI those against mirrors
    too."""
    traps = Traps(
        skip_extensions=settings.getlist("KROWL_SKIP_EXTENSIONS"), today=datetime.now(UTC).date()
    )
    if not settings.getbool("KROWL_GEMINI"):
        return traps
    found: LinkRules = load_object(_GEMINI_MIRRORS)(traps, _report_mirror)
    return found


def _report_mirror(group: str) -> None:
    logger.info("Mirror, or pages without end: further links to %s are dropped", group)


def memory_account(settings: BaseSettings, on_room: Callable[[], None]) -> Memory:
    """Return the memory account for bodies: KROWL_MEMORY_LIMIT, or a share.

    ``on_room`` is called when requests may begin again.
    """
    limit = settings.getint("KROWL_MEMORY_LIMIT") or memory_to_be_had() // MEMORY_SHARE
    return Memory(limit, settings.getint("CONCURRENT_REQUESTS"), on_room)


def delay_policy(settings: BaseSettings) -> DelayPolicy:
    """Return the policy of all hosts. Scrapy's settings can only make it slower."""
    least = settings.getfloat("KROWL_DELAY_MIN")
    policy = DelayPolicy(
        factor=max(
            settings.getfloat("KROWL_DELAY_FACTOR"), scrapy_politeness.autothrottle_factor(settings)
        ),
        minimum=max(least, settings.getfloat("DOWNLOAD_DELAY")),
        maximum=max(
            settings.getfloat("KROWL_DELAY_MAX"), scrapy_politeness.autothrottle_maximum(settings)
        ),
        crawl_delay_max=settings.getfloat("KROWL_CRAWL_DELAY_MAX"),
    )
    slots = scrapy_politeness.slot_delays(settings).items()
    return replace(
        policy,
        of_hosts={host: replace(policy, minimum=max(least, delay)) for host, delay in slots},
    )


def gemini_delays(policy: DelayPolicy, settings: BaseSettings) -> DelayPolicy:
    """Return the policy with the least delay of Gemini servers at their usual port."""
    least = settings.getfloat("KROWL_GEMINI_DELAY_MIN")
    if not settings.getbool("KROWL_GEMINI") or least <= policy.minimum:
        return policy
    own = f":{GEMINI_PORT}"
    return SiteDelays.over(policy, lambda host: least if host.endswith(own) else 0.0, least)


def prefix_reader(settings: BaseSettings) -> ReadPrefixes:
    """Return what reads the robots.txt of a Gemini server; it loads that part at its first use."""
    agents = (*AGENTS, settings["ROBOTSTXT_USER_AGENT"])

    def read(body: bytes) -> PrefixRules:
        return PrefixRules(load_object(_GEMINI_ROBOTS)(body, agents))

    return read


def keep_gemini_on(settings: BaseSettings, folder: Path) -> None:
    """Note in a job folder that gemini URLs are crawled.

    :raises SettingsError: they were, and KROWL_GEMINI is off now
    """
    note = folder / "gemini"
    if settings.getbool("KROWL_GEMINI"):
        note.touch()
    elif note.exists():
        raise SettingsError(
            "KROWL_GEMINI=False, but this JOBDIR has crawled gemini URLs, and some may be queued:"
            " set KROWL_GEMINI=True"
        )


def robots_fetches(
    settings: BaseSettings,
    frontier: Frontier,
    wall: Callable[[], float],
    on_found: Callable[[RobotsFetch, list[str]], None],
    peers: Peers | None = None,
) -> RobotsFetches:
    """Return the runner of robots fetches. ``wall`` returns epoch seconds, ``on_found`` and
    ``peers`` are as in `RobotsFetches`."""
    return RobotsFetches(
        frontier,
        agent=settings["ROBOTSTXT_USER_AGENT"],
        ttl=settings.getfloat("KROWL_ROBOTS_TTL"),
        retries=settings.getint("RETRY_TIMES"),
        wall=wall,
        on_found=on_found,
        peers=peers,
        read_prefixes=prefix_reader(settings),
    )


def sites(policies: SitePolicies | None, agent: str) -> Sites | None:
    """Return what the sheets say of a pop or a fetch, as `Sites`; None without sheets."""
    if policies is None:
        return None
    # Crawls without sheets do not load it.
    from krowlspider.job.sites import Sites  # noqa: PLC0415

    return Sites(policies, agent)


def idle_connections(settings: BaseSettings) -> int:
    """Return how many idle connections may be kept, besides those in flight.

    The limit on open files decides. Many are kept, because a host is due again only after a delay.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _IDLE_MAX
    in_flight = settings.getint("CONCURRENT_REQUESTS")
    return max(1, min(_IDLE_MAX, files - in_flight - _OTHER_FILES))


def resolver(
    settings: BaseSettings,
    clock: LoopClock,
    on_answer: Callable[[str, list[tuple[str, float]]], None] | None,
    on_look_up: Callable[[float], None] | None,
) -> Resolver:
    """Return the resolver of names; ``on_answer`` and ``on_look_up`` are as in `Resolver`."""
    return Resolver(
        overrides=settings.getdict("KROWL_RESOLVE"),
        servers=settings.getlist("KROWL_DNS_SERVERS"),
        cache_size=settings.getint("DNSCACHE_SIZE"),
        timeout=settings.getfloat("KROWL_DNS_TIMEOUT"),
        loop_clock=clock,
        routes=Routes(),
        on_answer=on_answer,
        on_look_up=on_look_up,
    )


def warc_writer(
    kind: type[WarcWriter],
    settings: BaseSettings,
    folder: Path,
    *,
    seed: int,
    about: dict[str, str],
    payloads: PayloadIndex | None,
    on_pair: Callable[[float], None] | None,
) -> WarcWriter:
    """Return the writer of the WARC files in ``folder``, each of which begins with ``about``.

    :raises SettingsError: the files cannot be named
    """
    options = SeriesOptions(
        prefix=settings["KROWL_WARC_PREFIX"],
        hostname=socket.gethostname(),
        max_size=settings.getint("KROWL_WARC_MAX_SIZE"),
        info=about,
        digest=settings["KROWL_WARC_DIGEST"],
        compression=settings["KROWL_WARC_COMPRESSION"],
        seed=seed,
    )
    try:
        return kind(folder, options, payloads=payloads, on_pair=on_pair)
    except ValueError as error:
        raise SettingsError(f"KROWL_WARC_PREFIX and the host's name: {error}") from error


def crawl_log(settings: BaseSettings, folder: Path, node: str) -> CrawlLog | None:
    """Return the log of fetches in ``folder`` of the node, "" for a crawl of one process; None if
    none is wanted."""
    if not (most := settings.getint("KROWL_CRAWL_LOG")):
        return None
    from krowlspider.job.monitoring import crawl_log as of_fetches  # noqa: PLC0415 - rarely used

    algorithm = settings["KROWL_WARC_DIGEST"]
    return of_fetches.CrawlLog(folder / "crawl.log", most, algorithm=algorithm, node=node)


def traces(
    settings: BaseSettings, spider: str, node: str, wall: Callable[[], float]
) -> Traces | None:
    """Return what sends traces, with the node, "" for a crawl of one process; None if no traces are
    wanted."""
    if not (endpoint := settings["KROWL_TRACES"]):
        return None
    from krowlspider.job import tracing  # noqa: PLC0415 - rarely used

    return tracing.Traces(endpoint, spider, node, wall)


def signer(settings: BaseSettings, wall: Callable[[], float]) -> Signer | None:
    """Return what signs requests; None without a key. ``wall`` returns epoch seconds.

    :raises SettingsError: the key cannot be used any more
    """
    if not (path := settings["KROWL_SIGN_KEY"]):
        return None
    from krowlspider.fetch import signing  # noqa: PLC0415 - few crawls sign

    try:
        key = signing.read_key(path, wall())
    except ValueError as error:
        raise SettingsError(f"KROWL_SIGN_KEY={path} {error}") from error
    if Path(path).stat().st_mode & 0o077:
        logger.warning(
            "KROWL_SIGN_KEY=%s can be read by other users of this machine, who can then crawl in"
            " your name: chmod 600 %s",
            path,
            path,
        )
    return signing.Signer(
        key,
        signing.agent_origin(settings["KROWL_SIGN_AGENT"]),
        always=settings["KROWL_SIGN"] == signing.ALWAYS,
        life=settings.getfloat("KROWL_SIGN_EXPIRY"),
        wall=wall,
    )


def fetch_client(settings: BaseSettings, clock: LoopClock, resolver: Resolver) -> Client:
    return Client(
        clock=clock,
        resolver=resolver,
        guard=AddressGuard(settings.getlist("KROWL_ALLOW_ADDRESSES")),
        connect_timeout=settings.getfloat("KROWL_CONNECT_TIMEOUT"),
        max_idle=idle_connections(settings),
    )


# Each setting of the delays, with its field of the policy.
DELAYS = {
    "KROWL_DELAY_FACTOR": "factor",
    "KROWL_DELAY_MIN": "minimum",
    "KROWL_DELAY_MAX": "maximum",
}
# ``max_pages`` is the argument of the spider.
LIVE = (*DELAYS, "CONCURRENT_REQUESTS", "KROWL_SITEMAPS", "LOG_LEVEL", "max_pages")


def changed(settings: BaseSettings, name: str, value: object, policy: DelayPolicy) -> BaseSettings:
    """Return a copy of the settings with another value for one of LIVE, without ``max_pages``.

    ``policy`` has the delays as they are now.

    :raises SettingsError: it cannot be changed while the crawl runs, or the value is invalid
    """
    if name not in LIVE:
        raise SettingsError(
            f"{name!r} cannot be changed while the crawl runs: {', '.join(LIVE)} can; give it at"
            " the next start"
        )
    made = settings.copy()
    made.frozen = False
    now = {each: getattr(policy, field) for each, field in DELAYS.items()}
    made.update(now, "cmdline")
    made.set(name, value, "cmdline")
    validate(made)
    if name == "CONCURRENT_REQUESTS" and made.getint(name) > settings.getint(name):
        raise SettingsError(
            f"CONCURRENT_REQUESTS={made.getint(name)} is more than the {settings.getint(name)} of"
            " the start, for which memory and connections are laid out: start with more"
        )
    return made


def new_delay(settings: BaseSettings, name: str) -> float:
    """Return what a setting of DELAYS makes of the policy; Scrapy's settings can only make it
    slower."""
    value: float = getattr(delay_policy(settings), DELAYS[name])
    return value


def page_limit(value: object) -> int:
    """Return the value of ``max_pages``.

    :raises SettingsError: it is no number of pages
    """
    text = str(value)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) < 10**18):
        raise SettingsError(f"max_pages={text[:40]!r} is not a number of pages, 1 or more")
    return int(text)


class Fetching:
    """The parts that fetch. Until the first fetch they hold nothing open but ``decoders``.

    ``spilled`` is the folder of large responses, ``monotonic`` returns seconds. ``on_answer`` and
    ``on_look_up`` are as in `Resolver`.
    """

    def __init__(
        self,
        settings: BaseSettings,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        *,
        decoders: Decoders,
        spilled: Path,
        on_answer: Callable[[str, list[tuple[str, float]]], None] | None,
        on_look_up: Callable[[float], None] | None,
    ):
        self._clock = LoopClock(loop, monotonic)
        self.resolver = resolver(settings, self._clock, on_answer, on_look_up)
        self.client = fetch_client(settings, self._clock, self.resolver)
        self.spills = Spills(loop, spilled)
        self.decoders = decoders

    def start(self) -> None:
        """Count no time in which the event loop is held."""
        self._clock.start()

    async def close(self) -> None:
        """Close each part, although another one fails."""
        async with AsyncExitStack() as parts:
            parts.callback(self._clock.stop)
            parts.callback(self.decoders.close)
            parts.push_async_callback(self.spills.close)
            parts.push_async_callback(self.resolver.close)
            parts.push_async_callback(self.client.close)
