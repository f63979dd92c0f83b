"""A crawl of 3,000 domains: each number means what a person thinks it means, at every limit."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawling import write_seeds
from tests.support.crawls import anchors, page
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_loop import DEAD, NO_TLS
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.crawling import Crawl

DOMAINS = 3000
ROBOTS = page("/robots.txt", "User-agent: *\nDisallow: /private\n")
LINKS = anchors(*(f"/p{number}" for number in range(12)))
# Of a hundred domains, how many are of which kind, and what becomes of such a seed.
KINDS = {
    "plain": (55, "done"),
    "secure": (3, "done"),
    "moved": (15, "done"),
    "missing": (8, "failed: status 404"),
    "slow": (4, "done"),
    "flaky": (2, "done"),
    "refusing": (6, "deferred"),
    "nameless": (3, "deferred"),
    "private": (2, "robots"),
    "broken": (2, "failed: status 500"),
}


def kind(text: str) -> str:
    return text.partition("-")[2].partition(".")[0]


NAMES = [
    f"d{number}-{kind}.{'invalid' if kind == 'nameless' else 'test'}"
    for number, kind in zip(
        range(DOMAINS),
        [kind for kind, (share, _) in KINDS.items() for _ in range(share)] * (DOMAINS // 100),
        strict=True,
    )
]
SPEC: list[dict[str, Any]] = [
    {"host": "^d[0-9]+-private", **page("/robots.txt", "User-agent: *\nDisallow: /\n")},
    ROBOTS,
    {"host": "^d[0-9]+-moved", "path": "/", "redirect": "/home", "status": 301},
    {"host": "^d[0-9]+-missing", **page("/", "gone", status=404)},
    {"host": "^d[0-9]+-slow", **page("/", LINKS, latency=7.0)},
    {"host": "^d[0-9]+-flaky", "path": "/", "status": 503, "first": 1},
    {"host": "^d[0-9]+-broken", "path": "/", "status": 500},
    page("^/(home)?$", f"<title>Home</title>{LINKS}"),
    page("^/p", "leaf"),
]
ADDRESSES = {"refusing": DEAD, "secure": "127.0.0.1"}
SETTINGS = {
    "KROWL_RESOLVE": json.dumps(
        {name: ADDRESSES[kind(name)] for name in NAMES if kind(name) in ADDRESSES}
        | {"*.test": NO_TLS}
    ),
    "KROWL_RETRY_DELAY": 30,
    "KROWL_DELAY_MIN": 0.25,
    "KROWL_SITEMAPS": 1,
    "CONCURRENT_REQUESTS": 256,
}

# Of a seed that was fetched, while its links stay queued.
LIMITED = "limited: max_pages of the crawl"
FETCHED = ("done", "failed: ")


def rows(crawl: Crawl) -> list[dict[str, str]]:
    head, *lines = (crawl.jobdir / "reports" / "seeds.tsv").read_text().splitlines()
    made = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    return [{**row, "outcome": row["outcome"].replace(LIMITED, "done")} for row in made]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("domains", "most"), [(600, 100), (600, 540), (600, 600), (600, 2400), (3000, 3000)]
)
def test_each_seed_that_can_be_is_fetched(tmp_path: Path, domains: int, most: int) -> None:
    names = NAMES[:domains]
    web = SimulatedWeb(spec=SPEC, port=80, tls=True)
    web.tls_port = 443
    with web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds.txt", names), "max_pages": most},
            settings=SETTINGS,
        ).run()
    found = rows(crawl)
    assert [row["seed"] for row in found] == names
    can_be = [name for name in names if KINDS[kind(name)][1].startswith(FETCHED)]
    fetched = [row["seed"] for row in found if row["outcome"].startswith(FETCHED)]
    assert len(fetched) == min(most, len(can_be))
    if most >= len(can_be):
        outcomes = Counter((kind(row["seed"]), row["outcome"]) for row in found)
        assert outcomes == Counter((kind(name), KINDS[kind(name)][1]) for name in names)
    assert len(crawl.items) == most
    assert crawl.stats["krowl/frontier/done_count"] == most
    report = json.loads((crawl.jobdir / "reports" / "report.json").read_text())
    assert report["done"] == most
    assert f"  pages done   {most:,} (" in crawl.log
