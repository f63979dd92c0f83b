"""Scrapy's stats, without what each look at them costs."""

from __future__ import annotations

from scrapy.statscollectors import MemoryStatsCollector


class StatsCollector(MemoryStatsCollector):
    """Scrapy's own, but without the look-up that warns of the long deprecated ``spider`` argument: it is run for each
    attribute, twice for most, and a page counts a dozen things."""

    __getattribute__ = object.__getattribute__
