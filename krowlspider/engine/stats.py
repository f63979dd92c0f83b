"""Scrapy's stats with a cheaper attribute look-up."""

from __future__ import annotations

from scrapy.statscollectors import MemoryStatsCollector


class StatsCollector(MemoryStatsCollector):
    """Scrapy's collector without the look-up that warns of the deprecated ``spider`` argument.

    Scrapy runs that look-up for each attribute access, and a page counts a dozen stats.
    """

    __getattribute__ = object.__getattribute__
