"""Which discovered URLs a crawl queues: its scope, without traps and unwanted file types.

Refuse URLs of crawler traps and of unwanted file types, and notice hosts of one repeated page. The
rules for URLs run for many links, so an ordinary URL passes after a few searches for short texts.
Expressions run only on URLs that contain "19" or "20".

Decide which discovered URLs a crawl queues. `ScopeRules` are the rules as a user gives them and a
crawl's folder keeps them.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Protocol

import xxhash

from krowlspider.urls.canonical import domain_of, has_bad_port, path_start, queued_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

# Segments of a path (/a/b/c has 3): wrong relative links grow without end.
PATH_DEPTH_MAX = 20
# Times that one segment, or run of segments, may be in a path.
REPEATED_SEGMENTS_MAX = 3
# Letters of the longest extension that is searched, dot included: ".appimage".
_EXTENSION_MAX = 9
# Slashes of a URL that do not precede a segment: "https://h" has two.
_LEADING = 2
# The first year and month of Unix time. Software calendars begin no later.
_EARLIEST_YEAR = "1970"
_EARLIEST = 1970 * 12 + 1

_CENTURIES = re.compile(r"(?:19|20)\d\d")
# A year and a month, with or without a day: 2031-05, 2031/5/17, 203105, 20310517.
_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)"
    r"(?:(?:[-/_.]|%2F)(0[1-9]|1[0-2]|[1-9])|(0[1-9]|1[0-2])(?:[0-3]\d)?)(?!\d)"
)
# The end of a date that begins with its day or month: 05/2031.
_LATE_YEAR = re.compile(r"(?<!\d)\d\d?(?:[-/_.]|%2F)((?:19|20)\d\d)(?!\d)")
_YEAR = re.compile(r"(?:^|[&_-])(?:year|yr|jahr|annee)=((?:19|20)\d\d)(?!\d)", re.IGNORECASE)
_MONTH = re.compile(r"(?:^|[&_-])(?:month|mon|monat|mois)=(0?[1-9]|1[0-2])(?!\d)", re.IGNORECASE)
# Words that show that digits are a date, and not the number of a page.
_CALENDAR = re.compile(r"calend|kalend|agenda|/month|/cal[/_.-]", re.IGNORECASE)
_DATED = re.compile(r"date|day|month|week|year|time", re.IGNORECASE)


class LinkRules(Protocol):
    """Rules that refuse URLs which pages name."""

    def refusal(self, url: str) -> str | None:
        """Return why a normalised URL must not be followed, in one word; None if it may be."""


class Traps:
    """The rules that refuse crawler traps and unwanted file types.

    ``path_depth_max`` is the maximum number of segments of a path. ``repeated_segments_max`` is how
    often one segment may occur in it, adjacent or not. ``skip_extensions`` may be
    in any case and need no dot.

    Calendars are checked against ``today``: a month in the URL may be at most a year ahead. In a
    query, no month may be before 1970. Dates in a path may be older, as in archives, unless the URL
    names a calendar.
    """

    def __init__(
        self,
        *,
        skip_extensions: Iterable[str],
        today: date,
        path_depth_max: int = PATH_DEPTH_MAX,
        repeated_segments_max: int = REPEATED_SEGMENTS_MAX,
    ):
        self._depth_max = path_depth_max
        self._repeats_max = repeated_segments_max
        # A URL with fewer slashes than this cannot break either rule.
        self._few = _LEADING + 1 + min(self._depth_max, self._repeats_max)
        self._skipped = frozenset(part.strip().lower().lstrip(".") for part in skip_extensions)
        self._this_year = f"{today:%Y}"
        self._latest = (today.year + 1) * 12 + today.month

    def refusal(self, url: str) -> str | None:
        """Return why a normalised URL must not be followed, in one word; None if it may be.

        The words are extension, path_depth, repeated_segments and calendar.
        """
        if url.count("/") >= self._few and (reason := self._refused_by_path(url)):
            return reason
        query = url.find("?")
        end = url[-_EXTENSION_MAX:] if query < 0 else url[:query][-_EXTENSION_MAX:]
        if "." in end and end[end.rindex(".") + 1 :].lower() in self._skipped:
            return "extension"
        if ("20" in url or "19" in url) and self._is_off_calendar(url):
            return "calendar"
        return None

    def _refused_by_path(self, url: str) -> str | None:
        parts = url.split("/")
        # If a segment occurs n times, n - 1 of the parts repeat it, or n - 2 if a query hides the
        # last one.
        if len(parts) - len(set(parts)) < self._repeats_max - 1 and len(parts) <= self._depth_max:
            return None
        # A trailing slash does not begin a segment.
        segments = url.partition("?")[0].removesuffix("/").split("/")[_LEADING + 1 :]
        if len(segments) > self._depth_max:
            return "path_depth"
        worst = max(Counter(segments).values(), default=0)
        return "repeated_segments" if worst > self._repeats_max else None

    def _is_off_calendar(self, url: str) -> bool:
        years = _CENTURIES.findall(url)
        if not years or (min(years) >= _EARLIEST_YEAR and max(years) <= self._this_year):
            return False
        path, _, query = url[path_start(url) :].partition("?")
        named = _CALENDAR.search(url) is not None
        earliest = _EARLIEST if named else 0
        if not all(earliest <= month <= self._latest for month in _months(path, sure=named)):
            return True
        if not query:
            return False
        sure = named or _DATED.search(query) is not None
        months = (*_months(query, sure=sure), *_months_of_parameters(query))
        return not all(_EARLIEST <= month <= self._latest for month in months)


def _months(text: str, *, sure: bool) -> Iterator[int]:
    """Yield the months of the dates in a text, counted from the year 0.

    Unless ``sure``, only a year and a two-digit month with a separator between them count.
    """
    for year, parted, compact in _DATE.findall(text):
        if sure or len(parted) == 2:
            yield int(year) * 12 + int(parted or compact)
    if sure:
        # The month is unknown, so assume January in favour of the URL.
        yield from (int(year) * 12 + 1 for year in _LATE_YEAR.findall(text))


def _months_of_parameters(query: str) -> Iterator[int]:
    """Yield the month that two parameters of a query name, counted from the year 0."""
    if year := _YEAR.search(query):
        month = _MONTH.search(query)
        first = int(year[1]) * 12
        # A year alone may be that of a film, so one before 1970 counts as January 1970.
        yield first + int(month[1]) if month else max(first + 1, _EARLIEST)


# Hosts in memory; the least recently counted one is forgotten first.
HOSTS = 16_384
# Bodies of each host in memory, the latest ones. A full host takes 1.2 kB, all hosts 20 MB.
BODIES = 64
# Each count has two bytes.
_COUNT_MAX = 0xFFFF
# Pages of a host with the same body whose links are followed. More of them are error pages with
# status 200, or a maze.
FOLLOWED_MAX = 10


class DuplicateBodies:
    """Counts equal bodies by host, in memory; a body that was forgotten is counted from 1 again."""

    def __init__(self, hosts: int = HOSTS, bodies: int = BODIES):
        self._hosts_max = hosts
        self._bodies_max = bodies
        self._hosts: OrderedDict[str, tuple[array[int], array[int]]] = OrderedDict()

    def count(self, host: str, body: bytes) -> int:
        """Count a body; return how often its host has sent it, this time included, up to 65,535."""
        digest = xxhash.xxh3_64_intdigest(body)
        known = self._hosts.pop(host, None)
        if known is None:
            known = array("Q"), array("H")
            if len(self._hosts) >= self._hosts_max:
                self._hosts.popitem(last=False)
        self._hosts[host] = known
        return _count(*known, digest, self._bodies_max)


def _count(digests: array[int], counts: array[int], digest: int, most: int) -> int:
    """Count a digest, make it the latest one, and return its count."""
    try:
        place = digests.index(digest)
    except ValueError:
        number = 1
        if len(digests) == most:
            del digests[0], counts[0]
    else:
        number = min(counts[place] + 1, _COUNT_MAX)
        del digests[place], counts[place]
    digests.append(digest)
    counts.append(number)
    return number


# The greatest number that a crawl's folder can keep.
_DEPTH_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """Which discovered URLs a crawl queues; without values it queues all.

    ``max_depth`` is the most links from a seed: 0 means only the seeds, None no limit. ``allow``
    and ``deny`` are regular expressions. ``same_host`` and ``same_domain`` keep links on the host
    or domain of their page.

    :raises ValueError: an expression does not compile or is not printable, or the depth is out of
        range; the message names it
    """

    max_depth: int | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    same_host: bool = False
    same_domain: bool = False

    def __post_init__(self) -> None:
        if self.max_depth is not None and not 0 <= self.max_depth <= _DEPTH_MAX:
            raise ValueError(f"max_depth={self.max_depth} is not from 0 to {_DEPTH_MAX}")
        for pattern in (*self.allow, *self.deny):
            # A command line may hold bytes that are no text.
            if not pattern.isprintable():
                raise ValueError(f"not a regular expression: {pattern!r}: give printable text")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from error

    def __str__(self) -> str:
        """Return the rules that are set as ``name=value``, or ``no limits``."""
        unset = ScopeRules().texts()
        rules = [f"{name}={text}" for name, text in self.texts().items() if text != unset[name]]
        return " ".join(rules) or "no limits"

    def differences(self, other: ScopeRules) -> list[str]:
        """Return a phrase for each rule that has another value in ``other``."""
        theirs = other.texts()
        return [
            f"{name} is {text}, not {theirs[name]}"
            for name, text in self.texts().items()
            if text != theirs[name]
        ]

    def texts(self) -> dict[str, str]:
        """Return the value of each rule as a user writes it, or ``unset``."""
        return {rule.name: _text(getattr(self, rule.name)) for rule in fields(self)}


@dataclass(frozen=True, slots=True)
class AskedScope:
    """The scope that a start asks for.

    ``given`` is false if the user named no rule: then a kept scope holds. ``replaces`` is true if
    the rules replace a kept scope.
    """

    rules: ScopeRules
    given: bool
    replaces: bool


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        value = " ".join(value) or None
    return "unset" if value is None else str(value)


class Scope:
    """Applies the rules of a crawl to the URLs it discovers.

    ``max_url_length`` is as the limit of `queued_max`. The expressions of ``rules`` are searched in
    the URL.
    """

    def __init__(self, rules: ScopeRules, *, max_url_length: int, traps: LinkRules | None = None):
        self._max_depth = inf if rules.max_depth is None else rules.max_depth
        self._max_url_length = queued_max(max_url_length)
        self._allow = [re.compile(pattern) for pattern in rules.allow]
        self._deny = [re.compile(pattern) for pattern in rules.deny]
        self._same_host = rules.same_host
        self._same_domain = rules.same_domain
        self._has_rules = bool(rules.allow or rules.deny or rules.same_host or rules.same_domain)
        self._traps = traps

    def without_rules(self) -> Scope:
        """Return a scope with the same limit of length and the same traps, and no rules."""
        return Scope(ScopeRules(), max_url_length=self._max_url_length, traps=self._traps)

    def refusal(
        self,
        url: str,
        host: str,
        depth: int,
        via_host: str | None,
        *,
        is_requisite: bool = False,
    ) -> str | None:
        """Return in one word why a normalised URL of ``host`` is out of scope; None if it is in."""
        return self.refusals([url], [host], depth, via_host, is_requisite=is_requisite)[0]

    def refusals(
        self,
        urls: Sequence[str],
        hosts: Sequence[str],
        depth: int,
        via_host: str | None,
        *,
        is_requisite: bool = False,
        reach: str | None = None,
    ) -> list[str | None]:
        """Return what `refusal` does for each of the URLs of one page.

        ``reach`` says where links of this page may lead, in place of the rules: ``host``,
        ``domain`` or ``any``.

        The words are depth, length, port, host, domain, deny, allow and those of `Traps.refusal`.
        ``via_host`` is the host of the page that links to it. For a seed it is None: a user named
        the URL, so only depth, length and bad ports apply. The rules about hosts and ``allow``
        say which pages are followed, so they do not apply to a requisite of such a page.
        """
        if depth > self._max_depth:
            return ["depth"] * len(urls)
        longest, has_rules = self._max_url_length, via_host is not None
        has_rules = has_rules and (self._has_rules or reach is not None)
        traps = None if via_host is None or self._traps is None else self._traps.refusal
        reasons: list[str | None] = []
        for url, host in zip(urls, hosts, strict=True):
            reason = None
            if len(url) > longest:
                reason = "length"
            elif ":" in host and has_bad_port(host):
                reason = "port"
            elif has_rules:
                reason = self._refused_by_rule(
                    url, host, via_host, is_requisite=is_requisite, reach=reach
                )
            if reason is None and traps is not None:
                reason = traps(url)
            reasons.append(reason)
        return reasons

    def _refused_by_rule(
        self, url: str, host: str, via_host: str | None, *, is_requisite: bool, reach: str | None
    ) -> str | None:
        if is_requisite:
            return "deny" if any(rule.search(url) for rule in self._deny) else None
        same_host = self._same_host if reach is None else reach == "host"
        same_domain = self._same_domain if reach is None else reach == "domain"
        if same_host and host != via_host:
            return "host"
        if same_domain and host != via_host and domain_of(host) != domain_of(via_host or ""):
            return "domain"
        if any(rule.search(url) for rule in self._deny):
            return "deny"
        if self._allow and not any(rule.search(url) for rule in self._allow):
            return "allow"
        return None
