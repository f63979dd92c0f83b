"""The forecast of a crawl, as text."""

from __future__ import annotations

from krowlspider.errors import counted
from krowlspider.job.forecasting import ClassForecast, CrawlForecast, age_words, percent

_COLUMNS = "{:>12} {:>14} {:>11} {:>13} {:>8} {:>8} {:>11}  {}"


def forecast_text(found: CrawlForecast) -> str:
    """Return a forecast as a table of classes of hosts, and what its target needs."""
    age, share = age_words(found.age), percent(found.share)
    names = ("delay", "pages each", "hosts", "pages", "in age", "fresh", "requests/s", "limited by")
    need, pages = found.words, found.whole.pages
    is_whole = found.sampled >= pages
    sample = "all pages" if is_whole else f"{found.sampled:,} of about {counted(pages, 'page')}"
    return "\n".join(
        [
            f"target   {percent(found.portion)} of the pages outdated for at most {age}",
            f"budget   {found.budget:,g} requests/s in all, {share} of those that a delay allows",
            f"sample   {sample}",
            "",
            _COLUMNS.format(*names),
            *(_row(each, each.delay, each.pages_each) for each in found.classes),
            _row(found.whole, "all", ""),
            "",
            f"{need[0].upper()}{need[1:]}".replace("; ", ";\n"),
        ]
    )


def _row(each: ClassForecast, delay: str, pages_each: str) -> str:
    portions = (percent(each.within), percent(each.fresh))
    counts = (f"{each.hosts:,}", f"{each.pages:,}")
    requests = f"{each.requests:,.3g}"
    return _COLUMNS.format(delay, pages_each, *counts, *portions, requests, each.limit or "-")
