"""A spider as Scrapy's users write them: callbacks, meta, cb_kwargs, POST bodies, errbacks, start
items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.http import FormRequest, JsonRequest
from scrapy.utils.engine import get_engine_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure


class OrdinarySpider(scrapy.Spider):
    """Walks a shop of the mock web; knows nothing of krowlspider."""

    name = "ordinary"

    def __init__(self, root: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.root = root

    async def start(self) -> AsyncIterator[Any]:
        yield {"kind": "start item"}
        yield scrapy.Request(f"{self.root}/", meta={"note": "kept", "pair": (1, 2)})

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "kind": "index",
            "note": response.meta["note"],
            "pair_is_tuple": response.meta["pair"] == (1, 2),
        }
        for name in ("one", "two", "one"):
            yield response.follow(f"/item/{name}", self.parse_item, cb_kwargs={"name": name})
        yield FormRequest(f"{self.root}/form", formdata={"q": "a b"}, callback=self.parse_echo)
        yield JsonRequest(f"{self.root}/json", data={"n": 1}, callback=self.parse_echo)
        yield JsonRequest(f"{self.root}/json", data={"n": 2}, callback=self.parse_echo)
        yield scrapy.Request(f"{self.root}/gone", self.parse_item, errback=self.on_error)
        yield scrapy.Request(f"{self.root}/moved", self.parse_moved)
        yield scrapy.Request(
            f"{self.root}/", self.parse_again, dont_filter=True, headers={"X-Again": "yes"}
        )
        yield scrapy.Request(f"{self.root}/urgent", self.parse_urgent, priority=10)

    def parse_item(self, response: Response, name: str = "") -> Iterator[Any]:
        yield {"kind": "item", "name": name, "depth": response.meta["depth"]}

    def parse_echo(self, response: Response) -> Iterator[Any]:
        assert response.request is not None
        yield {
            "kind": "echo",
            "method": response.request.method,
            "sent": response.request.body.decode(),
        }

    def parse_moved(self, response: Response) -> Iterator[Any]:
        # As the telnet console's est() shows it.
        yield {"kind": "engine", "status": dict(get_engine_status(self.crawler.engine))}
        yield {"kind": "moved", "url": response.url, "via": response.meta["redirect_urls"]}

    async def parse_again(self, response: Response) -> AsyncIterator[Any]:
        yield {"kind": "again"}

    def parse_urgent(self, response: Response) -> None:
        raise ValueError("a callback of a user may fail")

    def on_error(self, failure: Failure) -> Iterator[Any]:
        yield {"kind": "error", "status": failure.value.response.status}
