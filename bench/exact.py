"""Check that a crawl with the settings of the benchmark fetches each reachable page once, and no
other."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crawlers import Task, krowlspider_command
from bench.pages import Pages, Shape
from bench.process import measured
from bench.web import BenchWeb
from tests.support.crawling import write_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL = Shape(hosts=60, per_host=30)


def check(shape: Shape, scratch: Path | None = None) -> dict[str, Any]:
    """Crawl a small web of this shape from its first host to the end.

    :raises AssertionError: the pages fetched are not the reachable ones; the message lists the
        differences
    """
    shape = replace(shape, hosts=SMALL.hosts, per_host=SMALL.per_host)
    with (
        BenchWeb(shape) as web,
        tempfile.TemporaryDirectory(prefix="krowl-bench-", dir=scratch) as folder,
    ):
        seeds = web.shape.seeds(1)
        task = Task(web, write_seeds(Path(folder) / "seeds.txt", seeds), 0, Path(folder))
        measured(krowlspider_command(task), Path(folder) / "log")
        asked = web.take()
        reachable, refused = Pages(web.shape).reachable(seeds)
    difference = differences(asked["numbers"], reachable)
    assert not difference, difference
    assert not asked["strange"], f"{asked['strange']} requests for URLs that no page links to"
    return {
        "pages": len(reachable),
        "refused_by_robots": len(refused),
        "missing": asked["missing"],
        "of": web.shape.pages,
    }


def differences(fetched: Sequence[int], reachable: set[int]) -> str:
    """Describe how the pages fetched differ from the reachable ones; return "" if they do not."""
    found = set(fetched)
    kinds = {
        "not fetched": sorted(reachable - found),
        "not reachable": sorted(found - reachable),
        "fetched again": sorted(number for number in found if fetched.count(number) > 1),
    }
    return "; ".join(f"{len(who)} {what}: {who[:10]}" for what, who in kinds.items() if who)


def sentence(figures: dict[str, Any]) -> str:
    return (
        f"whole crawl of a small web of {figures['of']} pages: all {figures['pages']} that are"
        f" reachable were fetched once, {figures['missing']} of them missing; robots.txt refused"
        f" {figures['refused_by_robots']}"
    )
