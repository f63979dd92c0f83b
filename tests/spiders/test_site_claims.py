"""The claims of a document become hints once all its dates are known."""

from __future__ import annotations

import pytest

from krowlspider.frontier.pages.hinted import Hint
from krowlspider.recrawl.hints import HintSource
from krowlspider.spiders.site_claims import SiteClaims
from krowlspider.urls.page.sitemap import Sitemap
from krowlspider.urls.page.sitemap_xml import Claim

NOW = 1_577_880_000.0  # Wed, 01 Jan 2020 12:00:00 GMT
DAY = 86_400.0
ONE, TWO = "http://www.example.com/1", "http://example.com/2"


def hints(*claims: Claim, kind: str = "urlset", now: float = NOW) -> list[Hint]:
    collected = SiteClaims(str.encode)
    for claim in claims:
        sitemap = Sitemap(claims=[claim])
        collected.take(sitemap, {"example.com"})
        assert sitemap.claims == []
    return list(collected.hints(kind, now))


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("urlset", HintSource.LASTMOD),
        ("sitemapindex", HintSource.LASTMOD),
        ("rss", HintSource.FEED),
        ("feed", HintSource.FEED),
        ("jsonfeed", HintSource.FEED),
    ],
)
def test_the_last_date_of_an_entry_counts(kind: str, source: HintSource) -> None:
    claim = Claim(ONE, ("2019-12-31", "2020-01-01T12:00:00Z", "2019", "never"))
    assert hints(claim, kind=kind) == [Hint(ONE.encode(), source, NOW)]


def test_date_and_frequency_are_two_hints() -> None:
    assert hints(Claim(ONE, ("2020-01-01",), "daily")) == [
        Hint(ONE.encode(), HintSource.LASTMOD, NOW - DAY / 2),
        Hint(ONE.encode(), HintSource.CHANGEFREQ, DAY),
    ]


@pytest.mark.parametrize(
    "claims",
    [
        # In the future, broken, and no frequency.
        [Claim(ONE, ("2020-01-02",), "always"), Claim(TWO, ("soon",), "never")],
        # All at once.
        [Claim(f"{ONE}{number}", ("2020-01-01",)) for number in range(9)],
        # Of other sites.
        [Claim("http://example.org/", ("2020-01-01",), "daily")],
        [],
    ],
)
def test_what_says_nothing_is_no_hint(claims: list[Claim]) -> None:
    assert hints(*claims) == []


def test_a_clock_that_is_behind_makes_no_hints() -> None:
    assert hints(Claim(ONE, ("2020-01-01",)), now=NOW - 400 * DAY) == []


def test_claims_are_taken_in_short_steps() -> None:
    sitemap = Sitemap(claims=[Claim(f"{ONE}{number}", ("2019",)) for number in range(1200)])
    collected = SiteClaims(str.encode)
    left = []
    while sitemap.claims:
        collected.take(sitemap, {"example.com"})
        left.append(len(sitemap.claims))
    assert left == [700, 200, 0]
    assert len(collected) == 1200
