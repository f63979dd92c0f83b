"""A download handler of another project: it fetches with urllib, in threads."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.responsetypes import responsetypes

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class ThreadedHandler(BaseDownloadHandler):
    async def download_request(self, request: Request) -> Response:
        return await asyncio.to_thread(self._fetch, request)

    def _fetch(self, request: Request) -> Response:
        headers = request.headers.to_unicode_dict()
        asked = urllib.request.Request(request.url, headers={**headers, "X-Fetched-By": "threads"})
        try:
            answer = urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body, headers = answer.read(), dict(answer.headers)
        kind = responsetypes.from_args(headers=headers, url=request.url, body=body)
        return kind(request.url, status=answer.status, headers=headers, body=body, request=request)

    async def close(self) -> None: ...
