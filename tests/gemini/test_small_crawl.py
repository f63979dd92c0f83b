"""What the download handler of Gemini promises, in one small crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.gemini.answers import page
from tests.gemini.capsules import Capsules, Paths
from tests.gemini.visits import hasty, unasked
from tests.support.crawling import Crawl

if TYPE_CHECKING:
    from pathlib import Path

DELAY = 0.25


def test_a_server_has_its_delay_and_may_cut_off(tmp_path: Path):
    """An answer without close_notify is a page at the first try, and counted."""
    cut = page("# Cut\n")
    web = {"/": page("=> /cut\n"), "/cut": type(cut)(cut.header, cut.body, close="cut")}
    settings = {"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": str(DELAY)}
    with Capsules(Paths(web)) as capsules:
        seed = capsules.url()
        crawl = Crawl(tmp_path / "job", arguments={"seeds": seed}, settings=settings).run()
        visits = capsules.visits
    assert [each.url.removeprefix(seed) for each in visits] == ["robots.txt", "", "cut"]
    assert hasty(visits, DELAY) == unasked(visits) == []
    assert {item["url"] for item in crawl.items} == {seed, f"{seed}cut"}
    assert crawl.stats["krowl/fetch/truncated_count"] == 1
