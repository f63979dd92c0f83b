"""The fourteen hooks of gocrawl's Extender, each over a whole crawl."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from scrapy.http import HtmlResponse

from krowlspider.hooks import Hooks, Link
from tests.support.crawls import ROBOTS, anchors, crawl_of, crawled, dropped, page, paths
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scrapy import Request
    from scrapy.http import Response

    from krowlspider.hooks import Delay, Failed, Url

SITE = [
    ROBOTS,
    page("/", anchors("/a", "/b", "/gone")),
    page("/a", anchors("/b", "/")),
    page("/b", "leaf"),
    page("/gone", "gone", status=404),
]
EVERY = ["/", "/a", "/b", "/gone"]


class Watching(Hooks):
    """Notes what it is told. Crawls run in this process."""

    seen: ClassVar[list[Any]] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Watching.seen.clear()


def hooked(folder: Path, hooks: type[Hooks], *seeds: str, spec: Any = SITE, **settings: Any) -> Any:
    name = f"{hooks.__module__}.{hooks.__qualname__}"
    return crawled(folder, spec, *(seeds or ("a.test/",)), KROWL_HOOKS=name, **settings)


class Starting(Watching):
    async def start(self, seeds: Sequence[str]) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        self.seen.append([seed.partition("//")[2].partition(":")[0] for seed in seeds])
        kept = next(seed for seed in seeds if "a.test" in seed)
        return {kept: {"given": 1}, f"{kept}b": None}

    def visit(self, url: Url, response: Response) -> list[str]:
        self.seen.append((response.url.rpartition("/")[2], url.state))
        return []


def test_start_chooses_the_seeds(tmp_path: Path) -> None:
    """One is left out, one is added, one has a state."""
    crawl, log = hooked(tmp_path, Starting, "a.test/", "b.test/", "ftp://c.test/")
    assert Watching.seen[0] == ["a.test", "b.test"]
    assert sorted(Watching.seen[1:]) == [("", {"given": 1}), ("b", None)]
    assert Counter(paths(log)) == {"/": 1, "/b": 1}
    assert {entry.host.partition(":")[0] for entry in log} == {"a.test"}
    assert crawl.stats["krowl/frontier/done_count"] == 2


class Ending(Watching):
    async def end(self, reason: str) -> None:
        await asyncio.sleep(0)
        self.seen.append(reason)


def test_end_is_called_with_the_reason(tmp_path: Path) -> None:
    hooked(tmp_path, Ending)
    assert Watching.seen == ["finished"]


class Erring(Watching):
    def error(self, failed: Failed) -> None:
        self.seen.append((failed.kind, failed.url.url.rpartition("/")[2], failed.reason))


def test_error_names_each_failed_try(tmp_path: Path) -> None:
    spec = [
        {"path": "/robots.txt", "host": "b.test", "close_early": True, "body": "x"},
        page("/", anchors("/cut"), host="a.test"),
        page("/", "", host="b.test"),
        {"path": "/cut", "close_early": True, "body": "cut"},
        ROBOTS,
    ]
    crawl, _ = hooked(tmp_path, Erring, "a.test/", spec=spec, RETRY_TIMES=1)
    assert Watching.seen == [("fetch", "cut", "disconnect"), ("fetch", "cut", "disconnect")]
    assert crawl.stats["krowl/frontier/dropped_count/disconnect"] == 1


class Logging(Watching):
    def log(self, record: logging.LogRecord) -> None:
        # It is not told of its own lines.
        logging.getLogger("mine").warning("told")
        self.seen.append(record.getMessage())


def test_log_sees_each_line_once(tmp_path: Path) -> None:
    crawl, _ = hooked(tmp_path, Logging)
    assert sum("Crawl: spider broad" in line for line in Watching.seen) == 1
    assert "told" not in Watching.seen
    assert crawl.log.count("told") >= len(Watching.seen)
    before = len(Watching.seen)
    logging.getLogger().warning("after the crawl")
    assert len(Watching.seen) == before


class Delaying(Watching):
    def compute_delay(self, delay: Delay) -> float:
        self.seen.append(delay)
        return 3.0 if delay.host.startswith("slow") else 0.0


def test_compute_delay_is_never_below_robots_and_floor(tmp_path: Path) -> None:
    """The host that the hook slows down waits for longer. The others wait as they must."""
    links = [page("/", anchors("/a", "/b", "/c")), page("^/[abc]", "")]
    spec = [
        page("/robots.txt", "User-agent: *\nCrawl-delay: 2\n", host="asks.test"),
        page("/a", "", first=1, status=429, headers={"Retry-After": "9"}, host="busy.test"),
        ROBOTS,
        *links,
    ]
    seeds = ("slow.test/", "asks.test/", "busy.test/", "usual.test/")
    _, log = hooked(tmp_path, Delaying, *seeds, spec=spec, KROWL_DELAY_MIN=1, KROWL_DELAY_FACTOR=90)
    waits: dict[str, list[float]] = {}
    for name in ("slow", "asks", "busy", "usual"):
        entries = [entry for entry in log if entry.host.startswith(f"{name}.")]
        waits[name] = [later.start - entry.end for entry, later in pairwise(entries)]
    assert min(waits["slow"]) >= 3
    assert min(waits["asks"][1:]) >= 2
    assert 1 <= min(waits["usual"])
    assert max(waits["usual"]) < 1.5
    assert max(delay.ours for delay in Watching.seen if delay.host.startswith("usual")) > 1.5
    assert max(waits["busy"]) >= 9
    assert {delay.least for delay in Watching.seen if delay.host.startswith("asks")} == {2.0}


class Fetching(Watching):
    async def fetch(self, url: Url, request: Request) -> Response | None:
        await asyncio.sleep(0)
        self.seen.append(url.url.rpartition("/")[2])
        if not url.url.endswith("/a"):
            return None
        body = b"<a href=/made>x</a>"
        return HtmlResponse(url.url, body=body, encoding="utf-8")


def test_fetch_has_the_response_in_place_of_the_host(tmp_path: Path) -> None:
    """Its links are followed. The next request waits as after a fetch."""
    spec = [ROBOTS, page("/", anchors("/a")), page("/made", "leaf")]
    crawl, log = hooked(tmp_path, Fetching, spec=spec, KROWL_DELAY_MIN=2, KROWL_DELAY_FACTOR=0)
    assert Watching.seen == ["", "a", "made"]
    assert paths(log) == ["/", "/made"]
    assert log[-1].start - log[-2].end >= 4
    assert crawl.stats["krowl/frontier/done_count"] == 3
    assert crawl.stats["krowl/archive/left_out_count"] == 1


class FetchingAll(Fetching):
    def request_robots(self, url: Url) -> str:
        return ""


def test_fetch_reaches_no_forbidden_address(tmp_path: Path) -> None:
    """It is not even asked, although robots.txt is there."""
    refused = {"KROWL_ALLOW_ADDRESSES": "10.0.0.0/8", "RETRY_TIMES": 0}
    crawl, log = hooked(tmp_path, FetchingAll, code=4, **refused)
    assert (Watching.seen, log) == ([], [])
    assert dropped(crawl) == {"address_forbidden": 1}


class Getting(Watching):
    async def request_get(self, url: Url, head: Response) -> bool:
        await asyncio.sleep(0)
        self.seen.append((url.url.rpartition("/")[2], head.status))
        return 200 <= head.status < 300


def test_request_get_decides_after_head(tmp_path: Path) -> None:
    """The seed is asked by GET; a HEAD that is answered 404 is not followed by GET."""
    crawl, log = hooked(tmp_path, Getting, KROWL_HEAD=1)
    assert sorted(Watching.seen) == [("a", 200), ("b", 200), ("gone", 404)]
    asked = Counter((entry.method, entry.path) for entry in log)
    assert asked == {
        **{("GET", path): 1 for path in ("/robots.txt", "/", "/a", "/b")},
        **{("HEAD", path): 1 for path in ("/a", "/b", "/gone")},
    }
    assert dropped(crawl) == {"hook": 1}


class Robots(Watching):
    async def request_robots(self, url: Url) -> str | None:
        await asyncio.sleep(0)
        if "a.test" in url.url:
            # A lone surrogate is no text.
            return "User-agent: *\nDisallow: /b\n# \ud83d\n"
        return None

    async def fetched_robots(self, url: Url, response: Response) -> None:
        self.seen.append((url.host.partition(":")[0], response.status, response.body))

    def disallowed(self, url: Url) -> None:
        self.seen.append((url.host.partition(":")[0], url.url.rpartition("/")[2]))


def test_request_robots_gives_the_file(tmp_path: Path) -> None:
    """It is not fetched, and its rules hold. `disallowed` names what they refuse."""
    crawl, log = hooked(tmp_path, Robots)
    assert Counter(entry.path for entry in log) == {"/": 1, "/a": 1, "/gone": 1}
    assert Watching.seen == [("a.test", "b")]
    assert dropped(crawl) == {"robots": 1}


def test_fetched_robots_sees_the_answer(tmp_path: Path) -> None:
    text = "User-agent: *\nDisallow: /gone\n"
    spec = [page("/robots.txt", text), *SITE[1:]]
    _, log = hooked(tmp_path, Robots, "b.test/", spec=spec)
    assert Watching.seen[0] == ("b.test", 200, text.encode())
    assert Watching.seen[1:] == [("b.test", "gone")]
    assert paths(log).count("/gone") == 0


class Filtering(Watching):
    def filter(self, link: Url, is_known: bool) -> bool:
        path = link.url.rpartition("/")[2]
        self.seen.append((path, link.depth, link.source.rpartition("/")[2], is_known))
        if path == "b" and is_known:
            # Once more, and no more.
            return self.seen.count(self.seen[-1]) == 1
        return not is_known and path != "gone"


def test_filter_refuses_and_forces_a_revisit(tmp_path: Path) -> None:
    """The second link to a page is known: it is fetched again."""
    crawl, log = hooked(tmp_path, Filtering)
    assert Counter(paths(log)) == {"/": 1, "/a": 1, "/b": 2}
    assert Counter(Watching.seen) == {
        ("", 0, "", False): 1,
        **{(path, 1, "", False): 1 for path in ("a", "b", "gone")},
        ("b", 2, "a", True): 1,
        ("", 2, "a", True): 1,
    }
    assert dropped(crawl) == {"hook": 1}
    assert crawl.stats["krowl/frontier/done_count"] == 4


class Refusing(Watching):
    def filter(self, link: Url, is_known: bool) -> bool | None:
        if link.url.endswith("/no"):
            self.seen.append((link.source.rpartition("/")[2], is_known))
            return False
        return None


def test_what_filter_refuses_is_not_known(tmp_path: Path) -> None:
    """The next page that names it brings it again."""
    spec = [ROBOTS, page("/", anchors("/a", "/no")), page("/a", anchors("/no")), page("/no", "")]
    crawl, log = hooked(tmp_path, Refusing, spec=spec)
    assert paths(log) == ["/", "/a"]
    assert Watching.seen == [("", False), ("a", False)]
    assert dropped(crawl) == {"hook": 2}


class Enqueueing(Watching):
    def enqueued(self, url: Url) -> None:
        self.seen.append((url.url.rpartition("/")[2], url.depth, url.source.rpartition("/")[2]))


def test_enqueued_names_what_is_queued(tmp_path: Path) -> None:
    """What is known or refused was not queued."""
    hooked(tmp_path, Enqueueing, KROWL_DOMAIN_BUDGET=3)
    assert sorted(Watching.seen) == [("", 0, ""), ("a", 1, ""), ("b", 1, "")]


class Visiting(Watching):
    async def visit(self, url: Url, response: Response) -> Iterable[str | Link] | None:
        await asyncio.sleep(0)
        self.seen.append(("visit", url.url.rpartition("/")[2], url.state))
        if url.url.endswith("/"):
            return [Link("b", {"from": "root"}), "/only"]
        return None

    async def visited(self, url: Url, links: Sequence[str]) -> None:
        self.seen.append(("visited", [link.rpartition("/")[2] for link in links]))


def test_visit_replaces_the_links_and_visited_has_them(tmp_path: Path) -> None:
    spec = [*SITE, page("/only", anchors("/a"))]
    _, log = hooked(tmp_path, Visiting, spec=spec)
    assert paths(log) == ["/", "/b", "/only", "/a"]
    assert Watching.seen == [
        *(("visit", "", None), ("visited", ["b", "only"])),
        *(("visit", "b", {"from": "root"}), ("visited", [])),
        *(("visit", "only", None), ("visited", ["a"])),
        *(("visit", "a", None), ("visited", ["b", ""])),
    ]


class Outside(Watching):
    """Puts URLs in from a thread, once the first page has come."""

    def start(self, seeds: Sequence[str]) -> None:
        self.root = seeds[0]

    async def visit(self, url: Url, response: Response) -> list[str]:
        self.seen.append((response.url.rpartition("/")[2], url.depth, url.source, url.state))
        if response.url == self.root:
            self.seen.append(await asyncio.to_thread(self._put))
            # Known now.
            assert await self.enqueue(f"{self.root}a") == 0
        return []

    def _put(self) -> int:
        return self.enqueue([f"{self.root}a", f"{self.root}b"], state=[7]).result(30)


@pytest.mark.slow
def test_urls_are_put_in_from_a_thread(tmp_path: Path) -> None:
    with SimulatedWeb(spec=SITE) as web:
        name = f"{Outside.__module__}.Outside"
        crawl = crawl_of(web, tmp_path, [web.url("a.test")], settings={"KROWL_HOOKS": name})
        assert isinstance(crawl, SimulatedCrawl)
        crawl.run()
        assert sorted(paths(web.log())) == ["/", "/a", "/b"]
    assert Watching.seen[:2] == [("", 0, "", None), 2]
    assert sorted(Watching.seen[2:]) == [("a", 0, "", [7]), ("b", 0, "", [7])]
