"""The seen set in whole crawls: its stats, and its marks on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.store.schema import JOINED, KEY_SIZE, SEEN
from krowlspider.frontier.store.store import LevelStore
from tests.commands.test_frontier import frontier, made
from tests.support.crawls import crawl_of, page, pages
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

PATHS = ("a", "b", "c", "d")
SITE = [
    page("/", "".join(f"<a href=/{path}>x</a>" for path in PATHS)),
    page("^/[a-d]$", "<a href=/>home</a>"),
]
VERIFY = {"KROWL_SEEN_VERIFY": True}


def marks(jobdir: Path) -> tuple[bool, list[int]]:
    """Return whether a frontier may join marks, and how many identities each mark stands for."""
    store = LevelStore(jobdir / "frontier")
    try:
        return store.get(JOINED) is not None, [
            1 + len(others) // KEY_SIZE for _, others in store.items(SEEN)
        ]
    finally:
        store.close()


def test_marks_are_joined_and_stats_describe_the_filter(
    tmp_path: Path,
) -> None:
    """The stats have its fill, and the number of URLs it may have lost."""
    with SimulatedWeb(spec=SITE) as web:
        crawl = crawl_of(web, tmp_path, [web.url("a.test")]).run()
    stats = {name: value for name, value in crawl.stats.items() if name.startswith("krowl/seen/")}
    assert stats.pop("krowl/seen/expected_losses") == pytest.approx(5e-6)
    assert stats == {
        "krowl/seen/keys": 5,
        "krowl/seen/layers": 1,
        "krowl/seen/fill": 0.0,
        "krowl/seen/false_positives_count": 0,
    }
    joined, each = marks(crawl.jobdir)
    assert joined
    # The seed, and the links of its page.
    assert sorted(each) == [1, 4]


def test_verified_filter_loses_nothing_and_counts_refuted(
    tmp_path: Path,
) -> None:
    """All marks are removed from the disk, so that each positive of the filter is false."""
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url("a.test")]
        first = crawl_of(web, tmp_path, seeds, settings=VERIFY).run()
        assert marks(first.jobdir) == (False, [1] * 5)
        assert first.stats["krowl/seen/expected_losses"] == 0
        assert first.stats["krowl/seen/false_positives_count"] == 0
        store = LevelStore(first.jobdir / "frontier")
        batch = store.batch(sync=True)
        for key in store.keys(SEEN):
            batch.delete(key)
        batch.write()
        store.close()
        again = crawl_of(web, tmp_path, seeds, settings=VERIFY).run()
        assert again.stats["krowl/seen/false_positives_count"] == 5
        assert again.stats["krowl/seen/expected_losses"] == 0
        assert again.stats["krowl/frontier/done_count"] == 5
        assert len(pages(web.log())) == 10


@pytest.mark.parametrize(("verify", "each"), [(0, [3]), (1, [1, 1, 1])])
def test_an_import_marks_as_the_setting_says(tmp_path: Path, verify: int, each: list[int]) -> None:
    jobdir = made(tmp_path / "job")
    lines = "".join(f'{{"url": "http://a.test/{path}"}}\n' for path in "abc")
    frontier(jobdir, "-s", f"KROWL_SEEN_VERIFY={verify}", "--import", "-", given=lines)
    assert marks(jobdir) == (not verify, each)
