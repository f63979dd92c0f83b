"""Large bodies that are in flight when the crawl is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.archived import Records
from tests.support.crawling import Crawl, write_seeds
from tests.support.large_bodies import LargeWeb, body, framed

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 2


@pytest.mark.slow
def test_killed_crawl_fetches_its_large_bodies_again(tmp_path: Path) -> None:
    """Their files go with the process, and each body is archived whole by the next one."""
    crawls: list[Crawl] = []

    def in_flight() -> None:
        if len(crawls) == 1:
            crawls[0].process.kill()

    with LargeWeb(COUNT, lambda: None, in_flight) as web:
        seeds = [f"http://h{number}.test:{web.port}/{number}" for number in range(COUNT)]
        for _ in range(2):
            crawl = Crawl(
                tmp_path / "job",
                arguments={"seeds": write_seeds(tmp_path / "seeds.txt", seeds)},
                settings={"KROWL_SKIP_EXTENSIONS": ""},
                feed=False,
            ).start()
            crawls.append(crawl)
            crawl.wait(code=-9 if len(crawls) == 1 else 0)
            if len(crawls) == 1:
                left = [path for path in (tmp_path / "job" / "warc").iterdir() if path.is_file()]
                assert sum(path.stat().st_size for path in left) < len(body(0))
    assert crawls[1].stats["krowl/frontier/done_count"] == COUNT
    responses = Records.of(tmp_path / "job" / "warc").of_kind("response")
    pages = {each.url: each.block for each in responses if not each.url.endswith("/robots.txt")}
    assert pages == {url: framed(number) for number, url in enumerate(seeds)}
