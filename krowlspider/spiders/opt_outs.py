"""Queue ai.txt and tdmrep.json, in which a site forbids training models on its pages.

The frontier treats such a file as a page with its own callback: it is fetched once, under the delay
and robots.txt of its host, and archived whatever its status is. It yields no item.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request

from krowlspider.urls.host import host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scrapy.http import Response
    from twisted.python.failure import Failure

    from krowlspider.crawl.intake import Intake

# Spawning's ai.txt; the TDM Reservation Protocol (W3C community group, 2024), section 6.
PATHS = ("/ai.txt", "/.well-known/tdmrep.json")


def queue_opt_outs(
    intake: Intake,
    authority: str,
    depth: int,
    callback: Callable[[Response], AsyncIterator[Any]],
    errback: Callable[[Failure], None],
) -> None:
    """Queue the files of an authority whose robots.txt came, or is known to be missing.

    ``depth`` is that of the page that waits for this robots.txt.

    :raises StoreError: the store cannot be written
    """
    meta = {"depth": depth, "handle_httpstatus_all": True}
    intake.discover(
        [authority + path for path in PATHS],
        depth=depth,
        via=host_of(authority + "/"),
        page=authority + "/robots.txt",
        hop="P",
        request=partial(Request, callback=callback, errback=errback, meta=meta),
    )
