"""What becomes of a request of the browser: refused, answered from memory, or made."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, IgnoreRequest
from scrapy.http import HtmlResponse, Response

from krowlspider.browser import subrequests
from krowlspider.browser.proxy import BrowserRequest, BrowserResponse, Headers
from krowlspider.browser.subrequests import KEPT_SECONDS, KeptFiles, Subrequests, Visit

URL = "http://a.test/"


class World:
    """A page at `URL` in the browser, and what is asked for it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.made: list[Request] = []
        self.time = 0.0
        self.error: Exception | None = None
        self.headers: dict[str, Any] = {}
        self.subrequests = Subrequests(self._fetch, self._count, lambda: self.time)
        self.visit = self.page(URL)

    def page(self, url: str, **meta: Any) -> Visit:
        request = Request(url, meta=meta, headers={"Proxy-Authorization": "secret"})
        headers = {"Content-Type": "text/html", "Transfer-Encoding": "chunked", "Set-Cookie": "a=b"}
        return self.subrequests.open(request, url, HtmlResponse(url, body=b"page", headers=headers))

    async def _fetch(self, request: Request, page: str) -> Response:
        assert page == URL
        self.made.append(request)
        if self.error is not None:
            raise self.error
        return Response(request.url, body=b"file", headers=self.headers)

    def _count(self, name: str) -> None:
        self.counts[name.removeprefix("krowl/browser/")] += 1

    def ask(
        self, url: str, method: str = "GET", visit: Visit | None = None, **headers: str
    ) -> BrowserResponse:
        pairs: Headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        name = (visit or self.visit).name
        return asyncio.run(self.subrequests.answer(BrowserRequest(name, method, url, pairs)))


def test_the_page_is_handed_over_as_it_was_fetched() -> None:
    world = World()
    answer = world.ask(URL)
    assert (answer.status, answer.body) == (200, b"page")
    assert answer.headers == [(b"content-type", b"text/html"), (b"set-cookie", b"a=b")]
    assert world.ask(URL) == answer
    assert not world.made


@pytest.mark.parametrize(
    ("reason", "url", "method", "headers"),
    [
        ("method", URL, "POST", {}),
        ("method", f"{URL}x", "OPTIONS", {}),
        ("method", f"{URL}x", "GET", {"content_length": "3"}),
        ("websocket", f"{URL}x", "GET", {"upgrade": "websocket"}),
        ("prefetch", f"{URL}x", "GET", {"sec_purpose": "prefetch"}),
        ("url", "ftp://a.test/", "GET", {}),
    ],
)
def test_some_requests_are_never_made(
    reason: str, url: str, method: str, headers: dict[str, str]
) -> None:
    world = World()
    answer = world.ask(url, method, **headers)
    assert (answer.status, answer.is_last) == (403, True)
    assert world.counts == {f"refused_count/{reason}": 1}
    assert not world.made


def test_a_page_asks_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subrequests, "REQUESTS_MAX", 2)
    world = World()
    statuses = [world.ask(url).status for url in (URL, f"{URL}1", f"{URL}2")]
    assert statuses == [200, 200, 403]
    assert world.counts == {"request_count": 1, "refused_count/count": 1}


def test_a_closed_page_gets_nothing() -> None:
    world = World()
    assert world.subrequests.knows(world.visit.name)
    world.subrequests.close(world.visit)
    assert not world.subrequests.knows(world.visit.name)
    assert world.ask(URL).status == 403


def test_a_request_has_the_headers_of_content_alone() -> None:
    world = World()
    world.ask(
        f"{URL}x",
        accept="image/*",
        cookie="a=b",
        host="a.test",
        user_agent="Chromium",
        if_none_match='"x"',
        range="bytes=0-",
        proxy_authorization="secret",
        sec_ch_ua="Chromium",
        accept_encoding="zstd",
        cache_control="no-cache",
    )
    (made,) = world.made
    assert made.headers.to_unicode_dict() == {"Accept": "image/*", "Cookie": "a=b"}
    assert made.url == f"{URL}x"
    assert made.meta.get("proxy") is None


def test_a_request_goes_through_the_proxy_of_its_page() -> None:
    world = World()
    proxy = "http://proxy.test:1"
    world.ask(f"{URL}x", visit=world.page(URL, proxy=proxy))
    (made,) = world.made
    assert made.meta["proxy"] == proxy
    assert made.headers["Proxy-Authorization"] == b"secret"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (IgnoreRequest("robots"), 403, "refused"),
        (DownloadTimeoutError("late"), 504, "error"),
        (DownloadFailedError("down"), 502, "error"),
    ],
)
def test_a_failure_is_an_answer(error: Exception, status: int, kind: str) -> None:
    world = World()
    world.error = error
    assert world.ask(f"{URL}x").status == status
    assert world.counts == {"request_count": 1, f"failed_count/{kind}": 1}


def test_a_file_is_kept_for_the_next_page_for_a_while() -> None:
    world = World()
    for _ in range(2):
        assert world.ask(f"{URL}x", sec_fetch_dest="image").body == b"file"
    world.time = KEPT_SECONDS + 1
    world.ask(f"{URL}x", sec_fetch_dest="image")
    assert world.counts == {"request_count": 2, "kept_count": 1}
    # Its headers may allow one origin alone.
    world.ask(f"{URL}x", sec_fetch_dest="image", origin="http://b.test")
    assert world.counts["request_count"] == 3


@pytest.mark.parametrize(("kind", "made"), [("image/png", 1), ("text/html", 2)])
def test_without_tls_the_type_says_what_is_kept(kind: str, made: int) -> None:
    """The browser sends Sec-Fetch-Dest to https: URLs alone."""
    world = World()
    world.headers = {"Content-Type": kind}
    for _ in range(2):
        world.ask(f"{URL}x")
    assert world.counts["request_count"] == made


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, "document"),
        ({}, "empty"),
        ({"Set-Cookie": "a=b"}, "image"),
        ({"Cache-Control": "private, max-age=60"}, "image"),
        ({"Cache-Control": "No-Store"}, "image"),
        ({"Vary": "Accept-Encoding, Cookie"}, "image"),
    ],
)
def test_what_is_of_one_page_is_not_kept(headers: dict[str, str], kind: str) -> None:
    world = World()
    world.headers = headers
    for _ in range(2):
        world.ask(f"{URL}x", sec_fetch_dest=kind)
    assert world.counts == {"request_count": 2}


def test_kept_files_have_a_bound() -> None:
    kept = KeptFiles(lambda: 0.0, 100)
    ask = BrowserRequest("page", "GET", "", [(b"sec-fetch-dest", b"script")])
    for number in range(5):
        kept.keep(ask, str(number), BrowserResponse(200, [], b"x" * 40))
    assert [number for number in range(5) if kept.get(ask, str(number))] == [3, 4]
    kept.keep(ask, "4", BrowserResponse(200, [], b"x" * 20))
    kept.keep(ask, "5", BrowserResponse(200, [], b"x" * 40))
    assert [number for number in range(6) if kept.get(ask, str(number))] == [3, 4, 5]
