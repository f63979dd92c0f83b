"""``scrapy frontier --import``: queue URLs from outside, by the settings of this project."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from krowlspider.config.validation import offline
from krowlspider.crawl.parts import delay_policy, frontier_limits, seen_set
from krowlspider.engine.imported import ImportedIdentity
from krowlspider.frontier.admin.export import Imported, import_lines, parse_line
from krowlspider.frontier.frontier import Frontier
from krowlspider.programs.program import BAD_NAMED, BadLines
from krowlspider.urls.length import REFERENCE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.settings import Settings

    from krowlspider.crawl.folder import JobFolder, JobHead
    from krowlspider.frontier.store.store import LevelStore


def import_into(
    folder: JobFolder,
    head: JobHead,
    store: LevelStore,
    settings: Settings,
    lines: Iterable[bytes],
) -> Imported:
    """Queue the new URLs in ``lines``, and return the counts of the import.

    The first bad lines are reported on standard error with their numbers. The store is left as
    after a crash: at the next start, each host waits its delay once.
    """
    frontier = Frontier(
        store,
        seen_set(settings, folder, store),
        frontier_limits(settings),
        delay_policy(settings),
        monotonic=time.monotonic,
        wall=time.time,
    )
    # 0 means no limit, as in Scrapy, except the limit for URLs that are parsed.
    url_max = min(settings.getint("URLLENGTH_LIMIT") or REFERENCE_MAX, REFERENCE_MAX)
    identify = ImportedIdentity(offline(settings), head.seed)
    parse = partial(parse_line, identify=identify, url_max=url_max)
    return import_lines(frontier, store, lines, parse, BadLines(BAD_NAMED).add)
