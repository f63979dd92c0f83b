"""Settings that have no effect: values of Scrapy's that mean nothing here, and misspelt names."""

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy.settings import default_settings

from krowlspider.config.scrapy_politeness import host_of_slot, is_set
from krowlspider.settings import defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy.settings import BaseSettings

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
