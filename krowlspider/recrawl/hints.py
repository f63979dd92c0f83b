"""Judge what a site says about changes of its pages: dates and frequencies of sitemaps, and feeds.

Each source is trusted by how often a page that it named had changed. A hint only brings a page
forward, and only where its fetch is then worth the threshold.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from krowlspider.recrawl.value import INTERVAL_MIN, worth_with_hint

if TYPE_CHECKING:
    from typing import Self

    from krowlspider.recrawl.estimate import Estimate

# The most that a count holds: one byte. At more, both counts of a source are halved.
COUNT_MAX = 255
# Hits and misses that an unknown source counts as having: one page in four that it names changed.
_HITS, _MISSES = 1, 3
# A source below this is worth nothing: each of its lies would cost a request.
_PRECISION_MIN = 0.1
# Dates of a document from which a date that most of them share is no date of a page.
_SHARED_FROM = 3
# Epoch seconds of 1990: no page of the web is older.
_OLDEST = 631_152_000.0
_DAY = 86_400.0
_PERIODS = {
    "hourly": 3600.0,
    "daily": _DAY,
    "weekly": 7 * _DAY,
    "monthly": 30 * _DAY,
    "yearly": 365 * _DAY,
}
# W3C-DTF (sitemaps), which is the date of RFC 3339 (Atom, JSON Feed) with parts left out.
_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?")
_LONGEST = 64


class HintSource(IntEnum):
    """Who says that a page has changed."""

    LASTMOD = 0
    CHANGEFREQ = 1
    FEED = 2


# A row keeps who named its page as bits, one for each `HintSource`; this one is its site itself, by
# IndexNow.
PUSHED = 1 << len(HintSource)


class Precision(NamedTuple):
    """How often pages that a source named had changed, and had not. Two bytes."""

    hits: int = 0
    misses: int = 0

    @property
    def probability(self) -> float:
        """The probability that a page has changed of which the source says so; 0 if it is low."""
        mean = (self.hits + _HITS) / (self.hits + self.misses + _HITS + _MISSES)
        return mean if mean >= _PRECISION_MIN else 0.0

    def scored(self, *, changed: bool) -> Self:
        """Return the precision after the fetch of a page that the source had named."""
        hits, misses = self.hits + changed, self.misses + (not changed)
        if max(hits, misses) > COUNT_MAX:
            hits, misses = hits // 2, misses // 2
        return type(self)(hits, misses)


class Precisions(NamedTuple):
    """The precision of each `HintSource` of a site, in its order: six bytes of its record."""

    lastmod: Precision = Precision()
    changefreq: Precision = Precision()
    feed: Precision = Precision()

    def __bytes__(self) -> bytes:
        return bytes(count for precision in self for count in precision)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return what ``bytes`` made six bytes of. No bytes: nothing is known."""
        return cls(*(Precision(*data[at : at + 2]) for at in range(0, len(data), 2)))

    def scored(self, source: HintSource, *, changed: bool) -> Self:
        found = list(self)
        found[source] = found[source].scored(changed=changed)
        return type(self)(*found)


def read_date(text: str) -> float | None:
    """Return the epoch seconds of a date in a sitemap or feed, None if it is none.

    Its forms are W3C-DTF, RFC 3339 and RFC 822. A date without time is the beginning of its day,
    month or year, so it names a change after the last fetch only if it is surely later.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    part = _YEAR_OR_MONTH.fullmatch(text)
    try:
        if part is not None:
            date = datetime(int(part[1]), int(part[2] or 1), 1, tzinfo=UTC)
        elif text[:4].isdigit():
            date = datetime.fromisoformat(text)
        else:
            date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class Dates:
    """The dates of one document. `add` each first; then `credible` judges each, in constant time.

    A date that more than half of the entries share is that of a build, and says nothing.
    """

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self._entries = 0
        # The date that most entries share, and how many do.
        self._shared: float | None = None
        self._most = 0

    def add(self, date: float | None) -> None:
        """Count the date of the next entry, None for one without a date."""
        self._entries += 1
        if date is None:
            return
        self._counts[date] += 1
        if (count := self._counts[date]) > self._most:
            self._shared, self._most = date, count

    def credible(self, date: float | None, now: float) -> float | None:
        """Return a date; None for one that is shared, in the future, or before 1990."""
        if date is None or not _OLDEST <= date <= now:
            return None
        is_shared = self._most >= _SHARED_FROM and 2 * self._most > self._entries
        return None if is_shared and date == self._shared else date


def period(changefreq: str) -> float | None:
    """Return the seconds of a ``changefreq``. "always" and "never" say nothing."""
    return _PERIODS.get(changefreq.strip().lower())


def brought_forward(
    estimate: Estimate,
    weight: float,
    threshold: float,
    *,
    last_fetch: float,
    due: float,
    claimed: float,
    precision: float,
    least: float = INTERVAL_MIN,
) -> float:
    """Return when a page is due that is said to have changed at ``claimed``, at the latest ``due``.

    All times are epoch seconds; for a frequency ``claimed`` is a period after the last fetch. A
    time before the last fetch says nothing, and no page is due within ``least`` seconds of it. The
    result may be in the past.
    """
    at = max(claimed, last_fetch + least)
    if claimed <= last_fetch or at >= due:
        return due
    worth = worth_with_hint(estimate, weight, at - last_fetch, precision)
    return at if worth >= threshold else due
