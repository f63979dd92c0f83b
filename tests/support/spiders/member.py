"""A spider that logs in by a form, has two cookie jars besides, and names itself by headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.http import FormRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response


class MemberSpider(scrapy.Spider):
    """Yields an item for each page."""

    name = "member"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.root}/login", self.log_in)
        for jar in ("a", "b"):
            yield scrapy.Request(
                f"{self.root}/jar-{jar}",
                self.use_jar,
                cookies={"who": jar},
                meta={"cookiejar": jar},
                headers={"X-Token": "t"},
            )
        by_meta = {"http_user": "me", "http_pass": "secret"}
        yield scrapy.Request(f"{self.root}/meta", meta=by_meta)
        yield scrapy.Request(f"{self.root}/header", headers={"Authorization": "Bearer x"})
        yield scrapy.Request(self.root.replace("shop", "other") + "/away")

    def log_in(self, response: Response) -> Iterator[Any]:
        yield FormRequest(f"{self.root}/session", formdata={"password": "p"}, callback=self.parse)

    def use_jar(self, response: Response) -> Iterator[Any]:
        meta = {"cookiejar": response.meta["cookiejar"]}
        yield scrapy.Request(f"{response.url}-again", meta=meta)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        if response.url.endswith("/home"):
            yield scrapy.Request(self.root.replace("shop", "my.shop") + "/my")
