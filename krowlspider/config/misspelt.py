"""Find setting names that are probably a misspelt known name."""

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING

from scrapy.settings import default_settings

from krowlspider.settings import defaults

if TYPE_CHECKING:
    from collections.abc import Iterable

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
