"""``scrapy parse`` with Scrapy's own components."""

from __future__ import annotations

import sys
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy.commands.parse import Command as ScrapyCommand

from krowlspider.commands.crawl import BAD_INPUT
from krowlspider.commands.single_page import SinglePage
from krowlspider.engine.crash_marking import PageReader
from krowlspider.job.in_flight import LoopThrottle, LoopTurns

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from scrapy import Request, Spider
    from scrapy.http import Response
    from scrapy.http.request import CallbackT
    from twisted.internet.defer import Deferred


class _Links:
    """Keeps the links of a page, in place of the intake that would queue them."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def discover(self, links: list[str], **_: Any) -> int:
        self.found += links
        return len(links)

    def count_dropped(self, *_: Any) -> None: ...


class Command(SinglePage, ScrapyCommand):
    """Shows the links that the broad spider would queue as requests."""

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        # Only links are shown.
        own = {"KROWL_OPT_OUTS": False, "KROWL_REQUISITES": "none"}
        self.settings.setdict(own, priority="cmdline")

    def set_spidercls(self, url: str, opts: argparse.Namespace) -> None:
        super().set_spidercls(url, opts)
        if self.spidercls is None:
            # Scrapy says so in the log alone.
            print(f"krowlspider: no spider is for {url}: give one by --spider", file=sys.stderr)
            self.exitcode = BAD_INPUT

    def prepare_request(
        self, spider: Spider, request: Request, opts: argparse.Namespace
    ) -> Request:
        if isinstance(spider, PageReader):
            self._links = _Links()
            spider.scheduler = SimpleNamespace(  # type: ignore[attr-defined]
                intake=self._links,
                budget=SimpleNamespace(left=None),
                meters=None,
                throttle=LoopThrottle(LoopTurns(), monotonic),
            )
            request.meta.update(depth=0, handle_httpstatus_all=True)
        return super().prepare_request(spider, request, opts)

    def run_callback(
        self, response: Response, callback: CallbackT, cb_kwargs: dict[str, Any] | None = None
    ) -> Deferred[Any]:
        spider = self.pcrawler.spider
        if not isinstance(spider, PageReader):
            return super().run_callback(response, callback, cb_kwargs)

        async def with_links(response: Response, **kwargs: Any) -> AsyncIterator[Any]:
            async for item in callback(response, **kwargs):
                yield item
            links, self._links.found = self._links.found, []
            for url in links:
                yield spider.page_request(url, {"depth": response.meta["depth"] + 1})

        return super().run_callback(response, with_links, cb_kwargs)
