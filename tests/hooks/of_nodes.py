"""Hooks of the nodes of a cluster: they log what they are asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krowlspider.hooks import Hooks

if TYPE_CHECKING:
    from scrapy.http import Response

    from krowlspider.hooks import Url

logger = logging.getLogger(__name__)


class Noting(Hooks):
    def filter(self, link: Url, is_known: bool) -> bool | None:
        if is_known:
            return None
        logger.info("NOTED filter %s", link.url)
        link.state = [link.source]
        return not link.url.endswith("/no")

    def enqueued(self, url: Url) -> None:
        logger.info("NOTED enqueued %s", url.url)

    def visit(self, url: Url, response: Response) -> None:
        logger.info("NOTED visit %s %s", url.url, (url.state or [""])[0] or "-")
