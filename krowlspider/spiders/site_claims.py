"""What one sitemap or feed says of the changes of pages, until it is read to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.frontier.pages.hinted import Hint
from krowlspider.recrawl.hints import Dates, HintSource, period, read_date
from krowlspider.urls.canonical import domain_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krowlspider.urls.page.sitemap import Sitemap

# Claims that are taken at once: those of some milliseconds.
_AT_ONCE = 500
# The kinds of `Sitemap` that are lists of pages for search engines. All others are feeds.
_SITEMAPS = frozenset({"urlset", "sitemapindex"})


class SiteClaims:
    """The claims of one document, at most 50,000. ``key`` returns the key of the row of a URL.

    Whether a date is one of a page, only all dates of the document show.
    """

    def __init__(self, key: Callable[[str], bytes]):
        self._key = key
        self._keys: list[bytes] = []
        self._dates: list[float | None] = []
        self._judged = Dates()
        self._periods: list[float | None] = []

    def take(self, sitemap: Sitemap, domains: set[str]) -> None:
        """Take the next claims that were read, about pages of these domains. Call it until none is
        left. Of several dates of an entry, the last one counts."""
        assert sitemap.claims is not None
        some = sitemap.claims[:_AT_ONCE]
        del sitemap.claims[:_AT_ONCE]
        for url, dates, frequency in some:
            if domain_of(host_of(url)) not in domains:
                continue
            known = [date for text in dates if (date := read_date(text)) is not None]
            self._keys.append(self._key(url))
            date = max(known, default=None)
            self._dates.append(date)
            self._judged.add(date)
            self._periods.append(period(frequency))

    def __len__(self) -> int:
        return len(self._keys)

    def hints(self, kind: str | None, now: float) -> Iterator[Hint]:
        """Yield the hints of a document of a kind, as in `Sitemap`, that is read at a time. Each
        costs as little as the next: nothing goes over all entries at once."""
        source = HintSource.LASTMOD if kind in _SITEMAPS else HintSource.FEED
        for key, date, every in zip(self._keys, self._dates, self._periods, strict=True):
            if (credible := self._judged.credible(date, now)) is not None:
                yield Hint(key, source, credible)
            if every is not None:
                yield Hint(key, HintSource.CHANGEFREQ, every)
