"""What goes beyond gocrawl's hooks: scope, priority, archive, weight, state; and other spiders."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Spider

from krowlspider.cluster.transport.message import decode
from krowlspider.frontier.entry import Entry, EntryLine
from krowlspider.hooks import SKIP, HookError, Hooks, Link, Redact
from krowlspider.job.codec import RequestCodec
from krowlspider.job.hooking.hooked import Hooked
from krowlspider.job.intake import Intake
from krowlspider.recrawl.value import USUAL, Terms
from tests.hooks.test_gocrawl_hooks import SITE, Watching, hooked
from tests.job.test_cluster_traffic import identify, traffic_in
from tests.support.archived import Records, valid_records
from tests.support.crawling import Crawl, write_seeds
from tests.support.crawls import ROBOTS, anchors, crawl_of, dropped, page, pages, paths, refused
from tests.support.rawweb import Raw, RawWeb
from tests.support.simulated_crawl import SimulatedCrawl
from tests.support.simulated_web import SimulatedWeb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from scrapy import Request
    from scrapy.http import Response

    from krowlspider.hooks import Answer, Failed, Url


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Watching.seen.clear()


class Scoping(Watching):
    def scope(self, link: Url, reason: str | None) -> bool | None:
        path = link.url.rpartition("/")[2]
        self.seen.append((path, reason))
        return {"a": True, "film.mp4": True, "b": False}.get(path)


def test_scope_lifts_rules_of_the_spider_alone(tmp_path: Path) -> None:
    """What is denied may be lifted; the extension, like all other rules, stays."""
    spec = [ROBOTS, page("/", anchors("/a", "/b", "/c", "/film.mp4")), page("^/", "")]
    crawl, log = hooked(tmp_path, Scoping, spec=spec, arguments={"deny": "/a$ /c$ /film"})
    assert sorted(paths(log)) == ["/", "/a"]
    assert Counter(Watching.seen) == {
        **{(path, "deny"): 1 for path in ("a", "c", "film.mp4")},
        ("b", None): 1,
    }
    assert dropped(crawl) == {"hook": 1, "deny": 1, "extension": 1}


def test_scope_leads_to_no_forbidden_address(tmp_path: Path) -> None:
    spec = [page("/", anchors("http://10.0.0.1/a")), ROBOTS]
    crawl, log = hooked(tmp_path, Scoping, spec=spec, arguments={"same_host": 1}, RETRY_TIMES=0)
    assert paths(log) == ["/"]
    assert crawl.stats["krowl/fetch/failed_count/address_forbidden"] == 1


class Ranking(Hooks):
    def priority(self, link: Url) -> int:
        return int(link.url.rpartition("/")[2])


def test_priority_orders_the_links_of_a_host(tmp_path: Path) -> None:
    """One that is out of range counts as a failure, and leaves the link where it was."""
    names = [1, 7, 3, 5000, -2]
    spec = [ROBOTS, page("/", anchors(*(f"/{name}" for name in names))), page("^/", "")]
    crawl, log = hooked(tmp_path, Ranking, spec=spec)
    assert paths(log)[1:] == ["/7", "/3", "/1", "/5000", "/-2"]
    assert crawl.stats["krowl/hooks/failed_count/priority"] == 1
    assert "5000 is no priority from -999 to 999" in crawl.log


class Archiving(Watching):
    async def archive(self, url: Url, answer: Answer) -> Any:
        await asyncio.sleep(0)
        path = url.url.rpartition("/")[2]
        self.seen.append((path, answer.status))
        assert (b"Host", url.host.encode()) in answer.request_headers
        if path in ("b", "robots.txt"):
            return SKIP
        return Redact("Set-Cookie", "user-agent") if path == "a" else None


def test_archive_keeps_skips_and_redacts(tmp_path: Path) -> None:
    """A page that is skipped is done, with its row. A robots.txt is never skipped. Every tool finds
    the records valid."""
    secret = {"Content-Type": "text/html", "Set-Cookie": "id=s3cret"}
    spec = [*SITE[:2], {"path": "/a", "headers": secret, "body": "open"}, *SITE[3:]]
    crawl, log = hooked(tmp_path, Archiving, spec=spec)
    assert sorted(Watching.seen) == [
        *(("", 200), ("a", 200), ("b", 200), ("gone", 404), ("robots.txt", 404)),
    ]
    records = valid_records(crawl.jobdir / "warc")
    root = next(entry.url for entry in log if entry.path == "/")
    asked, answered = (
        records.of_kind(kind).about(f"{root}a").only for kind in ("request", "response")
    )
    assert (asked["Krowl-Redacted"], answered["Krowl-Redacted"]) == (("set-cookie user-agent",) * 2)
    assert b"Set-Cookie: [removed]\r\n" in answered.block
    assert answered.block.endswith(b"\r\n\r\nopen")
    assert b"User-Agent: [removed]\r\n" in asked.block
    assert not any(b"s3cret" in record.block for record in records)
    assert not records.about(f"{root}b")
    assert len(records.about(f"{root}robots.txt")) == 2
    assert ["Krowl-Redacted" in record for record in records.about(root)] == [False, False]
    assert crawl.stats["krowl/frontier/done_count"] == 4
    assert crawl.stats["krowl/archive/left_out_count"] == 1


class Forgetting(Hooks):
    def archive(self, url: Url, answer: Answer) -> Any:
        return Redact("set-cookie")


def test_what_is_cut_is_redacted_too(tmp_path: Path) -> None:
    """Of a large response, and of one that is cut, the archive has no cookie either."""
    secret = {"Content-Type": "text/html", "Set-Cookie": "id=s3cret"}
    spec = [
        ROBOTS,
        page("/", anchors("/large", "/cut")),
        {"path": "/large", "headers": secret, "body": "x" * 900_000},
        {"path": "/cut", "headers": secret, "body": "cut" * 20_000, "close_early": True},
    ]
    crawl, _ = hooked(tmp_path, Forgetting, spec=spec, RETRY_TIMES=0, KROWL_WARC_REVISIT=0)
    blocks = [record.block for record in Records.of(crawl.jobdir / "warc").of_kind("response")]
    assert sum(b"Set-Cookie: [removed]" in block for block in blocks) == 2
    assert max(map(len, blocks)) > 900_000
    assert not any(b"s3cret" in block for block in blocks)


class ForgettingAll(Hooks):
    def archive(self, url: Url, answer: Answer) -> Any:
        return Redact("set-cookie", "x-secret", "link")


def test_no_line_of_a_redacted_field_is_left(tmp_path: Path) -> None:
    """In trailers, folded, repeated, with blanks, and before the final answer."""
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    chunks = (
        b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n<p\r\n1\r\n>\r\n0\r\n"
        b"Set-Cookie: s3cret\r\nX-Kept: kept\r\nx-secret:\ts3cret\r\n s3cret\r\n\r\n"
    )
    plain = b"Content-Length: 0\r\n\r\n"
    answers = {
        "/trailers": start + chunks,
        "/cut-in-trailers": start + chunks[:-4],
        "/folded": start + b"Set-Cookie : a;\r\n\ts3cret\r\nset-cookie: s3cret\r\n" + plain,
        "/hints": b"HTTP/1.1 103 Early Hints\r\nLink: <s3cret>\r\n\r\n" + start + plain,
    }
    with RawWeb({path: Raw(data, closes="cut" in path) for path, data in answers.items()}) as web:
        seeds = [f"http://a.test:{web.port}{path}" for path in answers]
        settings = {"KROWL_HOOKS": f"{__name__}.ForgettingAll", "RETRY_TIMES": 0}
        crawl = Crawl(
            tmp_path / "job",
            arguments={"seeds": write_seeds(tmp_path / "seeds", seeds)},
            settings={**settings, "KROWL_WARC_REVISIT": 0},
        ).run()
    blocks = [record.block for record in Records.of(crawl.jobdir / "warc").of_kind("response")]
    assert len(blocks) == len(answers) + 1
    assert not [block for block in blocks if b"s3cret" in block]
    whole = next(block for block in blocks if b"x-secret" in block and block.endswith(b"\r\n\r\n"))
    assert whole.endswith(
        b"1\r\n>\r\n0\r\nSet-Cookie: [removed]\r\nX-Kept: kept\r\nx-secret: [removed]\r\n\r\n"
    )


def test_what_readers_need_is_not_redacted() -> None:
    with pytest.raises(HookError, match="the archive needs 'content-length' as it is"):
        Redact("Content-Length")
    with pytest.raises(HookError, match="no name of a header field"):
        Redact("a: b\r\n")


class Weighing(Hooks):
    def recrawl_weight(self, url: str) -> Any:
        return {"http://a.test/": 5, "http://b.test/": "heavy"}.get(url)


def test_the_weight_multiplies_the_terms_of_a_page() -> None:
    counted: Counter[str] = Counter()
    hooks = Hooked(
        Weighing(), timeout=1, fetch_timeout=1, count=lambda name: counted.update([name])
    )
    for usual in (None, lambda url: Terms(0.5, 60, 600)):
        terms = hooks.terms(usual)
        assert terms is not None
        own = USUAL if usual is None else usual("")
        assert terms("http://a.test/") == own._replace(weight=5.0)
        assert terms("http://b.test/") == terms("http://c.test/") == own
    assert counted == {"krowl/hooks/failed_count/recrawl_weight": 2}


def test_the_weight_reaches_the_schedule(tmp_path: Path) -> None:
    """It is called for each page that gets a plan; one that is missing has a wait of its own."""
    hooked(tmp_path, Planning, KROWL_RECRAWL="continuous", CLOSESPIDER_TIMEOUT=20)
    assert Counter(Watching.seen) == {"": 1, "a": 1, "b": 1}


class Planning(Watching):
    def recrawl_weight(self, url: str) -> float:
        self.seen.append(url.rpartition("/")[2])
        return 2.0


# --- state ---


class Carrying(Watching):
    """Gives each link of a page the number of the page before it, through retries and redirects."""

    def visit(self, url: Url, response: Response) -> list[Link]:
        number = 0 if url.state is None else url.state["number"]
        self.seen.append((response.url.rpartition("/")[2], number))
        found = response.text.split()
        return [Link(f"/{path}", {"number": number + 1}) for path in found]


CHAIN = [
    ROBOTS,
    page("/", "1"),
    page("/1", "moved"),
    {"path": "/moved", "redirect": "/2"},
    page("/2", "", first=1, status=500),
    page("/2", "3"),
    *(page(f"/{number}", f"{number + 1}") for number in range(3, 12)),
    page("/12", ""),
]


def test_the_state_comes_with_the_page_after_kills(tmp_path: Path) -> None:
    """It is kept with the URL on disk, through a redirect and a retry too."""
    name = f"{Carrying.__module__}.Carrying"
    with SimulatedWeb(spec=CHAIN) as web:
        settings = {"KROWL_HOOKS": name, "KROWL_DELAY_MIN": 0.4}
        for most in (3, 9):
            crawl = crawl_of(web, tmp_path, [web.url("a.test", "/")], settings=settings)
            assert isinstance(crawl, SimulatedCrawl)
            crawl.run_until_killed(web, lambda most=most: len(pages(web.log())) >= most)
        crawl = crawl_of(web, tmp_path, [web.url("a.test", "/")], settings=settings).run()
    assert crawl.stats["krowl/frontier/queued"] == 0
    expected = {"": 0, **{str(number): number for number in range(1, 13)}}
    # /moved has the number of /2, to which it leads.
    assert dict(Watching.seen) == expected


def test_the_state_goes_to_other_nodes_and_into_files() -> None:
    entry = Entry("http://a.test/", 1, state='{"a":1}')
    codec = RequestCodec(Spider("news"))
    for always in (False, True):
        message = decode(codec.message(entry, always=always))
        assert message.state == '{"a":1}'
    assert codec.received(message).state == '{"a":1}'
    assert EntryLine.of_entry(entry, 0, "queued").entry(2048).state == '{"a":1}'
    with pytest.raises(ValueError, match="truncated"):
        EntryLine(url="http://a.test/", hook_state="{").entry(2048)


class Heavy(Watching):
    def filter(self, link: Url, is_known: bool) -> None:
        link.state = "x" * 5000 if link.url.endswith("/a") else {1, 2}

    def visit(self, url: Url, response: Response) -> None:
        self.seen.append(url.state)


def test_a_state_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    """The link is queued without it."""
    crawl, _ = hooked(tmp_path, Heavy)
    # A set becomes a list.
    assert Counter(map(str, Watching.seen)) == {"[1, 2]": 3, "None": 1}
    assert crawl.stats["krowl/hooks/failed_count/filter"] == 1
    assert "/a has 5,002 bytes as JSON, more than 4,096: keep it in a store" in crawl.log


# --- nodes ---


class Refusing(Watching):
    def filter(self, link: Url, is_known: bool) -> bool:
        self.seen.append((link.url, is_known))
        link.state = "found"
        return True


def test_the_finder_decides_and_the_owner_does_not(tmp_path: Path) -> None:
    """A URL of another node's host is decided about here. One that comes from another node, known
    or wanted again, is not."""

    async def main() -> None:
        hooks = Hooked(Refusing(), timeout=1, fetch_timeout=1, count=lambda _: None)
        job, traffic = traffic_in(tmp_path)
        intake = Intake(
            job.frontier,
            job.hasher,
            RequestCodec(Spider("news")),
            job._settings,
            node=traffic._node,
            hooks=hooks.links,
            fail=job.fail,
            identify=identify,
            wake=lambda: None,
        )
        traffic._intake = intake
        urls = ["http://a.test/x", "http://b.test/x"]
        for _ in range(2):
            intake.discover(urls, depth=1, via="a.test", page="http://a.test/")
        assert Watching.seen == [(url, known) for known in (False, True) for url in urls]
        assert job.frontier.queued == 2
        sent = [decode(message) for _, message in traffic.outbox.after("b", -1, 10)]
        assert [message.state for message in sent] == ['"found"'] * 2
        assert [message.rest.get("dont_filter", False) for message in sent] == [False, True]
        del Watching.seen[:]
        for message in sent:
            message.url = message.url.replace("b.test", "a.test").replace("/x", "/y")
        await traffic.take_in(sent)
        # The second one is fetched although it is known by then.
        assert (Watching.seen, job.frontier.queued) == ([], 4)
        await job.close()

    asyncio.run(main())


# --- ordinary spiders ---


class Plain(Watching):
    async def start(self, seeds: Any) -> None:
        self.seen.append(("start", list(seeds)))

    def filter(self, link: Url, is_known: bool) -> bool | None:
        link.state = "mine"
        path = link.url.rpartition("/")[2]
        return False if path == "two" else is_known or None

    def error(self, failed: Failed) -> None:
        self.seen.append((failed.kind, failed.url.state, str(failed.error)))

    def visit(self, url: Url, response: Response) -> list[str]:
        raise AssertionError("the callback visits")


class PlainSpider(Spider):
    name = "plain"

    async def start(self) -> AsyncIterator[Any]:
        for path in ("one", "two", "one", "two"):
            yield self._request(path)

    def _request(self, path: str) -> Request:
        from scrapy import Request  # noqa: PLC0415

        return Request(f"{self.root}/{path}")

    def parse(self, response: Response) -> Iterator[Any]:
        raise ValueError("of a callback")


def test_hooks_of_an_ordinary_spider(tmp_path: Path) -> None:
    """filter, error, start and the hooks of fetches hold; its callbacks read the pages. What is
    known is fetched again if filter wants it."""
    with SimulatedWeb(spec=[ROBOTS, page("^/", "x")]) as web:
        crawl = SimulatedCrawl(
            tmp_path / "job",
            "plain",
            arguments={"root": web.url("a.test").rstrip("/")},
            settings={
                "KROWL_HOOKS": f"{Plain.__module__}.Plain",
                "SPIDER_MODULES": "tests.hooks.test_more_hooks",
            },
        ).run()
        assert paths(web.log()) == ["/one", "/one"]
    assert Watching.seen == [("start", []), *[("callback", "mine", "of a callback")] * 2]
    assert dropped(crawl) == {"hook": 2}


# --- bad classes ---


class Nothing(Hooks):
    pass


class Waiting(Hooks):
    async def filter(self, link: Url, is_known: bool) -> bool:  # type: ignore[override]
        return True


class NoHooks:
    pass


class Broken(Hooks):
    def __init__(self) -> None:
        raise RuntimeError("no database")

    def end(self, reason: str) -> None: ...


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Nothing", "overrides none of the hooks: archive, compute_delay,"),
        ("Waiting", "has filter() as a coroutine: where it is called nothing can wait"),
        ("NoHooks", "is no class derived from krowlspider.hooks.Hooks"),
        ("Broken", "no database"),
        ("Missing", "cannot be loaded"),
    ],
)
def test_a_class_that_cannot_be_used_stops_the_start(tmp_path: Path, name: str, fault: str) -> None:
    crawl = SimulatedCrawl(
        tmp_path / "job",
        arguments={"seeds": write_seeds(tmp_path / "seeds.txt", ["a.test"])},
        settings={"KROWL_HOOKS": f"tests.hooks.test_more_hooks.{name}"},
    )
    line = refused(crawl)
    assert "KROWL_HOOKS" in line
    assert fault in line
