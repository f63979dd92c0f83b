"""Pure: read robots.txt and ai.txt, and apply them to a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from krowlspider.corpus.signals import AI_TXT, content_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

ROBOTS, AI = "/robots.txt", "/ai.txt"
# Bytes that are read of a file (RFC 9309, section 2.5, asks for 500 kB).
READ_MAX = 512 * 1024
# Rules of an ai.txt, and characters of them together: each page of the host is matched with all.
_RULES_MAX = 1000
_CHARS_MAX = 32 * 1024
_KINDS = {"html": ("html", "htm", "xhtml"), "pdf": ("pdf",)}


class Site(msgspec.Struct):
    """The answers of a host: signals for all its pages, and the rules of its ai.txt.

    A rule is a pattern of RFC 9309, and whether it allows the pages that match.
    """

    signals: list[str] = []
    rules: list[tuple[str, bool]] = []

    def add(self, other: Site) -> None:
        self.signals += other.signals
        self.rules += other.rules

    def signals_for(self, url: str, kind: str) -> list[str]:
        """Return the signals for a page; ``kind`` is "html" or "pdf"."""
        return [*self.signals, AI_TXT] if self._refuses(url, kind) else self.signals

    def _refuses(self, url: str, kind: str) -> bool:
        """Return whether ai.txt disallows a page.

        The longest rule decides; of equal ones, one that allows. A rule such as ``*.html`` is about
        that kind of file, whatever the path of the page.
        """
        path = "/" + url.partition("://")[2].partition("/")[2]
        endings = [f"*.{ending}" for ending in _KINDS[kind]]
        found = [
            (len(pattern), allows)
            for pattern, allows in self.rules
            if pattern in endings or _matches(pattern, path)
        ]
        return bool(found) and not max(found)[1]


def site_of(path: str, body: bytes) -> Site:
    """Return the signals and rules in a file; ``path`` is ROBOTS or AI."""
    site, chars = Site(), 0
    for name, value in _fields(body[:READ_MAX].decode("utf-8", "replace")):
        if path == ROBOTS and name == "content-signal":
            site.signals = sorted({*site.signals, *content_signals(value)})
        elif path == AI and name in {"allow", "disallow"} and value:
            chars += len(value)
            if chars <= _CHARS_MAX:
                site.rules.append((value, name == "allow"))
    del site.rules[_RULES_MAX:]
    return site


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lower-case names and the values of lines for all crawlers.

    They are in a group for ``*``, or before the first group.
    """
    ours, in_agents = True, False
    for line in text.lstrip("\ufeff").splitlines():
        name, colon, value = (part.strip() for part in line.partition("#")[0].partition(":"))
        if not colon:
            continue
        is_agent = name.lower() == "user-agent"
        if is_agent:
            ours = value == "*" or (in_agents and ours)
        elif ours:
            yield name.lower(), value
        in_agents = is_agent


def _matches(pattern: str, path: str) -> bool:
    """Return whether a path begins as a pattern says (RFC 9309, section 2.2.3), in linear time."""
    first, *rest = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    place = len(first)
    last = rest.pop() if rest and pattern.endswith("$") else None
    for part in rest:
        place = path.find(part, place)
        if place < 0:
            return False
        place += len(part)
    if last is not None:
        return path.endswith(last) and len(path) - len(last) >= place
    return not pattern.endswith("$") or place == len(path)
