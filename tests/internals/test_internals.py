"""The private names of libraries do what the project relies on, in the versions that are pinned."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from importlib.metadata import version
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from redis.asyncio.connection import Connection
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares import cookies
from scrapy.exceptions import _InvalidOutput
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.log import _get_handler
from scrapy.utils.test import get_crawler
from twisted.internet.defer import Deferred

from krowlspider.engine.downloader import RequestRunner
from krowlspider.internals import cookies as bounded
from krowlspider.internals import engine as internals
from krowlspider.internals.engine import DownloaderMiddlewares
from krowlspider.internals.frostwork import Plan
from krowlspider.internals.log import format_by
from krowlspider.internals.patterns import steps_of
from krowlspider.internals.redis import cut
from krowlspider.internals.suffix_list import suffix_list
from tests.support.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http.cookies import CookieJar

    from krowlspider.engine.awaited import AwaitedRequests
    from krowlspider.internals.engine import Scrape


@pytest.mark.parametrize(
    ("library", "series"),
    [
        *(("scrapy", "2.19."), ("twisted", "26.10."), ("redis", "8.1.")),
        *(("frostwork", "0.1."), ("tldextract", "5.4.")),
    ],
)
def test_the_versions_are_those_that_were_looked_into(library: str, series: str) -> None:
    """Of another one, compare the names of docs/dependencies.md first."""
    assert version(library).startswith(series)


# --- Scrapy's log ---


def test_handlers_of_the_log_get_the_formatter_that_is_given() -> None:
    made = logging.Formatter()
    try:
        format_by(lambda settings: made if settings.getbool("OWN") else None)
        assert _get_handler(Settings({"OWN": True})).formatter is made
        assert _get_handler(Settings()).formatter is not made
    finally:
        format_by(lambda _: None)


# --- Scrapy's engine and scraper ---


class Notes:
    """What a crawl shows of its engine."""

    def __init__(self) -> None:
        self.over: list[str] = []
        self.scraped: list[str] = []
        self.starting: list[bool] = []
        self.closing: list[bool] = []
        self.asked = 0
        self.started: Counter[str] = Counter()


class OneScheduler(BaseScheduler):
    """Gives the requests of start() one by one, and only after it has woken the engine."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self._queue: list[Request] = []
        self._is_awake = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> OneScheduler:
        return cls(crawler)

    def open(self, spider: Spider) -> None:
        notes, engine = spider.notes, self._crawler.engine  # type: ignore[attr-defined]
        internals.call_when_over(engine, lambda request: notes.over.append(request.url))

        def wrap(scrape: Scrape) -> Scrape:
            async def noted(result: Any, request: Request) -> None:
                notes.scraped.append(request.url)
                await scrape(result, request)

            return noted

        internals.wrap_scrape(engine.scraper, wrap)

    def has_pending_requests(self) -> bool:
        return bool(self._queue)

    def enqueue_request(self, request: Request) -> bool:
        self._queue.append(request)
        return True

    def next_request(self) -> Request | None:
        self._crawler.spider.notes.asked += 1  # type: ignore[union-attr]
        if self._queue and self._is_awake:
            self._is_awake = False
            return self._queue.pop()
        self._is_awake = True
        internals.wake(self._crawler.engine)
        return None


class OneDownloader:
    """Answers at once; its requests are started by a `RequestRunner` if the spider asks for it."""

    def __init__(self, crawler: Crawler):
        self._crawler = crawler
        self.active: set[Request] = set()
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._closed, signals.spider_closed)

    def _opened(self) -> None:
        engine, notes = self._crawler.engine, self._crawler.spider.notes  # type: ignore[union-attr]
        if self._crawler.settings.getbool("RUNNER"):
            nobody = cast("AwaitedRequests", SimpleNamespace(sent={}))
            runner = RequestRunner(engine, self.active, self.download, nobody, list, render=None)

            def start() -> bool:
                started = runner.start_request()
                notes.started[str(started)] += 1
                return started

            internals.start_requests_with(engine, start)

    def _closed(self) -> None:
        notes = self._crawler.spider.notes  # type: ignore[union-attr]
        notes.closing.append(internals.is_closing(self._crawler.engine))

    def needs_backout(self) -> bool:
        return bool(self.active)

    def fetch(self, request: Request) -> Deferred[Any]:
        self.active.add(request)
        return Deferred.fromFuture(asyncio.ensure_future(self.download(request)))

    async def download(self, request: Request) -> Response:
        self.active.discard(request)
        return Response(request.url, request=request)

    def close(self) -> None: ...


class NotingSpider(Spider):
    name = "noting"

    def __init__(self) -> None:
        super().__init__()
        self.notes = Notes()

    async def start(self) -> AsyncIterator[Request]:
        self.notes.starting.append(internals.is_starting(self.crawler.engine))
        self.notes.closing.append(internals.is_closing(self.crawler.engine))
        yield Request("data:,1")

    def parse(self, response: Response) -> Iterator[Request]:
        self.notes.starting.append(internals.is_starting(self.crawler.engine))
        # It is with the scraper.
        assert not self.crawler.engine.scraper.slot.is_idle()  # type: ignore[union-attr]
        if response.url == "data:,1":
            yield Request("data:,2")


@pytest.mark.parametrize("runner", [False, True])
def test_private_names_wake_wrap_and_watch_the_engine(*, runner: bool) -> None:
    settings = {
        "SCHEDULER": OneScheduler,
        "DOWNLOADER": OneDownloader,
        "RUNNER": runner,
        "EXTENSIONS_BASE": {},
        "SPIDER_MIDDLEWARES_BASE": {},
        "TWISTED_REACTOR_ENABLED": False,
    }

    async def main() -> Notes:
        crawler = Crawler(NotingSpider, settings)
        await asyncio.wait_for(crawler.crawl_async(), 60)
        assert isinstance(crawler.spider, NotingSpider)
        return crawler.spider.notes

    notes = asyncio.run(main())
    assert notes.over == notes.scraped == ["data:,1", "data:,2"]
    assert notes.starting[0] is True
    assert notes.starting[-1] is False
    assert notes.closing == [False, True]
    # Without waking, the engine would ask again only after its heartbeat of 5 s.
    assert notes.asked >= 4
    assert notes.started["True"] == (2 if runner else 0)


def test_process_output_hands_items_to_the_pipelines() -> None:
    processed: list[object] = []

    class FakeScraper:
        async def _process_spidermw_output_async(self, output: object, response: object) -> None:
            processed.append(output)

    scraper: Any = FakeScraper()
    asyncio.run(internals.process_output(scraper, {"a": 1}, Response("data:,")))
    assert processed == [{"a": 1}]


def test_cookies_look_up_suffixes_in_the_bundled_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookies, "_split_domain", cookies._split_domain)
    bounded.mend_cookies(())
    assert cookies._split_domain.suffix_list_urls == ()
    assert cookies._is_public_domain("co.uk")
    assert cookies._is_public_domain("github.io")
    assert not cookies._is_public_domain("example.co.uk")


@pytest.mark.parametrize(
    ("new", "kept"),
    [
        ("a{0}=1", 180),
        ("a{0}=1; Path=/x/{0}", 180),
        ("a{0}=1; x={1}", 16),
        ("a=1; Path=/x/{1}{0}", 8),
        ("a=1; Domain=shop.test; {1}{0}=1", 1),
    ],
)
def test_cookies_of_a_domain_have_a_bound(new: str, kept: int) -> None:
    """The last ones are kept, and sent."""
    middleware, jar = jar_with_bounds()
    request = Request("https://a.shop.test/x/")
    for first in range(0, 400, 20):
        cookies = [new.format(number, "y" * 1000) for number in range(first, first + 20)]
        response = Response(request.url, headers={"Set-Cookie": cookies})
        middleware.process_response(request, response)
    assert len(jar) == kept
    middleware.process_request(request)
    assert len(request.headers.get("Cookie", b"")) < 16_384


def test_expired_cookies_leave_nothing_in_a_jar() -> None:
    middleware, jar = jar_with_bounds()
    request = Request("https://shop.test/x")
    for number in range(400):
        for age in (10, 0):
            cookie = f"a=1; Path=/x{number}{'y' * 1000}; Max-Age={age}"
            response = Response(
                request.url + f"{number}{'y' * 1000}", headers={"Set-Cookie": cookie}
            )
            middleware.process_response(request.replace(url=response.url), response)
    assert sum(map(len, jar._cookies["shop.test"])) < 16_384


def test_cookies_of_domains_that_are_in_use_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_DOMAINS", 3)
    middleware, jar = jar_with_bounds()
    first = Request("https://a0.test/")
    for number in range(9):
        url = f"https://a{number}.test/"
        response = Response(url, headers={"Set-Cookie": "key=1"})
        middleware.process_response(Request(url), response)
        middleware.process_request(first)
        assert first.headers["Cookie"] == b"key=1"
    assert len(jar._cookies) == 3


def jar_with_bounds() -> tuple[cookies.CookiesMiddleware, CookieJar]:
    middleware = cookies.CookiesMiddleware()
    bounded.mend_cookies([middleware])
    return middleware, middleware.jars[None]


# --- tldextract ---


def test_the_bundled_list_of_suffixes_has_its_private_section() -> None:
    lines = suffix_list().splitlines()
    assert {"co.uk", "*.kobe.jp", "!city.kobe.jp", "github.io"} <= set(lines)


# --- redis-py ---


async def test_a_redis_connection_that_is_cut_is_gone_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connection = Connection(host="127.0.0.1", port=port)
        # It has not been used.
        cut(connection)
        connection._reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connection._writer = writer
        # More than the socket takes, which a close in order would wait for.
        writer.write(bytes(64 * 1024 * 1024))
        cut(connection)
        assert writer.transport.is_closing()
        assert writer.transport.get_write_buffer_size() == 0
        await connection.disconnect(nowait=True)


# --- frostwork ---


def test_a_plan_is_used_for_more_than_one_page() -> None:
    plan = Plan(["a::attr(href)", "title::text"], [])
    for number in range(2):
        page = f"<title>t{number}</title><a href=/{number}>x</a>".encode()
        assert plan.extract(page, "utf-8") == [[f"/{number}"], [f"t{number}"]]


def responding(result: object) -> Any:
    """Return a middleware whose coroutine ``process_response`` returns ``result``, or the response
    itself for None."""

    async def process_response(request: Request, response: Response) -> object:
        called.append(result)
        return response if result is None else result

    called: list[object] = []
    return SimpleNamespace(process_response=process_response, called=called)


def passed_on(*middlewares: Any) -> Any:
    async def download(request: Request) -> Response:
        return Response(request.url)

    async def main() -> Any:
        manager = DownloaderMiddlewares(*middlewares, crawler=get_crawler())
        return await manager.download_async(download, Request("http://a.test/"))

    return asyncio.run(main())


def test_a_request_that_a_middleware_returns_is_seen_by_no_other() -> None:
    again = Request("http://b.test/")
    outer, inner = responding(None), responding(again)
    assert passed_on(outer, inner) is again
    assert not outer.called
    assert inner.called


def test_a_coroutine_that_returns_no_response_is_named() -> None:
    with pytest.raises(_InvalidOutput, match="process_response must return Response or Request"):
        passed_on(responding("text"))


def test_a_response_of_an_ordinary_method_may_be_awaited_or_not() -> None:
    """Scrapy calls all methods then."""

    def plain(request: Request, response: Response) -> Response:
        return response.replace(status=201)

    def deferred(request: Request, response: Response) -> Any:
        return responding(response.replace(status=202)).process_response(request, response)

    for method, status in ((plain, 201), (deferred, 202)):
        response = passed_on(responding(None), SimpleNamespace(process_response=method))
        assert response.status == status


def test_shapes_of_expressions_are_known() -> None:
    """Each kind of part of ``re._parser``: how the steps of a search grow with the URL."""
    linear = ("abc", "[a-z]{3}", "^a*", "^(?:a|b)++", "(?:ab|cd)", "^a(?=b)(?!c)", "^(a)?(?(1)b|c)")
    assert all(steps_of(each) <= 40 * 2048 for each in (*linear, "^a*b*", "^(?:/[^/]+)+$"))
    squares = ("a*b", "a*?b", "a++b", "(?>a*)b", "(a)\\1", "a*b*c", "(?:/[^/]+)+$", "(?:a|ab)+c")
    assert all(2048**2 <= steps_of(each) < 2048**2 * 8 for each in squares)
    cubes = ("a*[ab]*c", "(?:a?){30}", "(?m)^.*a.*b", "/.*/.*/x", "(?:a.*)?b.*c", "(a.*b|c.*d).*e")
    assert all(steps_of(each) > 2.0**27 for each in cubes)
    endless = (
        "(?:a*)*",
        "(?:a|aa)+",
        "(?:a+){50}",
        "(a?)+",
        "(\\d+)+x",
        "(?:\\w+\\s?)*$",
        "(x+x+)+y",
    )
    assert all(steps_of(each) == inf for each in endless)


@table(
    "expression",
    [
        *(r"/page/\d+/comment/\d+", r"/tag/[^/]+/page/\d+", r"[?&](utm_\w+|sid)=[^&]+"),
        *(r"\.(jpe?g|png|gif)(\?.*)?$", r"([?&]title=|/)Category:.*&(page|file)until="),
        *(r"/sort/\d+\.html\?(.*&)?mode=reply(&|$)", r"limit=.+limit=.+"),
        *(r"^https?://[^/]+\.example\.com/(.*[?&]title=)?Special:(A|B)([/?&]|$)", "(?:)*a"),
    ],
)
def test_expressions_of_crawlers_are_quick(expression: str) -> None:
    """The next character decides, or few places match. They are like ArchiveBot's ignore sets."""
    assert steps_of(expression) < 2.0**27
