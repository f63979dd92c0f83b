"""What Scrapy offers beside pages works for ordinary spiders, or is refused in one line."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.archived import Records
from tests.support.crawling import frontier_view
from tests.support.crawls import crawl_raw, dropped, refused
from tests.support.rawweb import HTML, Raw, answer
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.crawling import Crawl

FOUND = b"HTTP/1.1 302 Found"
MEMBERS = {
    "/robots.txt": Raw(answer(b"Set-Cookie: robot=1; Path=/", body=b"User-agent: *")),
    "/login": Raw(
        answer(
            *(HTML, b"Set-Cookie: visit=1; Path=/", b"Set-Cookie: large=" + b"x" * 5000),
            body=b"log in",
        )
    ),
    "/session": Raw(
        answer(b"Location: /home", b"Set-Cookie: key=2; Domain=shop.test; Path=/", status=FOUND)
    ),
    "/home": Raw(answer(HTML, body=b"hello")),
    "/jar-a": Raw(answer(HTML, b"Set-Cookie: more=a; Path=/", body=b"a")),
    "/jar-b": Raw(answer(HTML, body=b"b")),
    "/jar-a-again": Raw(answer(HTML, body=b"a")),
    "/jar-b-again": Raw(answer(HTML, body=b"b")),
    **{path: Raw(answer(HTML, body=b"fine")) for path in ("/meta", "/header", "/away", "/my")},
}


def crawl_with(
    web: SimulatedRawWeb,
    folder: Path,
    spider: str,
    arguments: Mapping[str, str] | None = None,
    **settings: Any,
) -> Crawl:
    return SimulatedCrawl(
        folder / "job",
        spider=spider,
        arguments={"root": web.url("shop.test", ""), **(arguments or {})},
        settings={"SPIDER_MODULES": "tests.support.spiders", **settings},
    ).run()


def sent(web: SimulatedRawWeb, header: bytes) -> dict[str, list[str]]:
    """Return the sorted parts of a header by path, empty for requests without it."""
    found = {}
    for path, request in web.requests:
        match = re.search(rb"\r\n%s: (.*?)\r\n" % header, request)
        found[path] = sorted(match[1].decode().split("; ")) if match else []
    return found


def test_a_spider_logs_in_and_keeps_its_cookies(tmp_path: Path) -> None:
    """By a form, a redirect that sets the session cookie, and two jars of its own. No robots.txt is
    asked for with cookies, the last of them after the login."""
    with SimulatedRawWeb(MEMBERS) as web:
        crawl = crawl_with(web, tmp_path, "member", COOKIES_DEBUG=1, LOG_LEVEL="DEBUG")
        assert sent(web, b"Cookie") == {
            "/robots.txt": [],
            "/login": [],
            "/session": ["visit=1"],
            "/home": ["key=2", "visit=1"],
            "/my": ["key=2", "visit=1"],
            "/jar-a": ["who=a"],
            "/jar-b": ["who=b"],
            "/jar-a-again": ["more=a", "who=a"],
            "/jar-b-again": ["who=b"],
            "/meta": ["visit=1"],
            "/header": ["visit=1"],
            "/away": [],
        }
        assert dict(web.requests)["/session"].endswith(b"\r\n\r\npassword=p")
        assert len(crawl.items) == 7
        assert "Cookie: visit=1" in crawl.log


def test_cookies_that_are_off_are_warned_about_once(tmp_path: Path) -> None:
    with SimulatedRawWeb(MEMBERS) as web:
        crawl = crawl_with(web, tmp_path, "member", COOKIES_ENABLED=0)
        (warning,) = crawl.complaints
        assert "jar-a> has cookies, and cookies are off: to send" in warning
        assert set(map(tuple, sent(web, b"Cookie").values())) == {()}


@pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")
@pytest.mark.parametrize("way", ["attributes", "settings"])
def test_headers_and_credentials_reach_the_server(way: str, tmp_path: Path) -> None:
    """Those of a request before those for all, which only one domain sees."""
    with SimulatedRawWeb(MEMBERS) as web:
        # Scrapy compares a domain with host and port.
        given = {"user": "me", "pass": "all", "domain": f"shop.test:{web.port}"}
        settings, arguments = {}, {}
        if way == "settings":
            settings = {f"HTTPAUTH_{name.upper()}": value for name, value in given.items()}
        else:
            names = {"user": "http_user", "pass": "http_pass", "domain": "http_auth_domain"}
            arguments = {names[name]: value for name, value in given.items()}
        crawl_with(web, tmp_path, "member", arguments, **settings)
        credentials = sent(web, b"Authorization")
        assert credentials["/login"] == credentials["/home"] == [_basic("me:all")]
        assert credentials["/meta"] == [_basic("me:secret")]
        assert credentials["/header"] == ["Bearer x"]
        assert credentials["/away"] == []
        assert sent(web, b"X-Token")["/jar-a"] == ["t"]


def _basic(credentials: str) -> str:
    return f"Basic {b64encode(credentials.encode()).decode()}"


def test_credentials_without_a_domain_stop_the_start(tmp_path: Path) -> None:
    crawl = SimulatedCrawl(tmp_path / "job", settings={"HTTPAUTH_USER": "me"})
    assert "HTTPAUTH_DOMAIN is not: give the domain" in refused(crawl)


def test_data_urls_are_answered_without_a_fetch(tmp_path: Path) -> None:
    """And other schemes are refused, each with one line in the log."""
    with SimulatedRawWeb(MEMBERS) as web:
        crawl = crawl_with(web, tmp_path, "schemes")
        assert sorted((item["text"], item["from"]) for item in crawl.items) == [
            ("", None),
            ("fine", "hi"),
            ("hi", None),
            ("hihi", "hi"),
            ("ho", None),
            ("hoho", "ho"),
        ]
        assert web.asked == ["/robots.txt", "/away"]
        assert frontier_view(crawl.jobdir)["queued"] == 0
        reasons = [line.partition("> is dropped: ") for line in crawl.complaints]
        assert [start.rpartition("<GET ")[2] for start, _, _ in reasons] == [
            "file:///etc/hosts",
            "ftp://a.test/x",
            "s3://bucket/x",
        ]
        assert all("only http, https and data URLs" in why for _, _, why in reasons)


def test_a_second_crawl_is_answered_by_the_http_cache(tmp_path: Path) -> None:
    """Without delays and archive records; robots.txt is asked for again."""
    cache = {"HTTPCACHE_ENABLED": 1, "HTTPCACHE_DIR": tmp_path / "cache", "KROWL_DELAY_MIN": 5}
    with SimulatedRawWeb(MEMBERS) as web:
        times = [clocks.monotonic()]
        first = crawl_with(web, tmp_path / "first", "member", **cache)
        times.append(clocks.monotonic())
        asked = len(web.requests)
        second = crawl_with(web, tmp_path / "second", "member", **cache)
        times.append(clocks.monotonic())
        assert web.asked[asked:] == ["/robots.txt"] * 3
    urls = sorted(item["url"] for item in first.items)
    assert sorted(item["url"] for item in second.items) == urls
    assert second.stats["httpcache/hit"] == asked - 3
    took = [end - start for start, end in pairwise(times)]
    # The second has a delay only after robots.txt.
    assert took[0] > 5 * (asked - 6)
    assert 5 < took[1] < 15
    assert {record.url for record in Records.of(second.jobdir / "warc").of_kind("request")} == {
        web.url("shop.test", "/robots.txt"),
        web.url("other.test", "/robots.txt"),
        web.url("my.shop.test", "/robots.txt"),
    }
    assert frontier_view(second.jobdir)["done"] == asked - 3


def test_the_broad_spider_has_cookies_if_asked(tmp_path: Path) -> None:
    """Otherwise only retries stand between its pages and the handler."""
    pages = {
        "/robots.txt": Raw(answer(body=b"")),
        "/": Raw(answer(HTML, b"Set-Cookie: visit=1", body=b"<a href=/more>more</a>")),
        "/more": Raw(answer(HTML, body=b"more")),
    }
    for number, (cookies, settings) in enumerate([([], {}), (["visit=1"], {"COOKIES_ENABLED": 1})]):
        with SimulatedRawWeb(pages) as web:
            seeds = [web.url("a.test")]
            crawl = crawl_raw(tmp_path / str(number), seeds, LOG_LEVEL="DEBUG", **settings)
            assert sent(web, b"Cookie")["/more"] == cookies
        assert ("['krowlspider.middlewares.retry.RetryMiddleware']" in crawl.log) == (not cookies)


@pytest.mark.parametrize("cookies", [0, 1])
def test_redirects_that_set_cookies_may_lead_back(tmp_path: Path, cookies: int) -> None:
    """Up to the limit of redirects; those without a cookie are a loop."""
    moved = {
        # To itself, by way of another URL, and from a URL that only sends the cookie.
        "/self": ("/self", b"self=1"),
        "/p": ("/set", None),
        "/set": ("/p", b"set=1"),
        "/check": ("/checked", b"check=1"),
        "/checked": ("/check", None),
        "/plain": ("/again", None),
        "/again": ("/plain", None),
    }
    pages = {"/robots.txt": Raw(answer(body=b""))}
    for path, (target, cookie) in moved.items():
        headers = [b"Location: " + target.encode()]
        headers += [b"Set-Cookie: " + cookie + b"; Path=/"] if cookie else []
        pages[path] = Raw(answer(*headers, status=FOUND))
    with SimulatedRawWeb(pages) as web:
        seeds = [web.url(f"{path[1:]}.test", path) for path in ("/self", "/p", "/check", "/plain")]
        crawl = crawl_raw(tmp_path, seeds, COOKIES_ENABLED=cookies, REDIRECT_MAX_TIMES=4)
    asked = Counter(path for path, _ in web.requests if path != "/robots.txt")
    most = {"/self": 5, "/p": 3, "/set": 2, "/check": 3, "/checked": 2, "/plain": 1, "/again": 1}
    assert asked == (most if cookies else dict.fromkeys(moved, 1))
    ends = {"redirects": 3, "redirect_loop": 1} if cookies else {"redirect_loop": 4}
    assert dropped(crawl) == ends
