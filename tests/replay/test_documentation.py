"""pywb shows real sites, crawled from one seed, as they were.

The screenshots stay in the folder of the test: ``N-replayed.png`` and ``N-live.png``.
"""

from __future__ import annotations

import asyncio
import json
from io import BytesIO
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import pytest
from PIL import Image, ImageChops

from tests.replay.docsites import FOLDERS, sites
from tests.replay.test_other_crawls import captures
from tests.replay.test_replay import configure, scrapy_warc, wayback
from tests.support.browser import opened
from tests.support.crawling import Crawl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.browser import Tab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PAGES = 50
# Their scripts show pictures that nothing else names: a crawl without a browser cannot know them.
LEFT_OUT = {("sqlite.test", "/"), ("python.test", "/py-modindex.html")}
# Part of the pixels that may differ at all: text is shifted by parts of a pixel.
DIFFERENT = 0.01
WIDTH, HEIGHT = 1000, 900
LOADED = "document.readyState === 'complete' && document.URL.startsWith('http')"
BROKEN = """(async () => {
    const broken = [];
    for (const image of document.images)
        await image.decode().catch(() => broken.push(image.src));
    return broken;
})()"""
NUMBER = "document.images.length + document.styleSheets.length"
# The page alone, without pywb's frame and banner.
BARE = {"framed_replay": False, "banner_html": "empty.html"}


class Sight(NamedTuple):
    """What a browser has of a page; ``parts`` is the number of its images and style sheets."""

    picture: Image.Image
    parts: int
    broken: list[str]
    requested: set[str]
    failed: set[str]


async def look(tab: Tab, url: str) -> Sight:
    tab.requested.clear()
    tab.faults.clear()
    await tab.call("Page.navigate", url=url)
    await tab.wait(LOADED)
    broken = await tab.run(BROKEN)
    picture = await tab.png()
    entries = [json.loads(fault).get("entry", {}) for fault in tab.faults]
    # In the archive, the URL follows an address of pywb.
    failed = {"http" + entry["url"].rpartition("http")[2] for entry in entries if "url" in entry}
    return Sight(
        Image.open(BytesIO(picture)).convert("RGB"),
        await tab.run(NUMBER),
        broken,
        set(tab.requested),
        # The browser, and not the page, asks for this one.
        {url for url in failed if not url.endswith("/favicon.ico")},
    )


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return the part of the pixels that differ."""
    changed = ImageChops.difference(one, other).convert("L").point(lambda value: 255 * (value > 0))
    return changed.histogram()[255] / (WIDTH * HEIGHT)


async def compare(pages: list[str], archive: str, folder: Path) -> int:
    """Look at each page in the archive and live; return how many parts all of them have."""
    parts = 0
    async with opened("about:blank", folder / "browser") as tab:
        await tab.call("Network.enable")
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        await tab.call("Emulation.setDeviceMetricsOverride", **size)
        for number, page in enumerate(pages):
            replayed = await look(tab, f"{archive}/crawl/{page}")
            replayed.picture.save(folder / f"{number}-replayed.png")
            live = await look(tab, page)
            live.picture.save(folder / f"{number}-live.png")
            outside = [
                url for url in replayed.requested if not url.startswith((f"{archive}/", "data:"))
            ]
            assert outside == [], page
            assert (live.broken, replayed.broken) == ([], []), page
            assert (replayed.parts, replayed.failed) == (live.parts, live.failed), page
            assert difference(replayed.picture, live.picture) < DIFFERENT, (page, number)
            parts += live.parts
    return parts


def chosen(job: Path) -> list[str]:
    """Return pages of each site, as many of each as possible."""
    by_host: dict[str, list[str]] = {host: [] for host in FOLDERS}
    for url in sorted(line.url for line in captures(job) if line.mime == "text/html"):
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host in by_host and (host, parts.path) not in LEFT_OUT:
            by_host[host].append(url)
    turns = zip_longest(*by_host.values())
    return list(islice((url for turn in turns for url in turn if url is not None), PAGES))


def test_documentation_is_shown_as_it_was(tmp_path: Path) -> None:
    job = tmp_path / "job"
    settings = {"KROWL_REQUISITES": "any", "KROWL_DELAY_MIN": 0, "KROWL_DELAY_FACTOR": 0}
    with sites() as start:
        arguments = {"seeds": start, "max_depth": 2}
        Crawl(job, arguments=arguments, settings=settings, feed=False).run()
        pages = chosen(job)
        assert len(pages) == PAGES
        scrapy_warc("index", job)
        warcs = job / "warc"
        collection = {"index_paths": f"{warcs}/index.cdxj", "archive_paths": f"{warcs}/"}
        configure(tmp_path, {"collections": {"crawl": collection}, **BARE})
        (tmp_path / "templates").mkdir()
        (tmp_path / "templates" / "empty.html").touch()
        with wayback(tmp_path) as archive:
            assert asyncio.run(compare(pages, archive, tmp_path)) > 2 * PAGES
