"""What the statuses of Gemini mean for a page and its host, and robots.txt of a Gemini server.

A Gemini status has two digits, an HTTP status three, so that one table holds both. An unknown
second digit counts as 0 (Gemini network protocol specification, section 3.2).

robots.txt of a Gemini server has the grammar of 1994: prefixes that are disallowed, without ``*``,
``$`` and Allow (companion specification "robots.txt for Gemini").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from krowlspider.politeness.robots import PathRules, RobotsLine, spelt
from krowlspider.urls.gemini import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    # Takes a robots.txt, and returns the rules in it for this crawler.
    ReadPrefixes = Callable[[bytes], "PrefixRules"]

SUCCESS = range(20, 30)
REDIRECTS = frozenset(range(30, 40))
# The request may succeed later: a page is tried again, as after a 5xx of HTTP.
TEMPORARY = frozenset(range(40, 50)) - {44}
# Statuses of Gemini are below, those of HTTP above.
FIRST_HTTP = 100
# The first words of the reasons of pages that were answered and dropped.
DROPPED = "gemini_"
# The virtual agents of robots.txt whose rules hold for a crawl that archives and is searched.
AGENTS = ("archiver", "indexer", "researcher", "*")
# Redirects that are followed in a row (section 3.2.3).
REDIRECTS_MAX = 5

# By the first digit.
_REASONS = {
    1: f"{DROPPED}input",
    4: f"{DROPPED}temporary",
    5: f"{DROPPED}permanent",
    6: f"{DROPPED}certificate",
}
# Not found, and gone.
_MISSING = frozenset({51, 52})
_WILD = frozenset("*$")


def reason_to_drop(status: int) -> str | None:
    """Return the reason, in one word, why a page with this last answer is dropped; None for a
    success or a redirect."""
    return f"{DROPPED}missing" if status in _MISSING else _REASONS.get(status // 10)


class PrefixRules:
    """The prefixes that the robots.txt of one authority disallows. It has the members of
    `RobotsRules`.

    Authors also write the ``*`` and ``$`` of the web. Such a line holds in both readings.
    """

    __slots__ = ("_patterns", "_prefixes", "crawl_delay", "sitemaps", "size")

    def __init__(self, prefixes: Collection[str]):
        self._prefixes = tuple(sorted({spelt(prefix) for prefix in prefixes if prefix}))
        patterns = {each: False for each in prefixes if not _WILD.isdisjoint(each)}
        self._patterns = PathRules(patterns) if patterns else None
        self.crawl_delay: float | None = None
        self.sitemaps: list[str] = []
        # In units of 200 bytes, as that of `RobotsRules`.
        characters = sum(map(len, self._prefixes))
        self.size = 1 + len(self._prefixes) + 2 * len(patterns) + characters // 200

    @classmethod
    def allow_all(cls) -> Self:
        """Return the rules of a server without robots.txt."""
        return cls(())

    def allowed(self, url: str) -> bool | None:
        """Return whether a normalised gemini URL may be fetched; /robots.txt itself always may.

        None means no: deciding would take too long.
        """
        path = path_of(url)
        if path == "/robots.txt":
            return True
        if spelt(path).startswith(self._prefixes):
            return False
        return True if self._patterns is None else self._patterns.allow(path)


def prefix_line(body: bytes, url: str) -> RobotsLine | None:
    """Return the first line of a robots.txt with the longest prefix of the path of a gemini URL;
    None without one. It need not be of a group that holds for the crawl."""
    path, found, longest = spelt(path_of(url)), None, 0
    for number, line in enumerate(body.decode(errors="replace").splitlines(), 1):
        field, _, value = line.partition("#")[0].partition(":")
        prefix = spelt(value.strip())
        is_rule = field.strip().lower() == "disallow"
        if is_rule and len(prefix) > longest and path.startswith(prefix):
            found, longest = RobotsLine(number, line.strip()), len(prefix)
    return found
