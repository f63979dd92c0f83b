"""The order of pages: seeds first, then breadth first while pages are limited."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawling import write_seeds
from tests.support.crawls import anchors, page, pages
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.mockweb.log import Entry
    from tests.support.crawling import Crawl

ROBOTS = page("/robots.txt", "", status=404)
LINKS = anchors(*(f"/p{number}" for number in range(30)))
SITE = [ROBOTS, page("/", LINKS), page("^/p", "leaf")]
# Retries and backoff as by default.
REAL = {"KROWL_RETRY_DELAY": 30, "KROWL_DELAY_MIN": 0.25}


def run(folder: Path, seeds: Sequence[str], most: int | None, **more: Any) -> Crawl:
    arguments = {"seeds": write_seeds(folder / "seeds.txt", seeds)}
    if most is not None:
        arguments["max_pages"] = str(most)
    settings = {**REAL, **more.pop("settings", {})}
    return SimulatedCrawl(folder / "job", arguments=arguments, settings=settings, **more).run(
        code=more.pop("code", 0)
    )


# Of a seed that was fetched, while its links stay queued.
LIMITED = "limited: max_pages of the crawl"


def names(entries: Sequence[Entry]) -> list[str]:
    return [f"{entry.host.partition(':')[0]}{entry.path}" for entry in pages(entries)]


def rows(crawl: Crawl) -> list[tuple[str, str]]:
    """Outcome and status of each seed."""
    lines = (crawl.jobdir / "reports" / "seeds.tsv").read_text().splitlines()
    return [(line.split("\t")[2], line.split("\t")[3]) for line in lines[1:]]


def roots(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.endswith("/")]


@pytest.mark.parametrize("most", [6, 40])
def test_seeds_come_before_pages_of_links(tmp_path: Path, most: int) -> None:
    """Also those whose robots.txt or page is slow."""
    spec = [
        {"host": "h1.test", **page("/robots.txt", "", latency=4.0)},
        {"host": "h3.test", **page("/", LINKS, latency=6.0)},
        *SITE,
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(f"h{number}.test") for number in range(5)]
        crawl = run(tmp_path, seeds, most)
        asked = names(web.log())
        assert len(crawl.items) == len(asked) == most
        assert sorted(asked[:5]) == [f"h{number}.test/" for number in range(5)]


def test_new_seeds_come_before_links_of_an_earlier_start(tmp_path: Path) -> None:
    """Links are queued and due before the seeds are read."""
    with SimulatedWeb(spec=SITE) as web:
        run(tmp_path, [web.url(f"h{number}.test") for number in range(40)], 60)
        before = len(pages(web.log()))
        run(tmp_path, [web.url(f"n{number}.test") for number in range(10)], 10)
        asked = names(web.log())[before:]
    assert sorted(asked) == sorted(f"n{number}.test/" for number in range(10))


def test_redirects_of_seeds_are_followed_first(tmp_path: Path) -> None:
    """To other hosts too, and through several hops. They take nothing of the limit."""
    moved = [
        {
            "host": f"h{number}.test",
            "path": "/",
            "redirect": f"http://www.h{number}.test:{{port}}/a",
        }
        for number in range(0, 20, 2)
    ]
    spec = [*moved, {"path": "/a", "redirect": "/b"}, page("/b", LINKS), *SITE]
    with SimulatedWeb(spec=spec) as web:
        crawl = run(tmp_path, [web.url(f"h{number}.test") for number in range(20)], 20)
        found = {item.get("redirected_from", [item["url"]])[0] for item in crawl.items}
        assert found == {web.url(f"h{number}.test") for number in range(20)}
        assert len(crawl.items) == 20


def test_seeds_of_a_host_with_a_long_delay_keep_their_places(tmp_path: Path) -> None:
    spec = [
        {"host": "^slow", **page("/robots.txt", "User-agent: *\nCrawl-delay: 12\n")},
        *SITE,
    ]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(f"slow{at}.test", path) for at in range(2) for path in ("/", "/p100")]
        seeds.append(web.url("a.test"))
        crawl = run(tmp_path, seeds, 6)
        assert len(crawl.items) == 6
        assert set(seeds) < {item["url"] for item in crawl.items}


def test_a_redirect_of_a_seed_to_a_link_comes_first(tmp_path: Path) -> None:
    """The target is queued as a link already: it takes the place of a seed, and has its row."""
    links = anchors("http://www.b.test:{port}/", *(f"/p{number}" for number in range(30)))
    moved = {"host": "^b.test", "path": "/", "redirect": "http://www.b.test:{port}/"}
    spec = [{"host": "^a.test", **page("/", links)}, {**moved, "latency": 3.0}, *SITE]
    with SimulatedWeb(spec=spec) as web:
        crawl = run(tmp_path, [web.url("a.test"), web.url("b.test")], 2)
        assert [item["url"] for item in crawl.items] == [web.url("a.test"), web.url("www.b.test")]
    assert rows(crawl) == [(LIMITED, "200"), (LIMITED, "200")]


@pytest.mark.parametrize("seed", ["b.test", "http://b.test/", "http://z.test/to-b"])
def test_a_seed_found_as_a_link_before_comes_first(tmp_path: Path, seed: str) -> None:
    """In an earlier start: also the http URL of a bare domain, and the end of a redirect."""
    links = anchors(*(f"/p{number}" for number in range(30)), "http://b.test/")
    spec = [
        {"host": "^a.test", **page("/", links)},
        {"path": "/to-b", "redirect": "http://b.test/"},
        *SITE,
    ]
    with SimulatedWeb(spec=spec, port=80):
        run(tmp_path, ["http://a.test/"], 1)
        crawl = run(tmp_path, [seed], 1)
        assert [item["url"] for item in crawl.items] == ["http://b.test/"]
        assert rows(crawl)[-1] == (LIMITED, "200")
        # Its links have the depth of those of a seed.
        crawl = run(tmp_path, [seed], 1)
        assert crawl.items[0]["depth"] == 1


def test_many_seeds_found_as_links_before_come_first(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE, port=80):
        run(tmp_path, ["http://a.test/"], 1)
        seeds = [f"http://a.test/p{number}" for number in range(20, 30)]
        crawl = run(tmp_path, seeds, 10)
        assert [item["url"] for item in crawl.items] == seeds
        assert rows(crawl)[-10:] == [(LIMITED, "200")] * 10


def test_a_seed_that_fails_first_keeps_its_place(tmp_path: Path) -> None:
    """It is tried again after 30 s. Other pages may be fetched meanwhile, but not in its place."""
    spec = [{"host": "h2.test", "path": "/", "first": 1, "status": 500}, *SITE]
    with SimulatedWeb(spec=spec) as web:
        crawl = run(tmp_path, [web.url(f"h{number}.test") for number in range(4)], 12)
        assert len(crawl.items) == 12
        assert set(roots(names(web.log()))) == {f"h{n}.test/" for n in range(4)}
        assert next(item["status"] for item in crawl.items if "h2.test" in item["url"]) == 200


def test_a_seed_that_never_answers_gives_its_place_up(tmp_path: Path) -> None:
    spec = [{"host": "h2.test", "path": "/", "status": 500}, *SITE]
    with SimulatedWeb(spec=spec) as web:
        seeds = [web.url(f"h{number}.test") for number in range(4)] + ["http://no.invalid/"]
        crawl = run(tmp_path, seeds, 5)
        assert len(crawl.items) == 5
        assert len(roots([item["url"] for item in crawl.items])) == 4


def test_many_seeds_of_one_host_come_before_links_elsewhere(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url("a.test", f"/p{number}") for number in range(100, 140)]
        seeds.insert(0, web.url("b.test"))
        crawl = run(tmp_path, seeds, 60)
        asked = names(web.log())
        assert len(crawl.items) == 60
        assert [name for name in asked[:41] if name.startswith("b.test/p")] == []


def test_seeds_of_one_domain_and_address_wait_for_room_first(tmp_path: Path) -> None:
    room = {"KROWL_DOMAIN_CONCURRENCY": 2, "KROWL_IP_CONCURRENCY": 4, "KROWL_IP_DELAY_MIN": 0.1}
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url(f"s{number}.a.test") for number in range(30)]
        seeds += [web.url(f"h{number}.test") for number in range(10)]
        crawl = run(tmp_path, seeds, 60, settings=room)
        assert len(crawl.items) == 60
        assert len(roots(names(web.log())[:40])) == 40


def test_breadth_first_after_the_seeds(tmp_path: Path) -> None:
    """The first page of each host comes before the tenth of any, also where sessions go on."""
    homes = [
        {"host": f"s{at}.test", **page("/", LINKS + anchors(f"http://n{at}.test:{{port}}/"))}
        for at in range(20)
    ]
    with SimulatedWeb(spec=[ROBOTS, *homes, *SITE]) as web:
        slow = {"CONCURRENT_REQUESTS": 8, "KROWL_DELAY_MIN": 0.001}
        run(tmp_path, [web.url(f"s{at}.test") for at in range(20)], 700, settings=slow)
        asked = [name.partition("/")[0] for name in names(web.log())]
        of_hosts = [[at for at, name in enumerate(asked) if name == host] for host in set(asked)]
        assert len(of_hosts) == 40
        assert max(some[0] for some in of_hosts) < min(some[9] for some in of_hosts)


@pytest.mark.parametrize(("slots", "limit"), [(2, None), (16, 400)])
def test_sessions_begin_after_the_seeds(tmp_path: Path, slots: int, limit: int | None) -> None:
    """Until then, hosts that answer are asked in turns."""
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url(f"h{number}.test") for number in range(60)]
        quick = {"CONCURRENT_REQUESTS": slots, "KROWL_DELAY_MIN": 0.01}
        enough = interrupted_when(lambda: len(web.log()) > 400)
        run(tmp_path, seeds, limit, settings=quick, script=enough)
        asked = [name.partition("/") for name in names(web.log())]
        last = max(at for at, (_, _, path) in enumerate(asked) if not path)
        before = Counter(host for host, _, _ in asked[:last])
        assert max(before.values()) < 8
        # Ten requests in a row to each.
        assert len({host for host, _, _ in asked[last : last + 120]}) < 45


@pytest.mark.parametrize(
    ("after", "is_killed"),
    [(3, False), (25, False), (11, True)],
)
def test_seeds_that_were_left_come_first_again(tmp_path: Path, after: int, is_killed: bool) -> None:
    """After a stop, and after a kill."""
    with SimulatedWeb(spec=SITE) as web:
        seeds = [web.url(f"h{number}.test") for number in range(20)]
        arguments = {"seeds": write_seeds(tmp_path / "seeds.txt", seeds), "max_pages": "30"}
        settings = {**REAL, "CONCURRENT_REQUESTS": 2}
        first = SimulatedCrawl(tmp_path / "job", arguments=arguments, settings=settings)

        def is_enough() -> bool:
            return len(pages(web.log())) >= after

        if is_killed:
            first.run_until_killed(web, is_enough)
        else:
            first.script = interrupted_when(is_enough)
            first.run()
        done = len(pages(web.log()))
        left = 20 - len(roots(names(web.log())))
        # Pages that were not committed before a kill are fetched again.
        crawl = run(tmp_path, seeds, 25 if is_killed else left + 5)
        asked = names(web.log())
        assert len(set(roots(asked))) == 20
        assert is_killed or len(roots(asked[done:][:left])) == left
        assert len(crawl.items) >= left + 5
