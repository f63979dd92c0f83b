"""Pages in a real Chromium: what they ask for is a request of the crawl, and goes nowhere else."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.browser.chromium import ADDRESS, DELAY, browsing
from tests.mockweb import MockWeb
from tests.replay.test_replay import by_files, looked_at, picture, wayback
from tests.support.archived import Records, valid_records
from tests.support.crawling import frontier_view
from tests.support.crawls import page

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mockweb.log import Entry
    from tests.support.crawling import Crawl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RED, GREEN = (200, 30, 60), (20, 160, 80)

STYLE = """
body { background: rgb(250, 240, 215); margin: 0; font: 16px sans-serif }
#head { background: rgb(200, 30, 60); height: 60px }
img { width: 60px; height: 30px }
#foot { position: absolute; top: 500px; height: 60px; width: 60px }
"""
PICTURES = [f"/p{number}.png" for number in range(24)]
FRONT = (
    '<!DOCTYPE html><html><head><meta charset="utf-8"><title>Front</title>'
    '<link rel="stylesheet" href="https://files.test:{tls_port}/style.css">'
    '<link rel="dns-prefetch" href="//prefetched.test">'
    '<link rel="prefetch" href="/prefetched">'
    '<script src="https://files.test:{tls_port}/app.js" defer></script></head>'
    '<body><div id="head"></div>'
    + "".join(f'<img id="i{number}" src="{path}">' for number, path in enumerate(PICTURES))
    + '<img src="/moved.png"><iframe id="frame" src="/frame" width="100" height="50"></iframe>'
    '<img src="/secret.png">'
    '<p id="list"></p><p id="log"></p><div id="foot"></div></body></html>'
)
# What a script of a page may try. Each line of the log is one that worked.
APP = """
const log = (text) => { document.getElementById("log").textContent += text + "; "; };
const read = async (url, how) => {
    try { const got = await fetch(url, how); if (got.ok) log(url); } catch {}
};
(async () => {
    const items = await (await fetch("/items.json")).json();
    document.getElementById("list").innerHTML =
        items.map((item) => `<a class="more" href="/item/${item}">${item} été</a>`).join(" ");
    document.getElementById("foot").style.background = "rgb(20, 160, 80)";
    await read("http://2130706433:{port}/open");
    for (const host of ["127.0.0.1:{tls_port}", "169.254.169.254", "10.0.0.1", "[::1]:{tls_port}",
            "localhost:{tls_port}", "rebound.test:{tls_port}"])
        await read("https://" + host + "/open");
    await read("/private");
    await read("/post", {method: "POST", body: "x"});
    navigator.sendBeacon("/beacon", "x");
    await new Promise((resolve) => {
        new WebSocket("ws://127.0.0.1:{port}/socket").onerror = resolve;
    });
    await new Promise((resolve) => {
        new WebSocket("wss://" + location.host + "/socket").onerror = resolve;
    });
    try { await navigator.serviceWorker.register("/worker.js"); } catch {}
    const peer = new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:UDP"}]});
    peer.createDataChannel("x");
    await peer.setLocalDescription(await peer.createOffer());
    new WebTransport("https://127.0.0.1:UDP/").ready.then(() => log("datagrams"), () => {});
    await new Promise((resolve) => setTimeout(resolve, 300));
    log("end");
})();
"""
CORS = {"Access-Control-Allow-Origin": "*"}
SCRIPT = {"Content-Type": "text/javascript", "Cache-Control": "max-age=60", **CORS}
ITEM = (
    "<html><head><title>Item</title>"
    '<link rel="stylesheet" href="https://files.test:{tls_port}/style.css"></head>'
    "<body><script>document.body.append('made of ' + location.pathname)</script></body></html>"
)


def site(udp: int) -> list[dict[str, Any]]:
    return [
        page("/robots.txt", "User-agent: *\nDisallow: /secret"),
        page("/", FRONT, host="^shop.test"),
        page("/frame", "<p style='background: rgb(20, 160, 80)'>framed", host="^shop.test"),
        page("^/item/", ITEM, host="^shop.test"),
        page("/late", "late", host="^shop.test"),
        {"path": "/items.json", "body": '["one", "two"]', "host": "^shop.test"},
        {
            "path": "/private",
            "status": 401,
            "headers": {"WWW-Authenticate": 'Basic realm="x"'},
            "body": "no",
        },
        {
            "path": "^/(p[0-9]+|target).png$",
            "body_base64": picture(),
            "headers": {"Content-Type": "image/png"},
        },
        {"path": "/moved.png", "redirect": "/target.png"},
        {"path": "/style.css", "body": STYLE, "headers": {"Content-Type": "text/css", **CORS}},
        {"path": "/app.js", "body": APP.replace("UDP", str(udp)), "headers": SCRIPT},
        page("/open", "open", headers=CORS),
        page("^/", "reached"),
    ]


@dataclass
class Browsed:
    """A crawl of a page that has opened it in Chromium, whose web is gone."""

    folder: Path
    crawl: Crawl
    root: str
    log: list[Entry]
    records: Records
    datagrams: int

    @property
    def front(self) -> dict[str, Any]:
        (found,) = [item for item in self.crawl.items if item["url"] == self.root]
        return found


@pytest.fixture(scope="module")
def browsed(with_library: None, tmp_path_factory: pytest.TempPathFactory) -> Browsed:
    folder = tmp_path_factory.mktemp("browsed")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        with MockWeb(spec=site(udp.getsockname()[1]), tls=True) as web:
            root = web.url("shop.test", tls=True)
            settings = {"KROWL_WARC_ALSO": "metadata"}
            crawl = browsing(
                folder, root, settings, picture=str(folder / "live.png"), stays="1"
            ).run()
        datagrams = 0
        with suppress(BlockingIOError):
            while udp.recv(2048):
                datagrams += 1
    records = valid_records(folder / "job" / "warc")
    return Browsed(folder, crawl, root, web.log(), records, datagrams)


def test_each_subrequest_is_fetched_once_and_archived(browsed: Browsed) -> None:
    """The files of both sites, by what the server has seen."""
    shop = ["/robots.txt", "/", *PICTURES, "/moved.png", "/target.png", "/frame", "/items.json"]
    shop += ["/private", "/late", "/item/one", "/item/two"]
    wanted = Counter({f"{browsed.root[:-1]}{path}": 1 for path in shop})
    files = browsed.root.replace("shop", "files")
    wanted.update(f"{files}{path}" for path in ("robots.txt", "style.css", "app.js"))
    assert Counter(entry.url for entry in browsed.log) == wanted
    answers = browsed.records.of_kind("response", "revisit")
    assert Counter(record.url for record in answers) == wanted
    assert Counter(record.url for record in browsed.records.of_kind("request")) == wanted
    via = {
        record.url: dict(record.block_fields)
        for record in browsed.records.of_kind("metadata")
        if "WARC-Target-URI" in record
    }
    about = via[f"{files}style.css"]
    assert (about["via"], about["hop"]) == (browsed.root, "E")
    stats = browsed.crawl.stats
    assert stats["krowl/browser/page_count"] == 3
    # style.css of the two later pages.
    assert stats["krowl/browser/kept_count"] == 2
    assert stats["krowl/frontier/done_count"] == 3


def test_subrequests_keep_the_delay_of_their_host(browsed: Browsed) -> None:
    for host in {entry.host for entry in browsed.log}:
        log = [entry for entry in browsed.log if entry.host == host]
        assert min(b.start - a.end for a, b in pairwise(log)) > DELAY - 0.01


def test_a_page_reaches_nothing_that_is_not_public(browsed: Browsed) -> None:
    """By address, by number, by a name, by WebSocket, by datagram; and nothing is changed."""
    assert {entry.address for entry in browsed.log} == {ADDRESS}
    assert {entry.method for entry in browsed.log} == {"GET"}
    assert browsed.datagrams == 0
    assert '<p id="log">end; </p>' in browsed.front["html"]
    stats = browsed.crawl.stats
    assert stats["krowl/browser/refused_count/method"] == 2
    assert stats["krowl/browser/refused_count/websocket"] == 2
    # Seven hosts, and what robots.txt disallows.
    assert stats["krowl/browser/failed_count/refused"] == 8
    assert frontier_view(browsed.crawl.jobdir)["dropped"]["robots"] == 1


def test_no_request_has_a_secret_or_another_agent(browsed: Browsed) -> None:
    """The credentials of the proxy stay there, whoever asks for some."""
    requests = browsed.records.of_kind("request")
    for request in requests:
        head = request.block.decode().lower()
        assert "authorization" not in head
        assert "chrome" not in head
        assert head.count("user-agent: krowlspider/") == 1


def test_what_the_page_has_become_is_archived_and_read(browsed: Browsed) -> None:
    """Its links are those that the script made."""
    dom = browsed.records.about(f"urn:krowlspider:dom:{browsed.root}").only
    response = browsed.records.about(browsed.root).of_kind("response").only
    assert dom.kind == "resource"
    assert dom["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert dom["Content-Type"] == "text/html"
    assert dom.block.decode() == browsed.front["html"]
    assert "one été</a>" in browsed.front["html"]
    assert b"/item/one" not in response.block
    assert browsed.front["flags"] == ["playwright"]
    items = [item for item in browsed.crawl.items if "/item/" in item["url"]]
    assert sorted(urlsplit(item["url"]).path for item in items) == ["/item/one", "/item/two"]
    assert all("made of /item/" in item["html"] for item in items)
    # The callback had the page, and what it asked for went the same way.
    assert browsed.front["late"] == "late"


def test_a_replay_without_network_looks_as_live(browsed: Browsed, tmp_path: Path) -> None:
    """pywb replays the page in another Chromium, whose scripts run on what was archived."""
    crawled: Any = browsed.crawl
    by_files(crawled, tmp_path)
    with wayback(tmp_path) as address:
        (seen,) = looked_at(f"{address}/crawl/{browsed.root}", tmp_path)
    live = Image.open(browsed.folder / "live.png").convert("RGB")
    spots = {
        name: live.getpixel((int(x), int(y)))
        for name, (x, y) in browsed.front["middles"].items()
        if name not in {"list", "log"}
    }
    assert (spots["head"], spots["foot"]) == (RED, GREEN)
    assert {name: tuple(spot) for name, spot in seen["spots"].items() if name in spots} == spots
    assert seen["title"] == "Front"
    assert "one été" in seen["text"]
    assert seen["elsewhere"] == []
