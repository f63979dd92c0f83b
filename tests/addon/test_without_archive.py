"""A crawl with KROWL_ARCHIVE=False: as any other, but nothing is written to WARC files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawling import Crawl, frontier_view
from tests.support.crawls import AT_ONCE, anchors, crawl_of, page, pages, refused
from tests.support.settings import refusal
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

LARGE = "x" * 600_000
SITE = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret"),
    page("/", anchors("/secret", "/large", *(f"/{n}" for n in range(8)))),
    page("/large", LARGE),
    *(page(f"/{n}", f"page {n}") for n in range(8)),
]


def crawl(web: SimulatedWeb, folder: Path, **settings: Any) -> SimulatedCrawl:
    seeds = [web.url("a.test")]
    made = crawl_of(web, folder, seeds, settings={**AT_ONCE, "KROWL_ARCHIVE": False, **settings})
    assert isinstance(made, SimulatedCrawl)
    return made


@pytest.mark.parametrize("recrawl", ["off", "once"])
def test_without_archive_each_page_is_done(tmp_path: Path, recrawl: str) -> None:
    """robots.txt and large bodies are not archived either."""
    with SimulatedWeb(spec=SITE) as web:
        done = crawl(web, tmp_path, KROWL_RECRAWL=recrawl).run()
        asked = sorted(entry.path for entry in pages(web.log()))
    assert asked == sorted(["/", "/large", *(f"/{n}" for n in range(8))])
    assert frontier_view(done.jobdir)["queued"] == 0
    assert [*(done.jobdir / "warc").iterdir()] == []
    assert done.stats["krowl/archive/left_out_count"] == len(asked) + 1
    assert "Results: no archive (KROWL_ARCHIVE=False)" in done.log


def test_without_archive_a_stopped_crawl_goes_on(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        first = crawl(web, tmp_path)
        first.script = interrupted_when(lambda: len(web.log()) > 4)
        first.run()
        assert 4 < len(web.log()) < 11
        crawl(web, tmp_path).run()
        asked = [entry.path for entry in pages(web.log())]
    assert len(asked) == len({*asked}) == 10


def test_upload_without_an_archive_is_refused() -> None:
    said = refusal(KROWL_ARCHIVE=False, KROWL_WARC_UPLOAD="s3://bucket/prefix")
    assert said == "KROWL_WARC_UPLOAD is set, and KROWL_ARCHIVE is False: remove one of them"


def test_archive_alone_needs_the_commands_of_scrapy(tmp_path: Path) -> None:
    """They are those of the checkout by COMMANDS_MODULE."""
    crawl = Crawl(tmp_path / "job", settings={"ADDONS": '{"krowlspider.addon.KrowlArchive": 1}'})
    assert refused(crawl).startswith("krowlspider: KrowlArchive has no frontier")
