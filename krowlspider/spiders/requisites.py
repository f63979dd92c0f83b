"""Which requisites the broad spider fetches: of its pages, and of their style sheets.

The frontier treats a requisite as a page with its own callback. It is deduplicated, fetched under
the delay and robots.txt of its host, retried and archived. It yields no item, and its links are not
followed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from krowlspider.engine.scheduler import Scheduler
from krowlspider.spiders.redirects import Redirects
from krowlspider.urls.content.media_type import content_type_of
from krowlspider.urls.host import authority_of
from krowlspider.urls.page.css import BYTES_MAX, decode_css
from krowlspider.urls.page.headers import values_of
from krowlspider.urls.page.requisites import (
    IMAGE,
    LEVELS_MAX,
    MANIFEST,
    MANIFEST_MAX,
    OTHER,
    STYLE,
    Requisite,
    Requisites,
    requisites_of_css,
    requisites_of_manifest,
)

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from krowlspider.urls.page.links import Page

# What browsers send for each kind (Fetch Standard, section 2.2.6).
ACCEPT = {
    IMAGE: "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5",
    STYLE: "text/css,*/*;q=0.1",
    MANIFEST: "*/*",
    OTHER: "*/*",
}
# Requisites queued between two turns of the event loop, so that no turn is long.
_AT_ONCE = 250
# Bytes of the longest style sheet that is read on the event loop; others are read in a thread.
_SHORT_CSS = 32 * 1024


class RequisiteReader:
    """Finds and queues the requisites of one crawl.

    ``meta["krowl_requisite"]`` of a request is a list of the kind and level of its `Requisite`.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._redirects = Redirects(crawler.settings)
        # Only one long style sheet is read at a time.
        self._reading = asyncio.Lock()

    async def of_page(self, page: Page, response: Response) -> None:
        """Queue the requisites of a page of HTML, with the icon of its host unless it names one."""
        requisites = page.requisites
        if requisites is None:
            return
        if not requisites.has_icon:
            requisites.found.setdefault(f"{authority_of(response.url)}/favicon.ico", IMAGE)
        await self._queue(requisites, response, level=0)

    async def read(self, response: Response) -> None:
        """Queue what a requisite names: the target of its redirect, or its own requisites."""
        requisite = Requisite.checked(response.meta["krowl_requisite"])
        location = response.headers.get(b"Location")
        if location is not None and 300 <= response.status < 400:
            self._redirect(response, location, requisite)
            return
        self._crawler.stats.inc_value(f"krowl/requisites/fetched_count/{requisite.kind}")
        if not 200 <= response.status < 300:
            return
        if requisite.kind == STYLE:
            found, read = await self._of_css(response), BYTES_MAX
        elif requisite.kind == MANIFEST:
            found, read = requisites_of_manifest(response.body, response.url), MANIFEST_MAX
        else:
            return
        if len(response.body) > read:
            self._crawler.stats.inc_value("krowl/requisites/left_count/size")
        await self._queue(found, response, level=requisite.level)

    async def _of_css(self, response: Response) -> Requisites:
        charset = content_type_of(values_of(response.headers, b"Content-Type")).charset
        body, url = response.body, response.url
        if len(body) <= _SHORT_CSS:
            return requisites_of_css(decode_css(body, charset), url)
        async with self._reading:
            return await run_in_thread(lambda: requisites_of_css(decode_css(body, charset), url))

    async def _queue(self, requisites: Requisites, response: Response, *, level: int) -> None:
        """Queue requisites of a document, which is itself behind ``level`` style sheets."""
        found = {
            url: Requisite(kind, level + (kind == STYLE))
            for url, kind in requisites.found.items()
            if url != response.url
        }
        too_deep = [url for url, each in found.items() if each.level > LEVELS_MAX]
        for url in too_deep:
            del found[url]
        self._count(requisites, len(too_deep))
        items = list(found.items())
        for start in range(0, len(items), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            new = Scheduler.of(self._crawler).requisites.discover(
                dict(items[start : start + _AT_ONCE]),
                depth=response.meta["depth"],
                page=response.url,
                path=response.meta.get("krowl_path", ""),
            )
            if new:
                self._crawler.stats.inc_value("krowl/requisites/queued_count", new)

    def _count(self, requisites: Requisites, too_deep: int) -> None:
        left = {
            "scheme": requisites.refused,
            "length": requisites.oversize,
            "count": requisites.surplus,
            "level": too_deep,
        }
        for reason, count in left.items():
            if count:
                self._crawler.stats.inc_value(f"krowl/requisites/left_count/{reason}", count)

    def _redirect(self, response: Response, location: bytes, requisite: Requisite) -> None:
        scheduler = Scheduler.of(self._crawler)
        found = self._redirects.target(response, location, scheduler.intake.count_dropped)
        if found is not None:
            target, chain = found
            scheduler.requisites.discover(
                {target: requisite},
                depth=response.meta["depth"],
                page=response.url,
                path=response.meta.get("krowl_path", ""),
                chain=chain,
            )
