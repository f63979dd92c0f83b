"""Whether a crawl in the configuration of the benchmark fetches each page that it can reach, once,
and no other."""

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
    """Crawl a small web of this kind to its end, from its first host.

    :raises AssertionError: the pages fetched are not those that are reachable; the message has the
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
    assert not asked["strange"], f"{asked['strange']} requests for what no page links to"
    return {
        "pages": len(reachable),
        "refused_by_robots": len(refused),
        "missing": asked["missing"],
        "of": web.shape.pages,
    }


def differences(fetched: Sequence[int], reachable: set[int]) -> str:
    """In what the numbers of the pages fetched differ from those that are reachable; empty when in
    nothing."""
    found = set(fetched)
    said = {
        "not fetched": sorted(reachable - found),
        "not reachable": sorted(found - reachable),
        "fetched again": sorted(number for number in found if fetched.count(number) > 1),
    }
    return "; ".join(f"{len(who)} {what}: {who[:10]}" for what, who in said.items() if who)


def sentence(figures: dict[str, Any]) -> str:
    return (
        f"whole crawl of a small web: {figures['pages']} pages fetched once, all that are reachable of {figures['of']},"
        f" {figures['missing']} of them missing; {figures['refused_by_robots']} left for robots.txt"
    )
