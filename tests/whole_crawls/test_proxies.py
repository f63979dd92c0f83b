"""Crawls of an ordinary spider through proxies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.mockweb.server import certificate
from tests.support.archived import Records
from tests.support.crawling import Crawl
from tests.support.proxy import Passed, TestProxy
from tests.support.rawweb import HTML, Raw, RawWeb, answer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ANSWERS = {path: Raw(answer(HTML, body=path.encode())) for path in ("/", "/a", "/b", "/c")}
# user:pass word
BASIC = "dXNlcjpwYXNzIHdvcmQ="


def proxied(folder: Path, *pairs: tuple[str, str], **settings: Any) -> Crawl:
    """A crawl of URLs, each through its proxy."""
    return Crawl(
        folder / "job",
        spider="proxied",
        arguments={"pairs": json.dumps(pairs)},
        settings={
            "SPIDER_MODULES": "tests.support.spiders",
            "RETRY_TIMES": 1,
            "KROWL_DELAY_MIN": 0,
            "KROWL_DELAY_FACTOR": 0,
            **settings,
        },
    )


def got(crawl: Crawl) -> dict[str, dict[str, Any]]:
    return {item["url"]: item for item in crawl.items}


def test_http_urls_go_through_the_proxy_in_meta(tmp_path: Path) -> None:
    with RawWeb(ANSWERS) as site, TestProxy("user:pass word") as proxy, TestProxy() as open_one:
        urls = [site.url("a.test", path) for path in ("/", "/a", "/b", "/c")]
        through = [proxy.url("user:pass%20word"), open_one.url(), "", proxy.url("user:wrong")]
        crawl = proxied(tmp_path, *zip(urls, through, strict=True)).run()
    items = got(crawl)
    assert [items[url].get("status") for url in urls] == [200, 200, 200, None]
    assert [items[url].get("address") for url in urls] == ["None", "None", "127.0.0.1", None]
    assert proxy.passed[0] == Passed("GET", urls[0], BASIC)
    assert open_one.passed == [Passed("GET", urls[1])]
    denied = f"proxy {proxy.url()} refuses the credentials (status 407)"
    assert items[urls[3]]["error"] == denied
    assert f"{urls[3]} (host a.test:{site.port}), proxy_auth: {denied}" in crawl.log
    # The same credentials are not tried again.
    assert crawl.stats["krowl/frontier/dropped_count/proxy_auth"] == 1
    assert "retry/count" not in crawl.stats
    assert site.asked == ["/robots.txt", "/", "/a", "/b"]
    assert not any(b"Proxy-Authorization" in sent for _, sent in site.requests)
    records = Records.of(tmp_path / "job" / "warc")
    assert [
        ("WARC-IP-Address" in records.about(url).of_kind("response")[0]) for url in urls[:3]
    ] == [False, False, True]
    assert not records.about(urls[3]).of_kind("request", "response")
    sent = dict(site.requests)
    for url, path in zip(urls[:2], ("/", "/a"), strict=True):
        assert records.about(url).of_kind("request").only.block == sent[path]


def test_environment_names_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawWeb(ANSWERS) as site, TestProxy("user:pass word") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url("user:pass%20word"))
        monkeypatch.setenv("no_proxy", "b.test")
        monkeypatch.delenv("https_proxy", raising=False)
        url, direct = site.url("a.test"), site.url("b.test")
        crawl = proxied(tmp_path, (url, ""), (direct, "")).run()
    assert {item["status"] for item in crawl.items} == {200}
    assert [each.target for each in proxy.passed] == [site.url("a.test", "/robots.txt"), url]
    assert {each.credentials for each in proxy.passed} == {BASIC}
    assert not any(b"Proxy-Authorization" in sent for _, sent in site.requests)


def test_https_urls_go_through_a_tunnel(tmp_path: Path) -> None:
    with (
        RawWeb(ANSWERS, certificate()) as site,
        TestProxy("user:pass word") as proxy,
        TestProxy(refusal=403) as refusing,
        TestProxy(refusal=502) as failing,
    ):
        urls = [site.url("a.test", path) for path in ("/", "/a", "/b", "/c")]
        through = [
            proxy.url("user:pass%20word"),
            proxy.url("user:wrong"),
            refusing.url(),
            failing.url(),
        ]
        crawl = proxied(tmp_path, *zip(urls, through, strict=True)).run()
    items = got(crawl)
    target = f"a.test:{site.port}"
    assert (items[urls[0]]["status"], items[urls[0]]["address"]) == (200, "None")
    assert proxy.passed[0] == Passed("CONNECT", target, BASIC)
    assert [items[url]["error"] for url in urls[1:]] == [
        f"proxy {proxy.url()} refuses the credentials (status 407)",
        f"proxy {refusing.url()} refuses to connect to {target} (status 403 for CONNECT)",
        f"proxy {failing.url()} does not reach {target} (status 502 for CONNECT)",
    ]
    assert site.asked == ["/robots.txt", "/"]
    assert not any(b"Proxy-Authorization" in sent for _, sent in site.requests)
    records = Records.of(tmp_path / "job" / "warc").of_kind("request", "response")
    response, request = records.about(urls[0])
    assert "WARC-IP-Address" not in response
    assert response.all("WARC-Protocol")[1].startswith("tls/")
    assert request.block == dict(site.requests)["/"]
    assert len(records) == 4


def test_socks5_proxies_carry_http_and_https(tmp_path: Path) -> None:
    with (
        RawWeb(ANSWERS) as site,
        RawWeb(ANSWERS, certificate()) as secure,
        TestProxy("user:pass word") as proxy,
        TestProxy() as open_one,
        TestProxy(refusal=2) as refusing,
        TestProxy(refusal=4) as failing,
    ):
        login = proxy.url("user:pass%20word", "socks5")
        wrong, none = proxy.url("user:wrong", "socks5h"), proxy.url(scheme="socks5")
        pairs = [
            (site.url("a.test"), login),
            (secure.url("a.test"), login),
            (site.url("127.0.0.1", "/a"), open_one.url(scheme="socks5h")),
            (site.url("a.test", "/b"), wrong),
            (site.url("a.test", "/c"), none),
            (site.url("a.test", "/d"), refusing.url(scheme="socks5")),
            (site.url("b.test", "/e"), failing.url(scheme="socks5")),
        ]
        crawl = proxied(tmp_path, *pairs, RETRY_TIMES=0).run()
    items = got(crawl)
    target = f"a.test port {site.port}"
    assert [items[url].get("status") for url, _ in pairs[:3]] == [200, 200, 200]
    assert [items[url]["error"] for url, _ in pairs[3:]] == [
        f"proxy {proxy.url(scheme='socks5h')} refuses the credentials",
        f"proxy {none} demands other credentials",
        f"proxy {pairs[5][1]} refuses to connect to {target}: not allowed by its rules",
        f"proxy {pairs[6][1]} does not reach b.test port {site.port}: host unreachable",
    ]
    assert sorted(proxy.passed, key=lambda each: each.target) == [
        Passed("SOCKS5", f"a.test:{port}", "user:pass word")
        for port in sorted((site.port, secure.port))
    ]
    assert open_one.passed == [Passed("SOCKS5", f"127.0.0.1:{site.port}")]
    records = Records.of(tmp_path / "job" / "warc").of_kind("response", "revisit")
    assert not any("WARC-IP-Address" in records.about(url)[0] for url, _ in pairs[:3])


def test_failures_of_proxies_do_not_count_against_hosts(tmp_path: Path) -> None:
    """A host is not deferred, and the log names the proxy without its credentials."""
    with RawWeb(ANSWERS) as site, TestProxy() as gone:
        dead = gone.url()
    with RawWeb(ANSWERS) as site:
        bad = ["ftp://user:secret@p.test:21", "http://p.test", "p.test", "https://p.test:443"]
        pairs = [(site.url("a.test", f"/bad/{number}"), url) for number, url in enumerate(bad)]
        pairs += [(site.url("a.test", f"/dead/{number}"), dead) for number in range(8)]
        crawl = proxied(tmp_path, *pairs, (site.url("a.test"), "")).run()
    items = got(crawl)
    known = "which is not one of http, socks5, socks5h"
    assert [items[url]["error"] for url, _ in pairs[:4]] == [
        f"proxy 'ftp://p.test:21' has the scheme ftp, {known}",
        *[
            f"proxy 'http://{name}' has no host or no port: write http://HOST:PORT"
            for name in ("p.test", "p.test")
        ],
        f"proxy 'https://p.test:443' has the scheme https, {known}",
    ]
    assert all(dead in items[url]["error"] for url, _ in pairs[4:])
    assert items[site.url("a.test")]["status"] == 200
    assert crawl.stats["krowl/frontier/dropped_count/proxy_url"] == 4
    assert crawl.stats["krowl/frontier/dropped_count/proxy"] == 8
    assert crawl.stats["retry/count"] == 8
    assert "krowl/politeness/parked_count" not in crawl.stats
    assert "WARNING: Fetch given up: " in crawl.log
    assert "secret" not in crawl.log
