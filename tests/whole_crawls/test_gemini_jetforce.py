"""A server of others is crawled: jetforce, over a small tree of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.gemini.jetforce import Jetforce
from tests.support.crawling import Crawl, scrapy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_files_that_jetforce_serves_are_crawled(tmp_path: Path):
    """With its redirects of folders, its list of files, its media types and its robots.txt."""
    root = tmp_path / "root"
    (root / "log").mkdir(parents=True)
    (root / "files").mkdir()
    (root / "private").mkdir()
    (root / "robots.txt").write_text("User-agent: archiver\nDisallow: /private/\n")
    (root / "index.gmi").write_text(
        "# Home\n=> log Log\n=> files/ Files\n=> /private/x.gmi Private\n=> none.gmi\n"
    )
    (root / "log" / "index.gmi").write_text("# Log\n=> 1.gmi One\n=> ../files/text.txt Text\n")
    (root / "log" / "1.gmi").write_text("# One\nWords of the first entry.\n")
    (root / "files" / "text.txt").write_text("=> /not-a-link\n")
    (root / "files" / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (root / "private" / "x.gmi").write_text("# Private\n")
    with Jetforce(root, tmp_path) as server:
        crawl = Crawl(
            tmp_path / "job",
            arguments={"seeds": server.url()},
            settings={"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": "0.05"},
        ).run()
    base = server.url("")
    found = {item["url"].removeprefix(base): item["content_type"] for item in crawl.items}
    assert found.keys() >= {"/", "/log/", "/log/1.gmi", "/files/", "/files/text.txt"}
    assert not any("private" in path or "not-a-link" in path for path in found)
    assert found["/log/1.gmi"].startswith("text/gemini")
    assert found["/files/text.txt"].startswith("text/plain")
    entry = server.url("/log/1.gmi")
    body = scrapy("warc", "cat", "--payload", entry, tmp_path / "job").stdout
    assert body == (root / "log" / "1.gmi").read_bytes()
    scrapy("warc", "check", tmp_path / "job")
