"""A spider whose pages are opened in the browser, as scrapy-playwright's users write one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response

# Of each element with an id: its middle in the page.
MIDDLES = """() => Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => {
    const box = element.getBoundingClientRect();
    return [element.id, [box.x + box.width / 2, box.y + box.height / 2]];
}))"""
LATE = "async () => { try { return await (await fetch('/late')).text() } catch { return null } }"


class BrowsingSpider(scrapy.Spider):
    """Opens ``root``, looks at it in a page of 1000 x 600, and then at what its script links to.

    ``picture`` is the file of the screenshot. With ``stays``, the callback has the page: its
    scripts fetch a file more. With ``cuts``, the proxy of the browser ends before that.
    """

    name = "browsing"

    def __init__(
        self, root: str, picture: str = "", stays: str = "", cuts: str = "", **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.root = root
        self.picture = picture
        self.stays = stays
        self.cuts = cuts

    async def start(self) -> AsyncIterator[Any]:
        from scrapy_playwright.page import PageMethod  # noqa: PLC0415 - of an extra

        methods = [PageMethod("evaluate", MIDDLES)]
        if self.picture:
            methods.append(PageMethod("screenshot", path=self.picture))
        meta = {
            "playwright": True,
            "playwright_include_page": bool(self.stays),
            "playwright_page_methods": methods,
            "playwright_context_kwargs": {"viewport": {"width": 1000, "height": 600}},
        }
        yield scrapy.Request(self.root, meta=meta)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        found = {"url": response.url, "flags": response.flags, "html": response.text}
        methods = response.meta.get("playwright_page_methods") or [None]
        if methods[0] is not None:
            found["middles"] = methods[0].result
        if (page := response.meta.get("playwright_page")) is not None:
            if self.cuts:
                downloader: Any = self.crawler.engine.downloader
                await downloader._renderer._proxy.close()
            found["late"] = await page.evaluate(LATE)
        yield found
        for link in response.css("a.more"):
            yield response.follow(link, meta={"playwright": True})
