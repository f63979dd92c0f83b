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
