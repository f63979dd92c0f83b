"""Refuse URLs of crawler traps and of unwanted file types, and notice hosts of one repeated page.

The rules for URLs run for many links, so an ordinary URL passes after a few searches for short
texts. Expressions run only on URLs that contain "19" or "20".
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
        path, _, query = url[url.index("/", 8) :].partition("?")
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
