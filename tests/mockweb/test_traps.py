"""Traps of the mock web never end, and a folder is served as a web."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.mockweb import MockWeb
from tests.mockweb.asking import HOST, body, get, status
from tests.mockweb.folder import FolderSite, folder_oracle
from tests.mockweb.reply import Reply
from tests.mockweb.traps import SESSION_PAGES, SUBDOMAINS_A_PAGE, TRAPS

if TYPE_CHECKING:
    from pathlib import Path


def trapped(name: str, target: str, host: str = "a.test", nth: int = 0) -> str:
    return TRAPS[name](host, target, nth, 80).body.decode()


def test_traps_never_end() -> None:
    assert "m=2030-12>" in trapped("calendar", "/month?m=2031-01")
    assert "m=2031-02>" in trapped("calendar", "/month?m=2031-01")
    assert "m=2032-01>" in trapped("calendar", "/month?m=2031-12")
    assert TRAPS["maze"]("a.test", "/7", 0, 80).headers[-1] == ("Location", "/8")
    assert TRAPS["hosts_maze"]("7.a.test", "/", 0, 80).headers[-1] == (
        "Location",
        "http://8.a.test:80/",
    )
    assert "href=/8>" in trapped("chain", "/7")
    hosts = set(re.findall(r"http://([^:]+)", trapped("subdomains", "/", "x.a.test")))
    assert len(hosts) == SUBDOMAINS_A_PAGE
    assert hosts.isdisjoint(re.findall(r"http://([^:]+)", trapped("subdomains", "/", hosts.pop())))
    assert len(re.findall("href", trapped("sessions", "/page0"))) == 2 * SESSION_PAGES
    assert trapped("sessions", "/page0") != trapped("sessions", "/page0", nth=1)


def test_a_rule_may_name_a_trap_and_how_long_it_takes() -> None:
    with MockWeb(spec=[{"host": "^a", "trap": "chain", "latency": 0.2}]) as web:
        assert b"href=/4>" in body(get(web, "/3", host="a.test"))
        assert status(get(web, "/3", host="b.test")) == 404
        first, _ = web.log()
        assert first.end - first.start >= 0.2
        assert first.address == HOST


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("never", 0.0), ("Sun, 06 Nov 1994 08:49:37 GMT", 37.0)]
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str, seconds: float) -> None:
    now = 784_111_740.0
    assert Reply(503, [("Retry-After", value)]).retry_after(now) == seconds
    assert Reply(503).retry_after(now) == 0.0


# --- a folder -------------------------------------------------------------------------------------

PAGES = {
    "a.html": b'<p>\xe9<a href=b.html>b</a> <A HREF="sub/c d.html?x=1#part">c</A>'
    b'<img src="x.png"><a href="https://example.org/">out</a><a href="#here">here</a>',
    "b.html": b'<base href="/sub/"><a rel="nofollow" href="lost.html">no</a>'
    b'<meta http-equiv="Refresh" content="3; URL=sub/">',
    "sub/c d.html": b"<a href='../a.html'>a</a><a href=http://[>bad</a><a href='mailto:x@y'>m</a>",
    "sub/index.html": b'<meta name="Robots" content="noindex, NoFollow"><a href="../lost.html">',
    "lost.html": b"",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in PAGES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    return tmp_path


def test_a_folder_is_served_with_its_links_between_hosts(folder: Path) -> None:
    with MockWeb(folder=folder, hosts=3) as web:
        site = FolderSite(folder, 3, web.port)
        (seed,) = web.seeds()
        assert seed == site.urls["/a.html"]
        raw = get(web, "/a.html", host=urlsplit(seed).hostname or "")
        assert b"\r\nContent-Type: text/html\r\n" in raw
        b, c = site.urls["/b.html"], site.urls["/sub/c%20d.html"]
        assert body(raw).decode("latin-1") == (
            f'<p>\xe9<a href="{b}">b</a> <A HREF="{c}#part">c</A>'
            '<img src="#ext"><a href="#ext">out</a><a href="#here">here</a>'
        )
        others = {f"127.10.0.{n}" for n in (1, 2, 3)} - {urlsplit(seed).hostname}
        assert {status(get(web, "/a.html", host=host)) for host in others} == {404}
        assert status(get(web, "/robots.txt", host="127.10.0.1")) == 404


def test_the_folder_oracle_knows_what_is_linked(folder: Path) -> None:
    urls = FolderSite(folder, 3, 8_080).urls
    linked = {url for path, url in urls.items() if path != "/lost.html"}
    assert folder_oracle(folder, 3, 8_080) == linked
    assert len({urlsplit(url).netloc for url in urls.values()}) > 1


def test_a_folder_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no "):
        FolderSite(tmp_path, 1, 80)
