"""The page and JSON over HTTP: what strangers wrote is text, and clients are limited."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import time
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from krowlspider.job.monitoring.access import HostNames
from krowlspider.job.monitoring.endpoint import Endpoint
from krowlspider.search.formats import Captures
from krowlspider.search.route import ANSWERS_MAX, WAITING_MAX, SearchRoute
from tests.cdx.test_route import said
from tests.search.indexes import Page, index

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LONG = 60.0
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
PAGES = [
    Page(f"https://evil.test/{EVIL}", f"Kiwi {EVIL}", f"kiwi {EVIL}", lang='"><script>', mime=EVIL),
    Page("javascript:alert(1)//kiwi", "Kiwi of another scheme", "kiwi"),
    Page("data:text/html,<script>alert(1)</script>", "Kiwi as data", "kiwi"),
    Page("gemini://cap.test/kiwi", "Kiwi on Gemini", "kiwi"),
    Page("https://a.test/?a=1&b=2", "Kiwi \u202egnp.exe", "kiwi"),
    *(Page(f"https://many.test/{n}", f"Banana {n}", "banana") for n in range(35)),
]


class Seen(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, content: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str]:
        return [about["href"] or "" for tag, about in self.elements if tag == "a"]


@asynccontextmanager
async def serving(folder: Path, **given: object) -> AsyncIterator[int]:
    """Serve on the loop of the test; yield the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    captures = given.pop("captures", Captures())
    route = SearchRoute(folder, captures, **given)  # type: ignore[arg-type]
    endpoint = Endpoint(route.routes(), LONG, lambda _: None, HostNames(), 64)
    await endpoint.listen(listening)
    try:
        async with asyncio.timeout(LONG):
            yield listening.getsockname()[1]
    finally:
        endpoint.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index(tmp_path_factory.mktemp("index"), PAGES)


async def seen(port: int, target: str, status: int = 200) -> Seen:
    head, body = await said(port, target)
    assert head.startswith(f"HTTP/1.1 {status}")
    return Seen(body.decode())


@pytest.mark.parametrize(
    "target",
    [
        "/search?q=kiwi",
        "/search?q=kiwi&explain=1",
        f"/search?q={quote(EVIL)}",
        f"/search?q=kiwi&host={quote(EVIL)}&lang={quote(EVIL)}",
        f"/search?q=kiwi+{quote('size:' + EVIL)}",
        f"/search?q=kiwi&page={quote(EVIL)}",
        "/search?q=%00%ff%fe%ed%a0%80",
    ],
)
async def test_page_has_no_script_whatever_is_found_or_asked(folder: Path, target: str):
    async with serving(folder) as port:
        head, body = await said(port, target)
    page = Seen(body.decode())
    assert {tag for tag, _ in page.elements} <= {
        *("html", "head", "meta", "title", "link", "body", "a", "header", "form", "h1", "div"),
        *("input", "button", "details", "summary", "label", "dl", "dt", "dd", "code", "main"),
        *("p", "ol", "li", "h2", "bdi", "b", "mark", "span", "nav", "table", "tbody", "tr", "td"),
    }
    for _, about in page.elements:
        assert not {name for name in about if name.startswith("on") or name in ("src", "style")}
    assert all(re.match(r"(https?|gemini)://|/|#results$", href) for href in page.links)
    policy = re.search(r"Content-Security-Policy: (.*)\r", head)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'self'; form-action 'self'")
    assert "script" not in policy[1]
    assert "X-Content-Type-Options: nosniff" in head


async def test_only_urls_of_known_schemes_are_links(folder: Path):
    async with serving(folder) as port:
        page = await seen(port, "/search?q=kiwi")
    outside = [href for href in page.links if not href.startswith(("/", "#"))]
    assert sorted(outside) == sorted(
        [f"https://evil.test/{EVIL}", "gemini://cap.test/kiwi", "https://a.test/?a=1&b=2"]
    )
    assert "Kiwi of another scheme" in page.text
    assert "javascript:alert(1)//kiwi" in page.text
    rels = [about["rel"] for _, about in page.elements if about.get("href") in outside]
    assert rels == ["noreferrer noopener nofollow"] * 3
    assert "\u202e" not in page.text


async def test_form_keeps_what_was_asked(folder: Path):
    async with serving(folder) as port:
        page = await seen(port, f"/search?q={quote(EVIL)}&lang=en")
    values = {
        about.get("name"): about.get("value") for tag, about in page.elements if tag == "input"
    }
    assert values["q"] == EVIL
    assert values["lang"] == "en"
    assert ("details", {"open": None}) in page.elements


async def test_pages_of_results(folder: Path):
    async with serving(folder) as port:
        first = await seen(port, "/search?q=banana")
        last = await seen(port, "/search?q=banana&page=4")
        api = json.loads((await said(port, "/search.json?q=banana&limit=100"))[1])
    assert "/search?q=banana&page=4" in first.links
    assert sum(tag == "li" for tag, _ in first.elements) == 10
    assert sum(tag == "li" for tag, _ in last.elements) == 5
    assert ("ol", {"start": "31"}) in last.elements
    assert any(about.get("aria-current") == "page" for _, about in last.elements)
    assert "35 pages found, of 40" in first.text
    assert len({each["url"] for each in api["results"]}) == 35


async def test_page_after_the_last_one_leads_back(folder: Path):
    async with serving(folder) as port:
        page = await seen(port, "/search?q=banana&page=5")
    assert "There is no page 5 of these results" in page.text
    assert "/search?q=banana" in page.links
    assert "Nothing was found" not in page.text


async def test_empty_query_has_a_box_and_help(folder: Path):
    async with serving(folder) as port:
        page = await seen(port, "/search")
    assert "40 pages in the index" in page.text
    assert "intitle:robots" in page.text
    assert any("autofocus" in about for _, about in page.elements)


async def test_meant_query_keeps_the_filters(folder: Path):
    async with serving(folder) as port:
        page = await seen(port, "/search?q=bananna&lang=en")
    assert "/search?q=banana&lang=en" in page.links


async def test_json_is_for_programs(folder: Path):
    async with serving(folder) as port:
        head, body = await said(port, "/search.json?q=kiwi+host:cap.test&explain=1")
        found = json.loads(body)
        [result] = found["results"]
        assert (result["url"], result["title"]) == ("gemini://cap.test/kiwi", "Kiwi on Gemini")
        assert result["fetched"] == "2026-11-05T12:00:00Z"
        assert [part["name"] for part in result["parts"]][:2] == ["text", "title"]
        assert "application/json" in head


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/search.json", "give ?q="),
        ("/search.json?q=kiwi&page=0", "page=0: give 1 to 100"),
        ("/search.json?q=kiwi&limit=101", "limit=101: give 1 to 100"),
        ("/search.json?q=kiwi&lang=deutsch", "lang:deutsch is no language"),
        ("/search.json?q=-kiwi", "give ?q="),
    ],
)
async def test_wrong_parameter_is_named(folder: Path, target: str, says: str):
    async with serving(folder) as port:
        head, body = await said(port, target)
    assert head.startswith("HTTP/1.1 400")
    assert json.loads(body)["error"].startswith(says)


async def test_removed_index_is_told_and_found_again(tmp_path: Path):
    folder = index(tmp_path / "index", PAGES)
    async with serving(folder) as port:
        await seen(port, "/search?q=kiwi")
        shutil.rmtree(folder)
        assert "there is no index" in (await seen(port, "/search?q=kiwi", 503)).text
        index(folder, [Page("https://new.test/", "Plum", "plum")])
        assert "https://new.test/" in (await seen(port, "/search?q=plum")).links


async def test_missing_index_is_told_and_found_later(tmp_path: Path):
    async with serving(tmp_path / "index") as port:
        page = await seen(port, "/search?q=kiwi", 503)
        assert "there is no index" in page.text
        index(tmp_path / "index", PAGES)
        assert "Kiwi on Gemini" in (await seen(port, "/search?q=kiwi")).text


async def test_too_many_queries_are_refused(folder: Path):
    async with serving(folder) as port:
        asked = [said(port, "/search.json?q=kiwi+OR+banana") for _ in range(60)]
        heads = [head.split()[1] for head, _ in await asyncio.gather(*asked)]
    assert {*heads} <= {"200", "503"}
    assert heads.count("200") >= ANSWERS_MAX + WAITING_MAX - 1


async def test_share_of_a_core_makes_queries_wait_and_ends_them(folder: Path):
    """With next to no time of the processor, later queries are told that they took too long."""
    begun = time.monotonic()
    async with serving(folder, share=1e-9, seconds=0.5) as port:
        # Some short ones are answered at once.
        for _ in range(200):
            head = (await said(port, "/search.json?q=kiwi"))[0]
            if "503" in head.split("\r\n")[0]:
                break
        assert "Retry-After: 2" in head
        # Those that wait keep their places: there is none for all of these.
        asked = [said(port, "/search.json?q=kiwi") for _ in range(2 * (ANSWERS_MAX + WAITING_MAX))]
        bodies = [body for _, body in await asyncio.gather(*asked)]
        assert any(b"too many queries" in body for body in bodies)
    assert time.monotonic() - begun < 30


async def test_captures_are_linked_where_there_are_some(tmp_path: Path):
    from krowlspider.search.schema import CapturePlace  # noqa: PLC0415

    page = Page(
        "https://a.test/x?y=1&z", "Kiwi", "kiwi", place=CapturePlace(0, "gone.warc.gz", 0, 1)
    )
    index(tmp_path, [page], [tmp_path])
    captures = Captures("http://127.0.0.1:8080/crawl/", has_cdx=True)
    async with serving(tmp_path, captures=captures) as port:
        found = (await seen(port, "/search?q=kiwi")).links
        head, body = await said(port, "/search/text?url=https%3A%2F%2Fa.test%2Fx%3Fy%3D1%26z")
    assert "http://127.0.0.1:8080/crawl/20261105120000/https://a.test/x?y=1&z" in found
    url = "https%3A%2F%2Fa.test%2Fx%3Fy%3D1%26z"
    assert f"/cdx?url={url}&closest=20261105120000&limit=20" in found
    assert f"/search/text?url={url}" in found
    assert head.startswith("HTTP/1.1 404")
    assert b"not in the index, or its WARC file is gone" in body
