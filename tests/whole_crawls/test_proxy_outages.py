"""Crawls through the proxy of the environment, which fails: no URL is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawling import Crawl, frontier_view
from tests.support.proxy import TestProxy
from tests.support.rawweb import HTML, Raw, RawWeb, answer

if TYPE_CHECKING:
    from pathlib import Path

# Twelve pages on each of four hosts.
PATHS = ["/", *(f"/p{number}" for number in range(11))]
LINKS = "".join(f"<a href={path}>.</a>" for path in PATHS).encode()
SITE = {path: Raw(answer(HTML, body=LINKS)) for path in PATHS}
HOSTS = [f"{name}.test" for name in "abcd"]
PAGES = len(PATHS) * len(HOSTS)
LOGIN = "user:secret"


def through(folder: Path, site: RawWeb, url: str, **settings: Any) -> Crawl:
    """A crawl of a spider derived from the broad one, through this proxy."""
    return Crawl(
        folder / "job",
        spider="broader",
        arguments={"seeds": ",".join(site.url(host) for host in HOSTS)},
        settings={
            "SPIDER_MODULES": "tests.support.spiders",
            "KROWL_DELAY_MIN": 0.1,
            "KROWL_DELAY_FACTOR": 0,
            "KROWL_RETRY_DELAY": 0.1,
            **settings,
        },
    )


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Any:
    def name(url: str) -> str:
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.delenv("https_proxy", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        return url

    return name


def assert_whole(crawl: Crawl, *before: Crawl) -> None:
    """Each page was fetched once, and nothing was dropped or counted against a host."""
    items = [item["url"] for each in (*before, crawl) for item in each.items]
    assert sorted(items) == sorted(set(items))
    assert len(items) == PAGES
    view = frontier_view(crawl.jobdir)
    assert (view["queued"], view["dropped"]) == (0, {})
    for each in (*before, crawl):
        # Answers that were under way when the proxy died are cut off.
        cut_off = {"disconnect", "reset"}
        assert {name.rpartition("/")[2] for name in each.stats if "reason_count" in name} <= cut_off
        assert "krowl/politeness/parked_count" not in each.stats


DENIAL = b"HTTP/1.1 407 Denied\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(("own", "error"), [(b"", "refused"), (DENIAL, "demands credentials")])
def test_crawl_pauses_while_its_proxy_is_out(
    tmp_path: Path, proxied: Any, own: bytes, error: str
) -> None:
    with RawWeb(SITE) as site:
        proxy = TestProxy()
        with proxy:
            url = proxied(proxy.url())
            crawl = through(tmp_path, site, url).start()
            crawl.wait_until(lambda: len(proxy.passed) > 15)
            if own:
                proxy.own = own
                crawl.wait_until(lambda: "No request gets through: " in crawl.log)
                asked = len(proxy.passed)
                crawl.wait_until(lambda: len(proxy.passed) > asked)
                proxy.own = b""
        if not own:
            crawl.wait_until(lambda: "No request gets through: " in crawl.log)
        with proxy:
            crawl.wait()
    assert f"No request gets through: proxy {url}" in crawl.log
    assert re.search(f"gets through: .*{error}", crawl.log)
    assert "Hosts answer again, after " in crawl.log
    assert crawl.stats["krowl/politeness/outages_count"] == 1
    assert_whole(crawl)


UNREACHED = b"X-Squid-Error: ERR_CONNECT_FAIL 111\r\nContent-Length: 0"
BROKEN = {
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "closed": b"\r\n",
    "unreached": b"HTTP/1.1 503 No\r\n%b\r\n\r\n" % UNREACHED,
}


@pytest.mark.slow
@pytest.mark.parametrize("own", BROKEN.values(), ids=BROKEN.keys())
def test_crawl_pauses_while_its_proxy_is_broken(tmp_path: Path, proxied: Any, own: bytes) -> None:
    """It takes connections and brings no answer of any host, of which there are four."""
    with RawWeb(SITE) as site, TestProxy() as proxy:
        url = proxied(proxy.url())
        crawl = through(tmp_path, site, url, KROWL_RETRY_DELAY=6).start()
        crawl.wait_until(lambda: len(proxy.passed) > 15)
        proxy.own = own
        crawl.wait_until(lambda: "brings no answers" in crawl.log)
        asked = len(proxy.passed)
        crawl.wait_until(lambda: len(proxy.passed) > asked + 1)
        proxy.own = b""
        crawl.wait()
    assert f"No host answers through the proxy {url}" in crawl.log
    assert "Hosts answer again, after " in crawl.log
    items = [item["url"] for item in crawl.items]
    assert (len(items), len(set(items))) == (PAGES, PAGES)
    view = frontier_view(crawl.jobdir)
    assert (view["queued"], view["dropped"]) == (0, {})


def test_crawl_stopped_while_its_proxy_is_out_goes_on(tmp_path: Path, proxied: Any) -> None:
    with RawWeb(SITE) as site:
        proxy = TestProxy()
        with proxy:
            url = proxied(proxy.url())
            first = through(tmp_path, site, url).start()
            first.wait_until(lambda: len(proxy.passed) > 15)
        first.wait_until(lambda: "No request gets through: " in first.log)
        first.interrupt()
        with proxy:
            second = through(tmp_path, site, url).run()
    assert_whole(second, first)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "demands credentials (status 407)"),
        ("user:wrong", "refuses the credentials (status 407)"),
        ("ftp://user:wrong@p.test:21", "has the scheme ftp, which is not one of"),
    ],
)
def test_a_wrong_proxy_stops_the_crawl(tmp_path: Path, proxied: Any, url: str, said: str) -> None:
    """With one line, and all that is queued stays queued."""
    with RawWeb(SITE) as site, TestProxy(LOGIN) as proxy:
        wrong = proxied(url if "://" in url else proxy.url(url))
        first = through(tmp_path, site, wrong).run(code=2)
        lines = [line for line in first.log.splitlines() if line.startswith("krowlspider: proxy")]
        assert len(lines) == 1
        assert said in lines[0]
        assert "Traceback" not in first.log
        assert ":wrong" not in first.log
        assert site.asked == []
        assert frontier_view(first.jobdir)["queued"] == len(HOSTS)
        second = through(tmp_path, site, proxied(proxy.url(LOGIN))).run()
    assert_whole(second)
