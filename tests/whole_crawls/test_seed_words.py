"""Seeds with words of their own: limits, items, rows, reports, and the end at all seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.corpus.warc_pages import NoPage, page_of, records
from tests.mockweb import MockWeb
from tests.support.crawling import scrapy
from tests.support.crawls import ROBOTS, anchors, crawl_class, dropped, page, pages, refused
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.mockweb.log import Entry
    from tests.support.crawling import Crawl
    from tests.support.crawls import AnyWeb

# Each page of a chain leads to the next one; a fan leads to 30 pages at once.
CHAIN = [page(f"^/c{n}$", anchors(f"/c{n + 1}")) for n in range(9)]
FAN = page("^/fan", anchors(*(f"/f{n:02}" for n in range(30))))
SITE = [ROBOTS, *CHAIN, FAN, page("^/f[0-9]", "leaf")]
FIGURES = ("seed", "outcome", "tag", "pages", "left out")


def crawl_of(web: AnyWeb, folder: Path, lines: Iterable[str], **more: Any) -> Crawl:
    """Return a crawl from the lines of a file of seeds."""
    seeds = folder / "seeds.txt"
    seeds.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    arguments = {"seeds": seeds, **more.pop("arguments", {})}
    return crawl_class(web)(folder / "job", arguments=arguments, **more)


def table(folder: Path, name: str = "seeds") -> list[dict[str, str]]:
    """Return the rows of a table in a folder of reports."""
    lines = (folder / f"{name}.tsv").read_text().splitlines()
    columns = lines[0].split("\t")
    return [dict(zip(columns, line.split("\t"), strict=True)) for line in lines[1:]]


def figures(crawl: Crawl, name: str = "seeds", columns: tuple[str, ...] = FIGURES) -> list[Any]:
    rows = table(crawl.jobdir / "reports", name)
    return [tuple(row[column] for column in columns) for row in rows]


def by_host(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Return the paths of each host in the order of the requests, without guessed sitemaps."""
    found = defaultdict(list)
    for entry in entries:
        if entry.path != "/sitemap.xml":
            found[entry.host.partition(":")[0]].append(entry.path)
    return dict(found)


def lines_of(crawl: Crawl, option: str) -> list[dict[str, Any]]:
    shown = scrapy("frontier", crawl.jobdir, option).stdout.splitlines()
    return [json.loads(line) for line in shown]


def archived_tags(crawl: Crawl) -> set[tuple[str, str | None]]:
    """Return the tags of the pages in the archive, as a corpus reads them."""
    found = set()
    for path in (crawl.jobdir / "warc").glob("*.warc.gz"):
        with path.open("rb") as file:
            for _, record in records(file, 0, lambda *_: None):
                with suppress(NoPage):
                    made = page_of(record, lambda body, _: body)
                    found.add((made.url, made.tag))
    return found


def test_words_hold_in_one_crawl(tmp_path: Path) -> None:
    """Exact sets of pages, rows of seeds and tags, items and rows of pages. What a seed finds on
    another domain is the seed's; redirects, robots.txt and sitemaps are no pages."""
    sitemap = "<urlset><url><loc>http://c.test:{port}/f1</loc></url></urlset>"
    other = "<urlset><url><loc>http://i.test:{port}/c8</loc></url></urlset>"
    spec = [
        {"host": "i.test", **page("/robots.txt", "Sitemap: http://i.test:{port}/map.xml")},
        {"host": "i.test", **page("/map.xml", other)},
        {"host": "c.test", **page("/robots.txt", "Sitemap: http://c.test:{port}/map.xml")},
        {"host": "c.test", **page("/map.xml", sitemap)},
        {"path": "/moved", "status": 302, "headers": {"Location": "/c0"}, "body": ""},
        page("^/away$", anchors("http://far.test:{port}/c0")),
        *SITE,
    ]
    with SimulatedWeb(spec=spec) as web:
        url = web.url
        seeds = {
            url("a.test", "/c0"): '{"tag": "news", "depth": 2}',
            url("b.test", "/fan"): '{"tag": "news", "max_pages": 5}  # five',
            url("c.test", "/moved"): '{"tag": "press", "depth": 0}',
            url("d.test", "/away"): '{"tag": "Zürich #1", "depth": 3, "max_pages": 3}',
            url("e.test", "/f1"): "",
            url("bad.test", "/c0"): '{"dept": 2}',
            url("h.invalid", "/"): '{"tag": "gone"}',
            url("i.test", "/f2"): '{"depth": 1}',
        }
        lines = [f"{seed}\t{words}" for seed, words in seeds.items()]
        settings = {"RETRY_TIMES": 0, "KROWL_SITEMAPS": True, "KROWL_WARC_REVISIT": False}
        crawl = crawl_of(web, tmp_path, lines, settings=settings).run()
        asked = by_host(pages(web.log()))
    assert {host: sorted(paths) for host, paths in asked.items()} == {
        "a.test": ["/c0", "/c1", "/c2"],
        "b.test": ["/f00", "/f01", "/f02", "/f03", "/fan"],
        "c.test": ["/c0", "/map.xml", "/moved"],
        "d.test": ["/away"],
        "e.test": ["/f1"],
        "far.test": ["/c0", "/c1"],
        "i.test": ["/c8", "/f2", "/map.xml"],
    }
    a, b, c, d, e, _, gone, i = seeds
    rows = figures(crawl)
    assert rows[:5] == [
        (a, "limited: depth", "news", "3", "depth: 1"),
        (b, "limited: max_pages", "news", "5", "max_pages: 26"),
        (c, "limited: depth", "press", "1", "depth: 2"),
        (d, "limited: max_pages", "Zürich #1", "3", "max_pages: 1"),
        (e, "done", "", "1", ""),
    ]
    assert rows[5][1].startswith("invalid: unknown word 'dept': did you mean 'depth'?")
    assert rows[6][0] == gone
    assert rows[6][2:] == ("gone", "0", "")
    assert rows[7] == (i, "limited: depth", "", "2", "depth: 1")
    kinds = ("tag", "seeds", "done", "limited", "failed", "waiting", "pages")
    assert figures(crawl, "tags", kinds)[1:] == [
        ("Zürich #1", "1", "0", "1", "0", "0", "3"),
        ("gone", "1", "0", "0", "0", "1", "0"),
        ("news", "2", "0", "2", "0", "0", "8"),
        ("press", "1", "0", "1", "0", "0", "1"),
    ]
    assert dropped(crawl)["seed_depth"] == 4
    assert dropped(crawl)["seed_pages"] == 27
    items = {(item["url"], item["seed"], item.get("tag")) for item in crawl.items}
    assert items == {
        *((url("a.test", path), a, "news") for path in asked["a.test"]),
        *((url("b.test", path), b, "news") for path in asked["b.test"]),
        (url("c.test", "/c0"), c, "press"),
        (d, d, "Zürich #1"),
        *((url("far.test", path), d, "Zürich #1") for path in asked["far.test"]),
        (e, e, None),
        *((url("i.test", path), i, None) for path in ("/f2", "/c8")),
    }
    tags = {(each, tag) for each, _, tag in items}
    files = {
        (url("c.test", "/map.xml"), "press"),
        (url("c.test", "/robots.txt"), None),
        (url("i.test", "/map.xml"), None),
        (url("i.test", "/robots.txt"), None),
    }
    assert archived_tags(crawl) == tags | files
    stored = lines_of(crawl, "--pages")
    # The row of the redirect is not one of a page.
    assert {(row["url"], row["seed"], row.get("tag")) for row in stored} == {
        *items,
        (c, c, "press"),
    }


def test_max_pages_counts_what_is_done(tmp_path: Path) -> None:
    """A page that fails, or redirects, makes room for another one. So does one in flight, for which
    the others of its seed wait."""
    spec = [
        ROBOTS,
        page("^/$", anchors(*(f"http://h{n}.test:{{port}}/p" for n in range(8)))),
        {"host": "h0.test", "path": "/p", "raw_base64": "bm90IEhUVFANCg0K", "latency": 1.0},
        {"host": "h1.test", "path": "/p", "status": 301, "headers": {"Location": "/q"}, "body": ""},
        page("^/[pq]$", "leaf", latency=0.3),
    ]
    with SimulatedWeb(spec=spec) as web:
        lines = [f'{web.url("a.test")}\t{{"max_pages": 4}}']
        crawl = crawl_of(web, tmp_path, lines, settings={"RETRY_TIMES": 0}).run()
    assert len(crawl.items) == 4
    assert figures(crawl)[0][3] == "4"
    assert crawl.stats["krowl/frontier/queued"] == 0


def test_priority_orders_within_a_host(tmp_path: Path) -> None:
    links = {name: anchors(*(f"/{name}{n}" for n in range(9))) for name in "xyz"}
    spec = [ROBOTS, *(page(f"^/{name}$", links[name]) for name in "xyz"), page("^/[xyz]", "leaf")]
    with SimulatedWeb(spec=spec) as web:
        lines = [
            f'{web.url("a.test", "/x")}\t{{"priority": -3}}',
            web.url("a.test", "/y"),
            f'{web.url("a.test", "/z")}\t{{"priority": 5}}',
        ]
        crawl_of(web, tmp_path, lines).run()
        asked = by_host(pages(web.log()))["a.test"]
    assert [path[1] for path in asked] == [*"xyz", *"z" * 9, *"y" * 9, *"x" * 9]


def test_later_start_gives_other_words(tmp_path: Path) -> None:
    """What is queued is held to the words of the last start; counts go on."""
    with SimulatedWeb(spec=SITE) as web:
        a, b = web.url("a.test", "/fan"), web.url("b.test", "/c0")
        first = crawl_of(
            web,
            tmp_path,
            [f'{a}\t{{"max_pages": 9}}', f'{b}\t{{"tag": "old"}}'],
            arguments={"max_pages": 6},
        ).run()
        assert sum(int(row[3]) for row in figures(first)) == 6
        lines = [f'{a}\t{{"max_pages": 7, "tag": "new"}}', b]
        second = crawl_of(web, tmp_path, lines).run()
        asked = by_host(pages(web.log()))
    assert len(asked["a.test"]) == 7
    assert len(asked["b.test"]) == 10
    assert [(row[1], row[2], row[3]) for row in figures(second)] == [
        ("limited: max_pages", "new", "7"),
        ("done", "", "10"),
    ]


def test_crawl_stops_when_all_seeds_are_over(tmp_path: Path) -> None:
    """Seeds come before links, and redirects of seeds are waited for. A host that does not answer
    is not."""
    endless = page("^/[0-9]*$", "", headers={"Refresh": "0; url=/1"})
    spec = [
        ROBOTS,
        {"path": "/moved", "status": 302, "headers": {"Location": "/slow"}, "body": ""},
        page("/slow", "late", latency=5.0),
        page("^/(more|[0-9]+)", anchors(*(f"/more/{n}" for n in range(20)))),
        page("/gone", "no", status=404),
        {**endless, "path": "^/endless"},
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = {
            web.url("a.test", "/moved"): "done",
            web.url("b.test", "/more"): "done",
            web.url("c.test", "/gone"): "failed: status 404",
            "http://d.invalid/": "deferred",
        }
        crawl = crawl_of(web, tmp_path, seeds, arguments={"until": "seeds"}).run()
        asked = by_host(pages(web.log()))
    rows = table(crawl.jobdir / "reports")
    assert {row["seed"]: row["outcome"] for row in rows} == seeds
    assert crawl.stats["finish_reason"] == "seeds_done"
    assert asked["a.test"] == ["/moved", "/slow"]
    assert asked["c.test"] == ["/gone"]
    # Links follow, until the end is seen.
    assert asked["b.test"][0] == "/more"


def test_words_without_rows_of_pages_do_not_start(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        worded = [web.url("a.test", "/f1"), f'{web.url("b.test", "/f1")}\t{{"depth": 1}}']
        off = {"settings": {"KROWL_PAGES": False}}
        assert "set KROWL_PAGES=True" in refused(crawl_of(web, tmp_path, worded, **off))
        assert not web.log()
        lines = [line.partition("\t")[0] for line in worded]
        crawl_of(web, tmp_path, lines, **off).run()
        # Nor do those that an earlier start has given.
        crawl_of(web, tmp_path, worded).run()
        assert "seeds of this JOBDIR have words" in refused(crawl_of(web, tmp_path, lines, **off))
        wrong = crawl_of(web, tmp_path, lines, arguments={"until": "seed"})
        assert "-a until=seed: give seeds" in refused(wrong)


@pytest.mark.slow
def test_counts_and_limits_survive_kills(tmp_path: Path) -> None:
    """Killed three times: each seed has its exact number of pages, in row, items and archive."""
    spec = [ROBOTS, FAN, page("^/f[0-9]", "leaf", latency=0.05)]
    with MockWeb(spec=spec) as web:
        most = {"a.test": 11, "b.test": 17, "c.test": 23}
        lines = [
            f'{web.url(host, "/fan")}\t{{"tag": "{host[0]}", "max_pages": {count}}}'
            for host, count in most.items()
        ]
        for number in (9, 20, 33):
            crawl = crawl_of(web, tmp_path, lines).start()
            crawl.wait_until(lambda number=number: len(pages(web.log())) >= number)  # type: ignore[misc]
            crawl.kill()
        crawl = crawl_of(web, tmp_path, lines).run()
        stored = lines_of(crawl, "--pages")
    assert [(row[1], row[2], int(row[3])) for row in figures(crawl)] == [
        ("limited: max_pages", host[0], count) for host, count in most.items()
    ]
    counts = defaultdict(int)
    for row in stored:
        counts[row["tag"]] += 1
    assert counts == {host[0]: count for host, count in most.items()}
