"""WARC files that are gone from a crawl's folder: the next start names them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from krowlspider.archive.uploads import NOTES
from tests.support.crawls import crawl_of, page
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

SAID = "only the index is: "
SPEC = [page("/robots.txt", "", status=404), page("^/", "x")]


def test_the_next_start_names_a_missing_file(tmp_path: Path) -> None:
    """Unless it was uploaded. A first start, and one with all files, name none."""
    with SimulatedWeb(spec=SPEC) as web:
        seeds = [web.url("a.test")]
        for _ in range(2):
            crawl = crawl_of(web, tmp_path, seeds).run()
            assert SAID not in crawl.log
        (file,) = (crawl.jobdir / "warc").glob("*.warc.gz")
        file.unlink()
        crawl = crawl_of(web, tmp_path, seeds).run()
        (warning,) = [line for line in crawl.log.splitlines() if SAID in line]
        assert f"1 WARC file is missing in {file.parent}" in warning
        assert f"{SAID}{file.name}. Copy back" in warning
        note = {"name": file.name, "size": 1, "mtime_ns": 1, "etag": "x", "url": "s3://b/x"}
        (file.parent / NOTES).write_text(json.dumps({**note, "endpoint": None}))
        assert SAID not in crawl_of(web, tmp_path, seeds).run().log


def test_of_many_missing_files_some_are_named(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")]).run()
        for number in range(7):
            (crawl.jobdir / "warc" / f"{number}.cdxj").touch()
        crawl = crawl_of(web, tmp_path, [web.url("a.test")]).run()
    assert "7 WARC files are missing" in crawl.log
    assert "4.warc.gz and 2 more. Copy back" in crawl.log
