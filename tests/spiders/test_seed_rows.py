"""The report has one row for each seed line, with its final outcome."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawling import write_seeds
from tests.support.crawls import anchors, page
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.crawling import Crawl

SPEC = [
    page("/robots.txt", "User-agent: *\nDisallow: /secret\n"),
    page("/", anchors("/found")),
    page("/found", "x"),
    page("/gone", "x", status=404),
    {"path": "/to-found", "redirect": "/found"},
    {"path": "/to-gone", "redirect": "/to-gone2"},
    {"path": "/to-gone2", "redirect": "/gone2"},
    {"path": "/to-secret", "redirect": "/secret"},
    {"path": "/to-other", "redirect": "http://other.test/home"},
    {"path": "/loop", "redirect": "/pool"},
    {"path": "/pool", "redirect": "/loop"},
    *({"path": f"/hop{hop}", "redirect": f"/hop{hop + 1}"} for hop in range(1, 5)),
    page("/hop5", "x"),
    {"path": "/nowhere", "redirect": "mailto:a@b.test"},
    page("/home", "x"),
    page("/throttled", "", status=429),
]


def run(folder: Path, lines: Iterable[str], name: str = "seeds.txt", **more: Any) -> Crawl:
    seeds = write_seeds(folder / name, lines)
    settings = {"RETRY_TIMES": 0, "REDIRECT_MAX_TIMES": 3}
    settings |= more.pop("settings", {})
    arguments = {"seeds": seeds, **more.pop("arguments", {})}
    return SimulatedCrawl(folder / "job", arguments=arguments, settings=settings, **more).run()


def rows(crawl: Crawl) -> list[tuple[str, ...]]:
    """Line, seed, outcome, status and final URL of each row."""
    lines = (crawl.jobdir / "reports" / "seeds.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:5] == ["line", "seed", "outcome", "status", "redirected to"]
    return [tuple(line.split("\t")[:5]) for line in lines[1:]]


def test_each_line_has_one_row_with_its_final_outcome(tmp_path: Path) -> None:
    """Also bare domains, lines given twice, bad ones, and those that end elsewhere."""
    with SimulatedWeb(spec=SPEC, port=80):
        expected = {
            "# a comment": None,
            "a.test": ("done", "200", "http://a.test/"),
            "": None,
            "http://a.test/": ("done", "200", ""),
            "http://A.test": ("done", "200", ""),
            "https://b.test/": ("deferred", "", ""),
            "http://b.test/gone": ("failed: status 404", "404", ""),
            "http://c.test/to-gone": ("failed: status 404", "404", "http://c.test/gone2"),
            "http://c.test/to-found": ("done", "200", "http://c.test/found"),
            "http://c.test/found # again": ("done", "200", ""),
            "http://d.test/secret": ("robots", "", ""),
            "http://d.test/to-secret": ("robots", "302", "http://d.test/secret"),
            "http://e.test/to-other": ("done", "200", "http://other.test/home"),
            "http://e.test/loop": ("redirect_loop", "302", "http://e.test/pool"),
            "http://e.test/nowhere": ("url", "302", ""),
            "http://e.test/hop1": ("redirects", "302", "http://e.test/hop5"),
            # Of one identity each: the first of them is fetched.
            "http://h.test/gone?b=2&a=1": ("failed: status 404", "404", ""),
            "http://h.test/gone?a=1&b=2": ("failed: status 404", "404", ""),
            "http://h.test/gone?b=2&a=1&utm_source=x": ("failed: status 404", "404", ""),
            "http://h.test/gone?a=%c3": ("failed: status 404", "404", ""),
            "http://h.test/gone?a=%C3": ("failed: status 404", "404", ""),
            "http://h.test/to-gone": ("failed: status 404", "404", "http://h.test/gone2"),
            "http://h.test/to-gone?utm_source=y": (
                "failed: status 404",
                "404",
                "http://h.test/gone2",
            ),
            "http://h.test/secret?utm_id=1": ("robots", "", ""),
            "http://h.test/secret?utm_id=2": ("robots", "", ""),
            "f.test/throttled": ("throttled", "429", "http://f.test/throttled"),
            "http://no.invalid/": ("deferred", "", ""),
            "http://a.test/denied": ("exclude", "", ""),
            "ftp://a.test/": ("invalid: scheme ftp, neither http nor https", "", ""),
        }
        excluded = tmp_path / "exclude.txt"
        excluded.write_text("denied\n")
        crawl = run(tmp_path, expected, settings={"KROWL_EXCLUDE": excluded})
    wanted = [
        (str(number), line, *row)
        for number, (line, row) in enumerate(expected.items(), 1)
        if row is not None
    ]
    assert rows(crawl) == wanted
    outcomes = (crawl.jobdir / "reports" / "seed-outcomes.tsv").read_text().splitlines()[1:]
    counted = {line.split("\t")[0]: int(line.split("\t")[1]) for line in outcomes}
    assert counted == Counter(row[2] for row in wanted)


def test_redirects_out_of_the_scope_are_named(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC, port=80):
        crawl = run(tmp_path, ["http://e.test/to-other"], arguments={"same_domain": 1})
    target = "http://other.test/home"
    assert rows(crawl) == [("1", "http://e.test/to-other", "domain", "302", target)]


def test_a_file_that_is_given_again_replaces_its_rows(tmp_path: Path) -> None:
    """Outcomes stay. Other files, and lists, have rows of their own."""
    with SimulatedWeb(spec=SPEC, port=80):
        run(tmp_path, ["http://a.test/", "http://b.test/gone", "bad line", "http://c.test/"])
        again = run(tmp_path, ["http://b.test/gone", "# none", "http://a.test/"])
        first = [
            ("1", "http://b.test/gone", "failed: status 404", "404", ""),
            ("3", "http://a.test/", "done", "200", ""),
        ]
        assert rows(again) == first
        other = run(tmp_path, ["http://d.test/gone"], name="other.txt")
        assert rows(other) == [*first, ("1", "http://d.test/gone", "failed: status 404", "404", "")]


def test_a_page_found_before_it_was_a_seed_is_known(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SPEC, port=80):
        run(tmp_path, ["http://a.test/"])
        again = run(tmp_path, ["http://a.test/found"])
        assert rows(again) == [("1", "http://a.test/found", "known before", "", "")]


@pytest.mark.parametrize("most", [0, 2, 5])
def test_lines_beyond_the_most_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("krowlspider.frontier.seed_table.LINES_MAX", most)
    with SimulatedWeb(spec=SPEC, port=80):
        crawl = run(tmp_path, [f"http://h{number}.test/gone" for number in range(5)])
    text = (crawl.jobdir / "reports" / "seeds.tsv").read_text()
    assert len(rows(crawl)) - text.count("# ") == most
    assert (f"# {most} of 5 rows" in text) == (most < 5)
