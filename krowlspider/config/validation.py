"""Check all settings before anything uses them; warn of those that have no effect."""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from difflib import SequenceMatcher, get_close_matches
from os import environ
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin

from scrapy.settings import BaseSettings, default_settings

from krowlspider import settings
from krowlspider.config.guarantees import misplaced, missing, out_of_place
from krowlspider.config.kinds import BYTES, Checker, Number, boolean, parsed
from krowlspider.config.log import IN_FILES, keep_out_of_logs, read_files
from krowlspider.config.scrapy_politeness import host_of_slot, is_set
from krowlspider.errors import SettingsError
from krowlspider.settings import defaults
from krowlspider.urls.gemini import accept_gemini

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scrapy.settings import Settings


class Row(NamedTuple):
    """A setting with a check. ``unit`` is "" for one that is no number; ``may_be_none`` says that
    None is valid: there is no such file, folder or place."""

    check: Checker
    unit: str
    is_list: bool
    may_be_none: bool


def _row(hint: Any) -> Row:
    kind, check = get_args(hint) if get_origin(hint) is Annotated else (hint, boolean)
    unit = check.unit if isinstance(check, Number) else ""
    return Row(check, unit, get_origin(kind) is list, NoneType in get_args(kind))


ROWS = {name: _row(hint) for name, hint in settings.__annotations__.items()}
KNOWN = frozenset(name for name in ROWS if name.startswith("KROWL_"))
# Settings in bytes: they may be text with a unit.
SIZES = frozenset(name for name, row in ROWS.items() if row.unit == BYTES)
# Settings of the project that are lists: they may be text with commas.
LISTS = frozenset(name for name in KNOWN if ROWS[name].is_list)
# Scrapy names neither the setting nor its value when it reads one of another type.
_OF_TYPE: dict[type, Checker] = {
    bool: boolean,
    int: parsed(bool, "is not a whole number", BaseSettings.getint),
    float: parsed(bool, "is not a number", BaseSettings.getfloat),
}
# Scrapy's settings that need no more than the type of their default. None is valid.
SCRAPYS: dict[str, Checker] = {
    name: _OF_TYPE[type(value)]
    for name, value in vars(default_settings).items()
    if name.isupper() and type(value) in _OF_TYPE and name not in ROWS
}
SCRAPYS |= {"DNS_TIMEOUT": _OF_TYPE[float], "TELNETCONSOLE_ENABLED": boolean}
CHECKERS = {name: row.check for name, row in ROWS.items()} | SCRAPYS


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([kmgt])(i?)b", re.ASCII | re.IGNORECASE)


def read_sizes(settings: BaseSettings, names: Iterable[str]) -> None:
    """Replace the text of a size with a unit (``2GB``, ``512 MiB``) by its number of bytes.

    Any other value stays as it is.
    """
    for name in names:
        value = settings.get(name)
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            number, prefix, binary = match.groups()
            unit = (1024 if binary else 1000) ** ("kmgt".index(prefix.lower()) + 1)
            settings.set(name, int(Decimal(number) * unit), settings.getpriority(name) or 0)


def read_lists(settings: BaseSettings, names: Iterable[str]) -> None:
    """Remove the blanks and the empty parts of lists that are given as text with commas."""
    for name in names:
        value = settings.get(name)
        if isinstance(value, str):
            parts = (part.strip() for part in value.split(","))
            plain = ",".join(part for part in parts if part)
            if plain != value:
                settings.set(name, plain, settings.getpriority(name) or 0)


def name_jobdir(settings: BaseSettings, spider: str) -> None:
    """Replace ``{spider}`` in JOBDIR by the name of the spider, so that each has its own."""
    value = settings.get("JOBDIR")
    if value is not None and "{spider}" in (text := str(value)):
        priority = settings.getpriority("JOBDIR") or 0
        settings.set("JOBDIR", text.replace("{spider}", spider), priority)


def check_mappings(settings: BaseSettings, given: Mapping[str, object]) -> None:
    """Check values that are about to be set. Scrapy's error for a mapping does not name it.

    :raises SettingsError: a value is not a mapping, and its setting is one
    """
    for name, value in given.items():
        if isinstance(settings[name], BaseSettings):
            try:
                BaseSettings(value)  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                raise SettingsError(
                    f"{name}={value!r} is not a mapping; on the command line give it as JSON"
                ) from error


# Takes a value, and a getter of other settings; returns whether the value has no effect. None: no
# value has an effect.
_Get: TypeAlias = "Callable[[str], float]"
_Test: TypeAlias = "Callable[[float, _Get], bool] | None"


def _if_on(value: float, _: _Get) -> bool:
    return bool(value)


def _if_off(value: float, _: _Get) -> bool:
    return not value


def _if_several(value: float, _: _Get) -> bool:
    return value > 1


def _if_short(value: float, of: _Get) -> bool:
    return value < of("KROWL_DELAY_MIN")


_NO_JITTER = "a delay is a minimum; above it, it follows the latency of the host"
_QUEUES = "requests wait in the frontier, hosts take turns, and a request's priority decides"
_TLS = "TLS 1.2 and 1.3 are accepted with any certificate"
_RESOLVER = "the project has its own resolver, with KROWL_DNS_TIMEOUT and DNSCACHE_SIZE"
# By name: which values have no effect, and the reason.
_TESTS: dict[str, tuple[_Test, str]] = {
    "DOWNLOAD_DELAY": (_if_short, "KROWL_DELAY_MIN is longer"),
    "DOWNLOAD_DELAY_JITTER": (_if_on, _NO_JITTER),
    "RANDOMIZE_DOWNLOAD_DELAY": (_if_on, _NO_JITTER),
    "CONCURRENT_REQUESTS_PER_DOMAIN": (
        _if_several,
        "a host has one request in flight; for a domain, set KROWL_DOMAIN_CONCURRENCY",
    ),
    "CONCURRENT_REQUESTS_PER_IP": (
        lambda value, of: 0 < of("KROWL_IP_CONCURRENCY") < value,
        "KROWL_IP_CONCURRENCY is lower",
    ),
    "REFERER_ENABLED": (
        _if_on,
        "no Referer is sent. To send it, add Scrapy's RefererMiddleware to SPIDER_MIDDLEWARES",
    ),
    "METAREFRESH_ENABLED": (
        _if_on,
        (
            "the broad spider follows refreshes as links; for other spiders add Scrapy's"
            " MetaRefreshMiddleware to DOWNLOADER_MIDDLEWARES"
        ),
    ),
    "COMPRESSION_ENABLED": (_if_off, "compressed bodies are asked for and decoded"),
    "DOWNLOAD_FAIL_ON_DATALOSS": (_if_off, "a request whose body is cut off fails"),
    "DOWNLOAD_BIND_ADDRESS": (None, "the operating system chooses the address to connect from"),
    "DOWNLOAD_VERIFY_CERTIFICATES": (_if_on, _TLS),
    "DOWNLOAD_TLS_MIN_VERSION": (None, _TLS),
    "DOWNLOAD_TLS_MAX_VERSION": (None, _TLS),
    "DOWNLOADER_CLIENTCONTEXTFACTORY": (None, _TLS),
    "DOWNLOADER_CLIENT_TLS_CIPHERS": (None, _TLS),
    "DOWNLOADER_CLIENT_TLS_METHOD": (None, _TLS),
    "DNS_TIMEOUT": (None, _RESOLVER),
    "DNS_RESOLVER": (None, _RESOLVER),
    "TWISTED_DNS_RESOLVER": (None, _RESOLVER),
    "DNSCACHE_ENABLED": (_if_off, _RESOLVER),
    "ROBOTSTXT_PARSER": (
        None,
        "robots.txt is read as RFC 9309 says, by the project's own parser",
    ),
    "DUPEFILTER_DEBUG": (_if_on, "the stat dupefilter/filtered counts the known URLs"),
    "SCHEDULER_DEBUG": (_if_on, "an error in the log names each request that cannot be queued"),
    "LOGSTATS_INTERVAL": (None, "the status line comes every KROWL_STATUS_INTERVAL seconds"),
    "SCHEDULER_PRIORITY_QUEUE": (None, _QUEUES),
    "SCHEDULER_DISK_QUEUE": (None, _QUEUES),
    "SCHEDULER_MEMORY_QUEUE": (None, _QUEUES),
    "SCHEDULER_START_DISK_QUEUE": (None, _QUEUES),
    "SCHEDULER_START_MEMORY_QUEUE": (None, _QUEUES),
}
_AUTOTHROTTLE_TESTS: dict[str, tuple[_Test, str]] = {
    "AUTOTHROTTLE_TARGET_CONCURRENCY": (
        _if_several,
        "a host has one request in flight; for shorter delays, set KROWL_DELAY_FACTOR",
    ),
    "AUTOTHROTTLE_START_DELAY": (
        lambda value, of: value > max(of("KROWL_DELAY_MIN"), of("DOWNLOAD_DELAY")),
        "the first answer of a host sets its delay; for a minimum, set DOWNLOAD_DELAY",
    ),
    "AUTOTHROTTLE_MAX_DELAY": (
        lambda value, of: value < of("KROWL_DELAY_MAX"),
        "KROWL_DELAY_MAX is longer",
    ),
    "AUTOTHROTTLE_DEBUG": (
        _if_on,
        "`scrapy frontier JOBDIR --host NAME` shows the delay of a host",
    ),
}
# Parts of a slot. No other part has an effect.
_SLOT_TESTS: dict[str, _Test] = {
    "delay": _if_short,
    "concurrency": _if_several,
    "jitter": _if_on,
    "randomize_delay": _if_on,
    "throttle": _if_off,
}
# Most parts of slots that are named in the log.
_NAMED = 5


def without_effect(settings: BaseSettings) -> Iterator[str]:
    """Yield a line for each setting that somebody has set and that has no effect: why, and what is
    done or can be set in its place."""
    is_on = settings.getbool("AUTOTHROTTLE_ENABLED")
    for name, (test, why) in {**_TESTS, **(_AUTOTHROTTLE_TESTS if is_on else {})}.items():
        value = settings[name]
        if value is not None and is_set(settings, name) and _is_idle(test, value, settings):
            yield f"{name}={value} has no effect: {why}"
    if parts := list(_slot_parts(settings)):
        more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
        yield (
            f"DOWNLOAD_SLOTS has parts with no effect ({', '.join(parts[:_NAMED])}{more}): a slot"
            " is a host, has one request in flight, and waits KROWL_DELAY_MIN at least"
        )


def _slot_parts(settings: BaseSettings) -> Iterator[str]:
    """Yield the parts of DOWNLOAD_SLOTS that have no effect."""
    for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
        if host_of_slot(str(name)) is None:
            yield repr(name)
            continue
        for key, value in slot.items():
            if _is_idle(_SLOT_TESTS.get(key), value, settings):
                yield f"{key} of {name}"


def _is_idle(test: _Test, value: Any, settings: BaseSettings) -> bool:
    """Return whether a checked value has no effect; `true` and `false` as text are 1 and 0."""
    if test is None:
        return True
    number = float({"true": 1, "false": 0}.get(str(value).lower(), value))
    return test(number, settings.getfloat)


# Names of scrapy-redis and scrapy-prometheus-exporter, and those that Scrapy reads without a
# default.
_OTHERS = (
    *("CONCURRENT_REQUESTS_PER_IP", "META_COPY_WARN_SKIP_KEYS"),
    *("DUPEFILTER_KEY", "MAX_IDLE_TIME_BEFORE_CLOSE", "REDIS_CONCURRENT_REQUESTS", "REDIS_DB"),
    *("REDIS_DECODE_RESPONSES", "REDIS_ENCODING", "REDIS_HOST", "REDIS_ITEMS_KEY"),
    *("REDIS_ITEMS_SERIALIZER", "REDIS_PARAMS", "REDIS_PORT", "REDIS_START_URLS_AS_SET"),
    *("REDIS_START_URLS_AS_ZSET", "REDIS_START_URLS_BATCH_SIZE", "REDIS_START_URLS_KEY"),
    *("SCHEDULER_DUPEFILTER_CLASS", "SCHEDULER_DUPEFILTER_KEY", "SCHEDULER_FLUSH_ON_START"),
    *("SCHEDULER_IDLE_BEFORE_CLOSE", "SCHEDULER_PERSIST", "SCHEDULER_QUEUE_CLASS"),
    *("SCHEDULER_QUEUE_KEY", "SCHEDULER_SERIALIZER", "STATS_KEY"),
    *("FILES_STORE", "FILES_EXPIRES", "IMAGES_STORE", "IMAGES_EXPIRES", "IMAGES_THUMBS"),
    "PROMETHEUS_UPDATE_INTERVAL",
)
NAMES = frozenset(
    name for known in (vars(default_settings), defaults) for name in known if name.isupper()
).union(_OTHERS)
# Letters of the shortest word in which a typo is looked for: MAIL_POST may be a user's own. In a
# shorter word it is looked for only if the rest of the name is long.
_WORD_MIN = 5
_REST_MIN = 9
# Plurals of known names that users have for themselves.
_PLURALS = frozenset({"USER_AGENTS"})


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return the names that are probably misspelt, each with the known name."""
    found = {}
    for name in sorted(name for name in names if name not in NAMES):
        near = get_close_matches(name.upper(), NAMES, cutoff=0.8)
        known = next((known for known in near if _is_typo(name, known)), None)
        if known is not None:
            found[name] = known
    return found


def _is_typo(name: str, known: str) -> bool:
    """Return whether a name differs from a known one as a typo does.

    That is so if only case or underscores differ, or if each word that differs has one wrong,
    missing, additional or swapped letter, not the first. Not so for USER_AGENTS, nor for the
    singular of a name of one word, as EXTENSION: they may be a user's own.
    """
    upper = name.upper()
    if upper.replace("_", "") == known.replace("_", ""):
        return True
    words, right = upper.split("_"), known.split("_")
    if upper in _PLURALS or (len(right) == 1 and known == f"{upper}S"):
        return False
    if len(words) != len(right):
        return False
    pairs = zip(words, right, strict=True)
    return all(
        _is_slip(word, meant, rest=len(known) - len(meant))
        for word, meant in pairs
        if word != meant
    )


def _is_slip(word: str, meant: str, *, rest: int) -> bool:
    """Return whether a word is another with a typo. ``rest`` is the length of the rest of its
    name."""
    if len(meant) < _WORD_MIN and rest < _REST_MIN:
        return False
    if not word.isalpha() or word[0] != meant[0]:
        return False
    # One letter of the longer word has no match in the other.
    alike = SequenceMatcher(None, word, meant, autojunk=False).get_matching_blocks()
    return sum(block.size for block in alike) == max(len(word), len(meant)) - 1


logger = logging.getLogger(__name__)

# User and password of s3://KEY:SECRET@bucket; secrets may have slashes.
_USER = re.compile(r"//\S*@")


def check(settings: BaseSettings) -> None:
    """Check the settings of a crawler after all add-ons, and its components.

    Unlike the add-on, no setting can remove this: `krowlspider.job.crawls.crawl_of` calls it.

    :raises SettingsError: as `validate`, or a component that a guarantee needs is missing
    """
    keep_out_of_logs()
    validate(settings)
    if lacking := missing(settings):
        raise SettingsError("; ".join(lacking))
    for line in (*without_effect(settings), *out_of_place(settings)):
        logger.warning("%s", line)
    for name, known in misspelt(map(str, settings)).items():
        logger.warning("%s is not a known setting: did you mean %s?", name, known)


def validate(settings: BaseSettings, some: frozenset[str] | None = None) -> None:
    """Read the secrets that are in files, and sizes and lists that are text; check all settings.

    These are every KROWL_ setting and those of Scrapy that the crawl's components rely on. Of those
    with a checker, only ``some`` may be checked.

    :raises SettingsError: names every fault, joined by "; "
    """
    read_files(settings)
    # A crawler's settings are frozen after its add-ons, which have read them by then.
    if not settings.frozen:
        read_sizes(settings, SIZES)
        read_lists(settings, LISTS)
    ours = {name for name in settings if str(name).startswith("KROWL_")}
    ours |= {name for name in environ if name.startswith("KROWL_")}
    problems = [_unknown(name) for name in sorted(ours - KNOWN)]
    if some is None:
        problems += misplaced(settings)
    names = [name for name in CHECKERS if some is None or name in some]
    problems += [fault for name in names if (fault := problem(settings, name))]
    # Contradictions between two values can be found only if each value is valid.
    problems = problems or _contradictions(settings)
    if problems:
        raise SettingsError("; ".join(problems))
    # Here, because each program and each crawl begins with it, before any URL is read.
    accept_gemini(is_on=settings.getbool("KROWL_GEMINI"))


def offline(settings: Settings) -> Settings:
    """Return a copy of settings for a command that fetches nothing: it needs no contact, joins
    no cluster and writes no feed."""
    alone = settings.copy()
    alone.set("KROWL_CONTACT", "nobody@offline.internal", priority="cmdline")
    alone.setdict({"KROWL_CONSUL": "", "FEEDS": {}}, priority="cmdline")
    return alone


def _unknown(name: str) -> str:
    # Without the prefix, which makes every name alike.
    known = [other.removeprefix("KROWL_") for other in KNOWN]
    near = get_close_matches(name.removeprefix("KROWL_"), known, n=1)
    return f"{name} is not a setting" + (f": did you mean KROWL_{near[0]}?" if near else "")


def problem(settings: BaseSettings, name: str) -> str | None:
    """Return what is wrong with one setting, which has a checker, or None."""
    # Scrapy's getters warn of some names.
    value = settings[name]
    if name == "KROWL_CONTACT" and not str(value or "").strip():
        return (
            "KROWL_CONTACT is not set: site owners must be able to reach you;"
            " give -s KROWL_CONTACT=you@example.org (or a URL)"
        )
    if value is None:
        # Scrapy's getters would read None as 0.
        optional = name in SCRAPYS or ROWS[name].may_be_none
        return None if optional else f"{name} is None: give a value, or leave it out"
    fault = CHECKERS[name](settings, name)
    if fault is None:
        return None
    if name in IN_FILES:
        # The value is a secret.
        return f"{name} {fault}"
    if isinstance(value, BaseSettings):
        value = dict(value)
    # One line for any value: repr() leaves no line break in text, split() none in the rest.
    shown = _USER.sub("//...@", " ".join(repr(value).split()))
    return f"{name}={shown} {fault}"


def _contradictions(settings: BaseSettings) -> list[str]:
    found = []
    low, high = settings.getfloat("KROWL_DELAY_MIN"), settings.getfloat("KROWL_DELAY_MAX")
    if low > high:
        found.append(f"KROWL_DELAY_MIN={low:g} is more than KROWL_DELAY_MAX={high:g}")
    limit, size = settings.getint("KROWL_MEMORY_LIMIT"), settings.getint("DOWNLOAD_MAXSIZE")
    if 0 < limit < 4 * size:
        found.append(
            f"KROWL_MEMORY_LIMIT={limit} is less than four times DOWNLOAD_MAXSIZE={size},"
            " the most that one body may take"
        )
    user = settings.get("HTTPAUTH_USER") or settings.get("HTTPAUTH_PASS")
    if user and not is_set(settings, "HTTPAUTH_DOMAIN"):
        found.append(
            "HTTPAUTH_USER or HTTPAUTH_PASS is set, and HTTPAUTH_DOMAIN is not: give the domain"
            " that may see them, or None for all"
        )
    if bool(settings["KROWL_SIGN_KEY"]) != bool(settings["KROWL_SIGN_AGENT"]):
        found.append(
            "KROWL_SIGN_KEY and KROWL_SIGN_AGENT need each other: give the file of the key, and the"
            " https origin that serves its directory (docs/identity.md)"
        )
    elif settings["KROWL_SIGN"] == "always" and not settings["KROWL_SIGN_KEY"]:
        found.append(
            "KROWL_SIGN is always, and there is no KROWL_SIGN_KEY: nothing would be signed. Give"
            " the file of the key (docs/identity.md), or leave KROWL_SIGN out"
        )
    if settings["KROWL_GRPC"] and not settings.getbool("PROMETHEUS_ENABLED"):
        found.append(
            "KROWL_GRPC is set, and PROMETHEUS_ENABLED is False: gRPC asks the live page. Set it to"
            " True"
        )
    if settings["KROWL_WARC_UPLOAD"] and not settings.getbool("KROWL_ARCHIVE"):
        found.append("KROWL_WARC_UPLOAD is set, and KROWL_ARCHIVE is False: remove one of them")
    if settings.getlist("KROWL_WARC_DEDUP") and not settings.getbool("KROWL_WARC_REVISIT"):
        found.append("KROWL_WARC_DEDUP is set, and KROWL_WARC_REVISIT is False: set it to True")
    if settings.getbool("KROWL_INDEXNOW") and settings["KROWL_RECRAWL"] != "continuous":
        found.append(
            "KROWL_INDEXNOW is True, and KROWL_RECRAWL is not continuous: only a crawl that goes on"
            " brings pages forward"
        )
    if settings["KROWL_CONSUL"] and settings.getbool("KROWL_BROWSER"):
        found.append(
            "KROWL_BROWSER is True, and KROWL_CONSUL is set: other nodes own the hosts of what a"
            " page asks for. Use the browser in a crawl of one process"
        )
    if settings["KROWL_CONSUL"] and not settings["REDIS_URL"]:
        found.append(
            "KROWL_CONSUL is set, and REDIS_URL is not: give this node's Redis, as the other nodes"
            " reach it"
        )
    return found
