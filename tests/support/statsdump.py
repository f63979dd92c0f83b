"""A stats collector that leaves its numbers in the file named by STATS_FILE, for tests that run a
real process."""

from __future__ import annotations

import json
import os
from pathlib import Path

from krowlspider.engine.stats import StatsCollector


class DumpedStats(StatsCollector):
    def close_spider(self, spider: object = None, reason: str | None = None) -> None:
        Path(os.environ["STATS_FILE"]).write_text(json.dumps(self.get_stats(), default=str))
