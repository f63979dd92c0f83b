"""``scrapy frontier JOBDIR --snapshot DIR`` while a crawl runs in JOBDIR: it takes the snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from krowlspider.errors import JobError
from krowlspider.programs.running import reached, token_of
from krowlspider.views.top.source import NoCrawlError

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy.settings import Settings

    from krowlspider.crawl.folder import JobInUseError

# Seconds between two questions how it goes, and how many in a row may have no answer.
_INTERVAL = 0.2
_MISSES = 10


def snapshot_of_running(error: JobInUseError, target: Path, settings: Settings) -> str:
    """Have the crawl that uses a folder take a snapshot of it; return what it says at the end.

    :raises JobError: it takes no orders, or ends before
    :raises KrowlError: it could not take it
    """
    target = target.absolute()
    with reached(error) as source:
        source.order("snapshot", {"folder": str(target)}, token_of(error, settings))
    misses = 0
    while misses < _MISSES:
        time.sleep(_INTERVAL)
        try:
            said = source.whole_snapshot(target)
        except NoCrawlError:
            misses += 1
            continue
        if said:
            return said
        misses = 0
    if target.is_dir():
        # It has got its name, and then the crawl has ended.
        return f"snapshot in {target}"
    raise JobError(f"the crawl in {error.path} has ended before the snapshot was whole")
