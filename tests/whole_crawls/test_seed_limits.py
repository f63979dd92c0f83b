"""Which seeds a limit has kept from being whole, and which have failed, with words and without."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawls import ROBOTS, anchors, dropped, page
from tests.support.simulated_web import SimulatedWeb
from tests.whole_crawls.test_seed_words import crawl_of, figures, table

if TYPE_CHECKING:
    from pathlib import Path

FIGURES = ("seed", "outcome", "queued of its host", "left out")
# Five pages in a fan, and each of them leads to five more.
SITE = [
    ROBOTS,
    page("^/one$", "alone"),
    page("^/$", anchors(*(f"/{n}" for n in range(5)))),
    *(page(f"^/{n}$", anchors(*(f"/{n}{m}" for m in range(5)))) for n in range(5)),
    page("^/[0-9][0-9]$", "leaf"),
]
WORDS = pytest.mark.parametrize("words", ["", '\t{"tag": "t"}'], ids=["plain", "worded"])


def sheets(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "policies.toml"
    path.write_text(text)
    return {"KROWL_POLICIES": path}


@WORDS
def test_limit_of_a_sheet_is_named(tmp_path: Path, words: str) -> None:
    """At the intake, and at the pop of what was queued before the limit was reached."""
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url(name, path) for name, path in (("a.test", "/"), ("b.test", "/one"))]
        limits = {"a": "max_pages = 3", "c": "max_bytes = 1", "d": "max_seconds = 0.5"}
        seeds += [web.url("c.test"), web.url("d.test"), web.url("e.test")]
        text = "".join(
            f'[[sheet]]\nname = "{name}"\nmatch = ["{name}.test"]\n{limit}\n'
            for name, limit in limits.items()
        )
        settings = {**sheets(tmp_path, text), "KROWL_DELAY_MIN": 0.2}
        crawl = crawl_of(web, tmp_path, [seed + words for seed in seeds], settings=settings).run()
    found = {row[0]: row for row in figures(crawl, columns=FIGURES)}
    outcomes = [found[seed][1] for seed in seeds]
    assert outcomes == [
        "limited: max_pages of a sheet",
        "done",
        "limited: max_bytes of a sheet",
        "limited: max_seconds of a sheet",
        "done",
    ]
    reasons = ("max_pages", "max_bytes", "max_seconds")
    left = [row[3] for row in found.values() if row[3]]
    assert sorted(left) == sorted(f"{each} of a sheet: {dropped(crawl)[each]}" for each in reasons)
    assert dropped(crawl)["max_bytes"] == 5
    if words:
        names = ("tag", "seeds", "done", "limited", "failed")
        assert figures(crawl, "tags", names) == [("t", "5", "2", "3", "0")]


@WORDS
def test_domain_budget_is_named(tmp_path: Path, words: str) -> None:
    """Links to another domain count for the seed that led to them."""
    spec = [page("^/out$", anchors(*(f"http://far.test:{{port}}/{n}" for n in range(9)))), *SITE]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url("a.test"), web.url("b.test", "/one"), web.url("c.test", "/out")]
        settings = {"KROWL_DOMAIN_BUDGET": 4}
        crawl = crawl_of(web, tmp_path, [seed + words for seed in seeds], settings=settings).run()
    rows = figures(crawl, columns=FIGURES)
    limited = "limited: KROWL_DOMAIN_BUDGET"
    assert [row[:3] for row in rows[1:]] == [(seeds[1], "done", "0"), (seeds[2], limited, "0")]
    assert rows[0][:3] == (seeds[0], limited, "0")
    counts = [int(row[3].removeprefix("KROWL_DOMAIN_BUDGET: ") or 0) for row in rows]
    assert sum(counts) == dropped(crawl)["domain_budget"]
    # Five of the nine, and five of each of the other four.
    assert counts[2] == 25


@WORDS
def test_max_pages_of_the_crawl_is_named(tmp_path: Path, words: str) -> None:
    """For seeds whose host has URLs queued, and once the pages are spent. A stop leaves "done"."""
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url("a.test"), web.url("b.test", "/one")]
        lines = [seed + words for seed in seeds]
        crawl = crawl_of(web, tmp_path, lines, arguments={"max_pages": 4}).run()
        assert figures(crawl, columns=FIGURES) == [
            (
                seeds[0],
                "limited: max_pages of the crawl",
                str(crawl.stats["krowl/frontier/queued"]),
                "",
            ),
            (seeds[1], "done", "0", ""),
        ]
        outcomes = {row["outcome"]: row["seeds"] for row in table_of(crawl, "seed-outcomes")}
        assert outcomes == {"limited: max_pages of the crawl": "1", "done": "1"}
        crawl = crawl_of(web, tmp_path, lines).run()
        assert [row[1:] for row in figures(crawl, columns=FIGURES)] == [("done", "0", "")] * 2


@WORDS
def test_seed_that_answers_with_an_error_has_failed(tmp_path: Path, words: str) -> None:
    """After a redirect too. A seed that a sheet does not let in is limited in the counts."""
    codes = (402, 403, 404, 410, 500)
    spec = [
        ROBOTS,
        *(page(f"^/{code}$", anchors("/one"), status=code) for code in codes),
        {"path": "/moved", "status": 302, "headers": {"Location": "/404"}, "body": ""},
        *SITE,
    ]
    with SimulatedWeb(spec=spec) as web:
        paths = [*map(str, codes), "moved", "one"]
        lines = [f"{web.url(f'h{path}.test', f'/{path}')}{words}" for path in paths]
        settings = {"RETRY_TIMES": 0}
        crawl = crawl_of(web, tmp_path, lines, settings=settings).run()
    rows = figures(crawl, columns=("outcome", "status"))
    assert rows == [
        *((f"failed: status {code}", str(code)) for code in codes),
        ("failed: status 404", "404"),
        ("done", "200"),
    ]
    outcomes = {row["outcome"]: int(row["seeds"]) for row in table_of(crawl, "seed-outcomes")}
    assert outcomes == Counter(row[0] for row in rows)
    if words:
        names = ("tag", "seeds", "done", "limited", "failed")
        assert figures(crawl, "tags", names) == [("t", "7", "1", "0", "6")]


def table_of(crawl: Any, name: str) -> list[dict[str, str]]:
    return table(crawl.jobdir / "reports", name)
