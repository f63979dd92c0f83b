"""The live line of several processes: their sums, the rate of the last seconds, who is paused."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.job.limits import CrawlLimits
from krowlspider.node.figures import Figures
from krowlspider.node.processes import Relay
from krowlspider.node.tree import Tree, Words
from tests.support.settings import project_settings

if TYPE_CHECKING:
    from pathlib import Path

STATUS = {"queued": 40, "deferred": 0, "hosts": 4, "due": 1, "in_flight": 1, "archive_mb": 1}


def status(
    time: float, counters: dict[str, int], before: dict[str, int] | None = None, paused: str = ""
) -> dict[str, object]:
    """The status that a process has written."""
    counts = {"counters": counters, "counters_before": before or {}}
    return {**STATUS, "time": time, "paused": paused, **counts}


def test_live_line_has_the_sums_and_the_rate_of_the_last_seconds(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    figures = Figures(tree, ["p1", "p2"])

    def line(seconds: float, done: int, *paused: str) -> str:
        for name, reason in zip(("p1", "p2"), paused or ("", ""), strict=True):
            folder = tree.folder(name)
            folder.path.mkdir(exist_ok=True)
            folder.write_status(status(seconds, {"done": done}, paused=reason))
        return figures.live_line(2, seconds, CrawlLimits(pages=1000))

    assert line(10, 50) == (
        "100 of 1,000 pages, 1 min 30 s left, 2 processes | 0.0 pages/s | 80 URLs queued on 8 hosts"
        " | 2 in flight | WARC 2.0 MB"
    )
    assert "| 40.0 pages/s |" in line(11, 70)
    assert line(12, 70, "", "paused: no host answers").endswith("| p2 paused: no host answers")
    assert line(13, 70, *["paused: no room"] * 2).endswith("| paused: no room")


def test_figures_neither_fall_nor_double_when_a_process_dies(tmp_path: Path) -> None:
    """Those of earlier starts do not count. What was not committed at the death is done again."""
    tree = Tree(tmp_path)
    figures = Figures(tree, ["p1", "p2"])
    seen: list[tuple[int, int, float, int]] = []

    def write(name: str, *about: Any) -> None:
        folder = tree.folder(name)
        folder.path.mkdir(exist_ok=True)
        folder.write_status(status(*about))
        look()

    def look() -> None:
        total = figures.total()
        seen.append((total["done"], total["dropped"], total["archive_mb"], total["queued"]))

    write("p1", 1, {}, {"done": 100})
    write("p2", 2, {"done": 7, "done/redirect": 1})
    write("p1", 3, {"done": 5, "done/sitemap": 2, "dropped/robots": 1}, {"done": 100})
    figures.died("p1")
    look()
    (tree.folder("p1").path / "status.json").unlink()
    look()
    write("p1", 9, {}, {"done": 104, "done/sitemap": 2, "dropped/robots": 1})
    write("p1", 10, {"done": 3}, {"done": 104, "done/sitemap": 2, "dropped/robots": 1})
    pages = [row[0] for row in seen]
    assert pages == [0, 7, 12, 12, 12, 12, 14]
    assert [row[1:] for row in seen][2:] == [(1, 2.0, 80)] * 2 + [(1, 1.0 + 1, 80)] + [
        (1, 3.0, 80)
    ] * 2
    assert figures.fetched() == {"page": 14, "redirect": 1, "sitemap": 2}
    assert "also fetched redirects: 1, sitemaps: 2\n" in figures.summary("finished", 1.0, {}, "")


def test_relay_shows_whole_lines() -> None:
    shown: list[str] = []

    async def relayed() -> None:
        relay = Relay(shown.append)
        for text in ("a\nb", "c\nd"):
            os.write(relay.end, text.encode())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        os.write(relay.end, b"e\nf")
        relay.close()

    asyncio.run(relayed())
    assert "".join(shown) == "a\nbc\nde\nf\n"
    assert all(text.endswith("\n") for text in shown)


@pytest.mark.parametrize(
    ("level", "is_live", "interval"),
    [("WARNING", True, "1.0"), ("WARNING", False, None), ("INFO", True, None)],
)
def test_processes_write_their_figures_often_for_a_live_line(
    tmp_path: Path, level: str, is_live: bool, interval: str | None
) -> None:
    """But not at log levels at which each of them is a line of the log."""
    words = Words("broad", {}, [], project_settings(LOG_LEVEL=level), 2)
    given = words.of("p1", tmp_path, 0, is_live=is_live)
    found = [word.partition("=")[2] for word in given if word.startswith("KROWL_STATUS_INTERVAL")]
    assert found == ([] if interval is None else [interval])
