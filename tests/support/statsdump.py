"""A stats collector that writes its stats to the file STATS_FILE, for tests of a real process."""

from __future__ import annotations

import json
import os
from pathlib import Path

from krowlspider.engine.stats import StatsCollector


class DumpedStats(StatsCollector):
    def close_spider(self, spider: object = None, reason: str | None = None) -> None:
        Path(os.environ["STATS_FILE"]).write_text(json.dumps(self.get_stats(), default=str))
