"""Queue ai.txt and tdmrep.json, in which a site forbids training models on its pages.

The frontier treats such a file as a page with its own callback: it is fetched once, under the delay
and robots.txt of its host, and archived whatever its status is. It yields no item.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request

from krowlspider.engine.scheduler import Scheduler
from krowlspider.urls.host import authority_of, host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

# Spawning's ai.txt; the TDM Reservation Protocol (W3C community group, 2024), section 6.
PATHS = ("/ai.txt", "/.well-known/tdmrep.json")
# Authorities that are remembered: for the others, the seen set is asked again.
_KNOWN_MAX = 16_384


class OptOuts:
    """Queues the files of each authority of which a page has come."""

    def __init__(
        self,
        crawler: Crawler,
        callback: Callable[[Response], AsyncIterator[Any]],
        errback: Callable[[Failure], None],
    ):
        self._crawler = crawler
        self._request = partial(Request, callback=callback, errback=errback)
        self._known: dict[str, None] = {}

    def of_page(self, response: Response) -> None:
        """Queue the files for a page, before all else of its host; known ones are not queued again.

        They have the depth of the page, so that no limit of depth refuses them.

        :raises StoreError: the store cannot be written
        """
        authority = authority_of(response.url)
        if authority in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[authority] = None
        depth = response.meta["depth"]
        meta = {"depth": depth, "handle_httpstatus_all": True, "krowl_opt_out": True}
        Scheduler.of(self._crawler).intake.discover(
            [authority + path for path in PATHS],
            depth=depth,
            via=host_of(response.url),
            page=response.url,
            hop="P",
            path=response.meta.get("krowl_path", ""),
            request=partial(self._request, meta=meta),
            is_first=True,
        )
