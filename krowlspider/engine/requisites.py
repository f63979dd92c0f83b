"""Which requisites the broad spider fetches: of its pages, and of their style sheets and modules.

The frontier treats a requisite as a page with its own callback. It is deduplicated, fetched under
the delay and robots.txt of its host, retried and archived. It yields no item, and its links are not
followed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from krowlspider.engine.requests import Redirects
from krowlspider.engine.scheduler import Scheduler
from krowlspider.urls.canonical import authority_of
from krowlspider.urls.encoding import HTML, computed_type
from krowlspider.urls.page.headers import values_of
from krowlspider.urls.page.links import ReadPage, read_page, reading_plan
from krowlspider.urls.page.requisites.elements import SVG_MAX, requisites_of_svg
from krowlspider.urls.page.requisites.found import (
    CSS_MAX,
    MANIFEST_MAX,
    KeptMaps,
    Requisites,
    decode_css,
    requisites_of_css,
    requisites_of_manifest,
)
from krowlspider.urls.page.requisites.modules import MODULE_MAX, requisites_of_module
from krowlspider.urls.page.requisites.requisite import (
    EMBED,
    IMAGE,
    MANIFEST,
    MODULE,
    NESTED,
    STYLE,
    Requisite,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Response


# Requisites queued between two turns of the event loop, so that no turn is long.
_AT_ONCE = 250
# Bytes of the longest document that is read on the event loop; others are read in a thread.
_SHORT = 32 * 1024


class RequisiteReader:
    """Finds and queues the requisites of one crawl.

    ``meta["krowl_requisite"]`` of a request is a list of the kind and level of its `Requisite`.
    """

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._redirects = Redirects(crawler.settings)
        agent = crawler.settings["ROBOTSTXT_USER_AGENT"]
        self._plan = reading_plan(agent, follow_nofollow=True, described=False, requisites=True)
        self._maps = KeptMaps()
        # Only one long document is read at a time.
        self._reading = asyncio.Lock()

    async def of_page(self, page: ReadPage, response: Response) -> None:
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
        reading = self._reading_of(requisite.kind, response)
        if reading is None:
            return
        read, most = reading
        if len(response.body) > most:
            self._crawler.stats.inc_value("krowl/requisites/left_count/size")
        if len(response.body) <= _SHORT:
            found = read()
        else:
            async with self._reading:
                found = await run_in_thread(read)
        await self._queue(found, response, level=requisite.level)

    def _reading_of(
        self, kind: str, response: Response
    ) -> tuple[Callable[[], Requisites], int] | None:
        """Return what reads a response, and how many of its bytes; None if it names nothing."""
        body, url = response.body, response.url
        media_type, charset = computed_type(
            values_of(response.headers, b"Content-Type"),
            values_of(response.headers, b"X-Content-Type-Options"),
            body,
        )
        if kind == STYLE:
            return lambda: requisites_of_css(decode_css(body, charset), url), CSS_MAX
        if kind == MANIFEST:
            return lambda: requisites_of_manifest(body, url), MANIFEST_MAX
        if kind == MODULE:
            names = self._maps.take(url)
            return lambda: requisites_of_module(body, url, names), MODULE_MAX
        if kind == EMBED and media_type in HTML:
            return lambda: self._of_html(body, url, charset), len(body)
        if kind == EMBED and media_type.endswith("xml"):
            return lambda: requisites_of_svg(body, url), SVG_MAX
        return None

    def _of_html(self, body: bytes, url: str, charset: str | None) -> Requisites:
        found = read_page(body, url, charset, self._plan).requisites
        assert found is not None
        return found

    async def _queue(self, requisites: Requisites, response: Response, *, level: int) -> None:
        """Queue requisites of a document, which is itself of ``level``."""
        found = {
            url: Requisite(kind, level + (kind in NESTED))
            for url, kind in requisites.found.items()
            if url != response.url
        }
        too_deep = [url for url, each in found.items() if each.is_too_deep]
        for url in too_deep:
            del found[url]
        self._count(requisites, len(too_deep))
        if (names := requisites.import_map) is not None:
            for url, each in found.items():
                if each.kind == MODULE:
                    self._maps.keep(url, names)
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
            "level": too_deep + requisites.nested,
            "module_name": requisites.unmapped,
        }
        for reason, count in left.items():
            if count:
                self._crawler.stats.inc_value(f"krowl/requisites/left_count/{reason}", count)

    def _redirect(self, response: Response, location: bytes, requisite: Requisite) -> None:
        scheduler = Scheduler.of(self._crawler)
        found = self._redirects.target(response, location, scheduler.intake.count_dropped)
        if found is not None:
            target, chain = found
            if (names := self._maps.take(response.url)) is not None:
                self._maps.keep(target, names)
            scheduler.requisites.discover(
                {target: requisite},
                depth=response.meta["depth"],
                page=response.url,
                path=response.meta.get("krowl_path", ""),
                chain=chain,
            )
