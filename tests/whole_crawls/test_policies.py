"""Sheets of KROWL_POLICIES in crawls: each host would be fetched otherwise without its sheet."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from tests.mockweb import MockWeb
from tests.support.crawling import frontier_view, scrapy
from tests.support.crawls import ROBOTS, anchors, crawl_of, page, pages, refused
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.crawling import Crawl

QUICK = {"RETRY_TIMES": 0, "KROWL_DELAY_MIN": 0.02, "KROWL_DELAY_FACTOR": 0}
LINKS = (
    *("/news/1", "/news/2", "/other/1", "/print/1"),
    *("/q?b=2&sid=7&a=1", "/dir/index.html", "/slash/", "/a//b"),
)
SPEC = [
    ROBOTS,
    page("/news/1", anchors("/deep/2")),
    page("/deep/2", anchors("/deep/3")),
    {**page("/", anchors("http://out.test:{port}/only", "/in")), "host": "reach.test"},
    {**page("/", anchors("http://www.bare.test:{port}/w")), "host": "bare.test"},
    page("/", anchors(*LINKS)),
    page("^/", "leaf"),
]
SHEETS = """
[[sheet]]
name = "excluded"
match = ["excl.test"]
exclude = ["/print/", "^https?://[^/]++/q"]

[[sheet]]
name = "included"
match = ["incl.test"]
include = ["/news/"]

[[sheet]]
name = "shallow"
match = ["*.shallow.test"]
depth = 1

[[sheet]]
name = "reach"
match = ["host:reach.test"]
scope = "host"

[[sheet]]
name = "few"
match = ["few.test"]
max_pages = 3

[[sheet]]
name = "together"
match = ["one.test", "two.test"]
max_pages = 4
quota = "sheet"

[[sheet]]
name = "small"
match = ["small.test"]
max_bytes = 1

[[sheet]]
name = "short"
match = ["short.test"]
max_seconds = 0.01

[[sheet]]
name = "normal"
match = ["normal.test"]
index_pages = "drop"
trailing_slash = "drop"
duplicate_slashes = "drop"
parameters = ["s*d"]
sort_query = true

[[sheet]]
name = "slashes"
match = ["adds.test"]
trailing_slash = "add"

[[sheet]]
name = "bare"
match = ["bare.test"]
www = "drop"

[[sheet]]
name = "first"
match = ["test,prior,)/other"]
priority = 5
"""


def sheets(folder: Path, text: str) -> Path:
    """Replace the file of sheets at once, as an editor does."""
    path = folder / "policies.toml"
    (folder / "new").write_text(text)
    (folder / "new").replace(path)
    return path


def fetched(web: SimulatedWeb, host: str) -> list[str]:
    """Return the pages that a host was asked for, in their order."""
    return [entry.path for entry in pages(web.log()) if entry.host.split(":")[0] == host]


def dropped(crawl: Crawl) -> dict[str, int]:
    prefix = "krowl/frontier/dropped_count/"
    found = {name: count for name, count in crawl.stats.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): count for name, count in found.items()}


def test_each_key_of_a_sheet_changes_what_is_fetched(tmp_path: Path) -> None:
    more = ("adds", "bare", "prior", "plain")
    hosts = ("excl", "incl", "a.shallow", "reach", "few", "one", "two", "small", "short", "normal")
    every = {"/", *LINKS, "/deep/2", "/deep/3"}
    path = sheets(tmp_path, SHEETS)
    with SimulatedWeb(spec=SPEC) as web:
        seeds = [web.url(f"{host}.test") for host in (*hosts, *more)]
        settings = {**QUICK, "KROWL_POLICIES": path}
        crawl = crawl_of(web, tmp_path, seeds, settings=settings).run()
        others = (*more, "www.bare", "out")
        found = {host: fetched(web, f"{host}.test") for host in (*hosts, *others)}
        explained = scrapy(
            "frontier", crawl.jobdir, "--explain", seeds[0] + "print/1", *_settings(path)
        ).stdout.decode()
        assert "an expression of a sheet's exclude matches it" in explained
    assert sorted(found["plain"]) == sorted(every)
    assert sorted(found["excl"]) == sorted(every - {"/print/1", LINKS[4]})
    assert sorted(found["incl"]) == ["/", "/news/1", "/news/2"]
    assert sorted(found["a.shallow"]) == sorted({"/", *LINKS})
    assert (sorted(found["reach"]), found["out"]) == (["/", "/in"], [])
    assert len(found["few"]) == 3
    assert len(found["one"]) + len(found["two"]) == 4
    assert found["small"] == found["short"] == ["/"]
    normal = every - {*LINKS[4:]} | {"/q?a=1&b=2", "/dir", "/slash", "/a/b"}
    assert sorted(found["normal"]) == sorted(normal)
    # Not behind the name of a file.
    added = {f"{path}/" for path in (*LINKS[:4], "/a//b")} | {"/q/?b=2&sid=7&a=1"}
    assert sorted(found["adds"]) == sorted(added | {"/", "/dir/index.html", "/slash/"})
    assert (found["bare"], found["www.bare"]) == (["/", "/w"], [])
    assert found["prior"][:2] == ["/", "/other/1"]
    assert sorted(found["prior"]) == sorted(every)
    # Each link that is refused, once: that of "/news/1" too.
    assert dropped(crawl) == {
        "sheet_exclude": 2,
        "sheet_include": 7,
        "sheet_depth": 1,
        "host": 1,
        # Of 1 + 8 URLs, and of twice as many, and "/deep/2" of each "/news/1".
        "max_pages": (9 - 3 + 1) + (18 - 4 + 2),
        "max_bytes": len(LINKS),
        "max_seconds": len(LINKS),
    }
    assert "policy      exclude = ['/print/', '^https?://[^/]++/q']: sheet excluded, line 5" in (
        explained
    )
    assert frontier_view(crawl.jobdir)["queued"] == 0
    (record,) = archived(crawl)
    assert record == path.read_bytes()


def _settings(path: Path) -> list[str]:
    return ["-s", f"KROWL_POLICIES={path}"]


def archived(crawl: Crawl) -> list[bytes]:
    """Return the sheets in the archive of a crawl, in their order."""
    return [
        record.reader.read()
        for warc in sorted((crawl.jobdir / "warc").glob("*.warc.gz"))
        for record in ArchiveIterator(warc, record_types=WarcRecordType.resource)
        if record.headers["WARC-Target-URI"] == "urn:krowlspider:policies"
    ]


def test_a_bad_file_stops_the_start(tmp_path: Path) -> None:
    path = sheets(tmp_path, '[[sheet]]\nname = "a"\nmatch = ["a.test"]\ndeley = 3\n')
    with SimulatedWeb(spec=SPEC) as web:
        settings = {"KROWL_POLICIES": path}
        said = refused(crawl_of(web, tmp_path, [web.url("a.test")], settings=settings))
        assert f"{path} line 4: deley is no key of a sheet: did you mean delay?" in said
        assert web.log() == []


def test_sheets_change_under_a_running_crawl(tmp_path: Path) -> None:
    """What is queued is dropped at its pop. A file with an error leaves the sheets in force."""
    many = anchors(*(f"/{number}" for number in range(200)))
    spec = [ROBOTS, page("/", many), page("^/", "leaf")]
    path = sheets(tmp_path, "")
    excluding = '[[sheet]]\nname = "a"\nmatch = ["a.test"]\nexclude = ["."]\n'
    with SimulatedWeb(spec=spec) as web:

        def change() -> Iterator[Callable[[], bool]]:
            yield lambda: len(pages(web.log())) >= 5
            sheets(tmp_path, "[[sheet]]\n")
            yield lambda: "is not in force" in crawl.log
            sheets(tmp_path, excluding)

        settings = {**QUICK, "KROWL_DELAY_MIN": 0.2, "KROWL_POLICIES": path}
        seeds = [web.url("a.test"), web.url("b.test", "/1")]
        crawl = crawl_of(web, tmp_path, seeds, settings=settings, script=change())
        crawl.run()
        mine = fetched(web, "a.test")
    assert 5 <= len(mine) < 100
    assert dropped(crawl) == {"sheet_exclude": 201 - len(mine)}
    assert "line 1: a sheet needs a name" in crawl.log
    assert crawl.stats["krowl/policies/failed_count"] == 1
    assert crawl.stats["krowl/policies/reload_count"] == 1
    assert crawl.stats["krowl/policies/faulty"] == 0
    assert crawl.stats["krowl/policies/sheets"] == 1
    assert archived(crawl) == [b"", excluding.encode()]


@pytest.mark.slow
def test_limits_are_exact_after_kills(tmp_path: Path) -> None:
    """A page whose commit a kill has prevented is fetched again, and counts once."""
    text = '[[sheet]]\nname = "few"\nmatch = ["*.test"]\nmax_pages = 30\nquota = "sheet"\n'
    path = sheets(tmp_path, text)
    many = anchors(*(f"/{number}" for number in range(40)))
    with MockWeb(spec=[ROBOTS, page("/", many), page("^/", "leaf")]) as web:
        settings = {**QUICK, "KROWL_DELAY_MIN": 0.1, "KROWL_POLICIES": path}
        seeds = [web.url(f"{host}.test") for host in "abc"]
        for goal in (5, 12, 20):
            crawl = crawl_of(web, tmp_path, seeds, settings=settings).start()
            crawl.wait_until(lambda goal=goal: len(pages(web.log())) >= goal)  # type: ignore[misc]
            crawl.kill()
        last = crawl_of(web, tmp_path, seeds, settings=settings).run()
        urls = {entry.url for entry in pages(web.log())}
    report = json.loads((last.jobdir / "reports" / "report.json").read_text())
    # A page that was in flight at a kill may have reached the web without being fetched again.
    assert (report["done"], 30 <= len(urls) <= 39) == (30, True)
    assert frontier_view(last.jobdir)["queued"] == 0


@pytest.mark.slow
def test_sighup_reads_the_sheets_again(tmp_path: Path) -> None:
    """Though the file has not changed. It does not stop the crawl."""
    path = sheets(tmp_path, "")
    with MockWeb(spec=[ROBOTS, page("/", anchors("/slow")), page("/slow", "x", latency=5)]) as web:
        settings = {**QUICK, "KROWL_POLICIES": path}
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings=settings).start()
        crawl.wait_until(lambda: len(pages(web.log())) == 1)
        before = crawl.log.count("policies.toml in force")
        crawl.process.send_signal(signal.SIGHUP)
        crawl.wait_until(lambda: crawl.log.count("policies.toml in force") > before)
        assert "SIGHUP received: reading KROWL_POLICIES again" in crawl.log
        crawl.interrupt()
