"""Each key of a sheet that decides the pop or the fetch changes what is sent and kept."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.policies.keys import KEYS
from tests.mockweb.server import certificate
from tests.support.archived import valid_records
from tests.support.crawling import scrapy, write_seeds
from tests.support.crawls import (
    AT_ONCE,
    ROBOTS,
    anchors,
    crawl_of,
    crawl_raw,
    crawled,
    dropped,
    page,
)
from tests.support.rawweb import Raw
from tests.support.simulated_crawl import SimulatedCrawl, interrupted_when
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedRawWeb, SimulatedWeb
from tests.whole_crawls import test_policies

if TYPE_CHECKING:
    from tests.mockweb.log import Entry

COOKIES = """# Netscape HTTP Cookie File
.a.test\tTRUE\t/\tFALSE\t0\tsession\ts3cret
a.test\tFALSE\t/deep\tFALSE\t4102444800\tdeep\td33p
#HttpOnly_a.test\tFALSE\t/\tTRUE\t0\tsecure\tonly-https
other.test\tFALSE\t/\tFALSE\t0\tother\tother
a.test\tFALSE\t/\tFALSE\t1000000000\told\texpired
"""
SENT = b"Basic " + b64encode(b"user:pass:word")
SHEETS = """
[[sheet]]
name = "known"
match = ["a.test", "c.test"]
user_agent_suffix = "(project 7)"
headers = { "X-Project" = "7", "accept-language" = "de" }
cookies = "cookies.txt"
auth = "auth"
auth_over_http = true

[[sheet]]
name = "by https only"
match = ["b.test", "s.test"]
auth = "auth"

[[sheet]]
name = "no words"
match = ["test,c,)/deep"]
user_agent_suffix = "(deep)"
"""


def html(*links: str) -> Raw:
    body = "".join(f"<a href={link}>x</a>" for link in links).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Raw(head + body)


def with_picture(path: str) -> Raw:
    body = f"<img src={path}>".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Raw(head + body)


def host(request: bytes) -> str:
    return headers_of(request)[b"Host"].decode().partition(":")[0]


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}{parts.path}"


def page_rows(jobdir: Path) -> list[dict[str, Any]]:
    lines = scrapy("frontier", jobdir, "--pages").stdout.splitlines()
    return [json.loads(line) for line in lines]


def moved(to: str) -> Raw:
    return Raw(f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())


def policies(folder: Path, text: str = SHEETS) -> Path:
    (folder / "cookies.txt").write_text(COOKIES)
    (folder / "auth").write_text("user:pass:word\n")
    path = folder / "policies.toml"
    path.write_text(text)
    return path


def headers_of(request: bytes) -> dict[bytes, bytes]:
    lines = request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return dict(line.split(b": ", 1) for line in lines)


def test_headers_cookies_and_credentials_go_to_their_site(tmp_path: Path) -> None:
    site = {"/": html("/deep/1", "/away"), "/deep/1": html(), "/plain": html()}
    with (
        SimulatedRawWeb(site) as web,
        SimulatedRawWeb({"/": html()}, tls=certificate()) as secured,
    ):
        site["/away"] = moved(web.url("x.test", "/plain"))
        seeds = [web.url(f"{name}.test", "/") for name in "abc"]
        crawl = crawl_raw(
            tmp_path,
            [*seeds, secured.url("s.test")],
            KROWL_POLICIES=policies(tmp_path),
        )
        sent = {}
        for _, request in web.requests + secured.requests:
            found = headers_of(request)
            host = found[b"Host"].decode().partition(":")[0]
            sent[host, request.split(b" ")[1].decode()] = found
    assert {key for key, found in sent.items() if b"Authorization" in found} == {
        key for key in sent if key[0] in ("a.test", "c.test", "s.test")
    }
    assert {found[b"Authorization"] for found in sent.values() if b"Authorization" in found} == {
        SENT
    }
    assert {key: found[b"Cookie"] for key, found in sent.items() if b"Cookie" in found} == {
        ("a.test", "/robots.txt"): b"session=s3cret",
        ("a.test", "/"): b"session=s3cret",
        ("a.test", "/away"): b"session=s3cret",
        ("a.test", "/deep/1"): b"deep=d33p; session=s3cret",
    }
    agent = sent["b.test", "/"][b"User-Agent"]
    assert agent not in (b"", agent + b" (project 7)")
    agents = {key: found[b"User-Agent"].removeprefix(agent) for key, found in sent.items()}
    assert agents == {
        key: {"a.test": b" (project 7)", "c.test": b" (project 7)"}.get(key[0], b"") for key in sent
    } | {("c.test", "/deep/1"): b" (deep)"}
    assert {key[0] for key, found in sent.items() if b"X-Project" in found} == {"a.test", "c.test"}
    assert sent["a.test", "/"][b"Accept-Language"] == b"de"
    assert sent["b.test", "/"][b"Accept-Language"] == b"en"
    assert ("x.test", "/plain") in sent
    requests = valid_records(crawl.jobdir / "warc").of_kind("request")
    assert len(requests) == len(sent)
    blocks = b"".join(each.block for each in requests)
    assert not [word for word in (SENT, b"s3cret", b"d33p") if word in blocks]
    assert blocks.count(b"\r\nAuthorization: [removed]\r\n") == 9 + 1
    assert blocks.count(b"\r\nCookie: [removed]\r\n") == 4
    assert "s3cret" not in crawl.log
    assert "pass:word" not in crawl.log


KEPT_OUT = """
[[sheet]]
name = "row only"
match = ["a.test", "e.test"]
archive = false
requisites = true

[[sheet]]
name = "permitted"
match = ["b.test"]
robots = "override"
permission = "Letter of 2026-11-02, A. Keeper"

[[sheet]]
name = "whole"
match = ["test,b,)/page"]
requisites = true
"""
DISALLOWED = Raw(
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\r\n"
    b"User-agent: *\nDisallow: /\nCrawl-delay: 2"
)
PICTURE = Raw(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 3\r\n\r\npng")


def test_sheets_decide_archive_requisites_and_robots(tmp_path: Path) -> None:
    """Of a site that is not archived its rows stay, and the archive has a permission in writing."""
    with (
        SimulatedRawWeb(
            {"/": html("/page"), "/page": with_picture("/p.png"), "/p.png": PICTURE}
        ) as open_,
        SimulatedRawWeb(
            {
                "/robots.txt": DISALLOWED,
                "/": html("/page"),
                "/page": with_picture("/p.png"),
                "/p.png": PICTURE,
            }
        ) as closed,
    ):
        seeds = [
            open_.url("a.test"),
            open_.url("d.test"),
            closed.url("b.test"),
            closed.url("c.test"),
            closed.url("e.test"),
        ]
        crawl = crawl_raw(tmp_path, seeds, KROWL_POLICIES=policies(tmp_path, KEPT_OUT))
        asked = [
            f"{host(request)}{path}" for web in (open_, closed) for path, request in web.requests
        ]
    # The icon is a requisite too. d.test and c.test have no sheet, e.test has no permission.
    assert sorted(asked) == sorted(
        [
            *(f"a.test/{each}" for each in ("robots.txt", "", "page", "p.png", "favicon.ico")),
            *(f"b.test/{each}" for each in ("robots.txt", "", "page", "p.png", "favicon.ico")),
            *("c.test/robots.txt", "d.test/robots.txt", "d.test/", "d.test/page"),
            "e.test/robots.txt",
        ]
    )
    records = valid_records(crawl.jobdir / "warc")
    there = records.of_kind("response", "revisit")
    left = ("a.test/", "a.test/page", "a.test/p.png", "a.test/favicon.ico")
    assert sorted(path_of(each.url) for each in there) == sorted({*asked} - {*left})
    assert len(records.of_kind("request")) == len(there)
    notes = records.of_kind("metadata")
    assert notes.only.url == closed.url("b.test", "/robots.txt")
    assert notes.only.block_fields == [
        ("robots", "override"),
        ("permission", "Letter of 2026-11-02, A. Keeper"),
        ("sheet", "permitted, line 12"),
    ]
    rows = {path_of(row["url"]): row for row in page_rows(crawl.jobdir)}
    assert rows.keys() == {f"{name}.test/{each}" for name in "abd" for each in ("", "page")}
    assert {path for path, row in rows.items() if "warc_date" not in row} == {
        "a.test/",
        "a.test/page",
    }
    # The digest shows whether a page has changed.
    assert rows["a.test/page"]["payload_digest"] == rows["b.test/page"]["payload_digest"]
    assert crawl.stats["krowl/archive/left_out_count"] == len(left)
    assert crawl.stats["krowl/robots/overridden_count"] == 4
    assert crawl.stats["krowl/frontier/dropped_count/robots"] == 2
    file = f"KROWL_POLICIES={tmp_path / 'policies.toml'}"
    view = scrapy("frontier", crawl.jobdir, "--host", f"b.test:{closed.port}", "-s", file)
    assert [line for line in view.stdout.decode().splitlines() if line.startswith("policy")] == [
        "policy   robots = override: sheet permitted, line 11",
        "policy   permission = Letter of 2026-11-02, A. Keeper: sheet permitted, line 12",
        "policy   some of its paths have sheets of their own: --explain URL names them",
    ]
    shown = json.loads(
        scrapy(
            "frontier", crawl.jobdir, "--host", f"a.test:{open_.port}", "--json", "-s", file
        ).stdout
    )
    assert shown["sheets"] == [
        "requisites = True: sheet row only, line 6",
        "archive = False: sheet row only, line 5",
    ]
    without = scrapy("frontier", crawl.jobdir, "--host", f"b.test:{closed.port}")
    assert b"policy" not in without.stdout


def test_a_sheet_turns_requisites_off(tmp_path: Path) -> None:
    """Those of its pages, where KROWL_REQUISITES fetches them for all sites."""
    text = '[[sheet]]\nname = "bare"\nmatch = ["a.test"]\nrequisites = false\n'
    site = {"/": with_picture("/p.png"), "/p.png": PICTURE}
    with SimulatedRawWeb(site) as web:
        crawl_raw(
            tmp_path,
            [web.url("a.test"), web.url("b.test")],
            KROWL_REQUISITES="site",
            KROWL_POLICIES=policies(tmp_path, text),
        )
        asked = sorted(f"{host(request)}{path}" for path, request in web.requests)
    whole = ("b.test/", "b.test/favicon.ico", "b.test/p.png", "b.test/robots.txt")
    assert asked == ["a.test/", "a.test/robots.txt", *whole]


WAITS = """
[[sheet]]
name = "slow"
match = ["a.test", "c.test"]
delay = 3

[[sheet]]
name = "alone"
match = ["d.test"]
concurrency = 1

[[sheet]]
name = "wide"
match = ["f.test"]
concurrency = 4
"""


def test_sheets_decide_delay_and_concurrency(tmp_path: Path) -> None:
    """The Crawl-delay of c.test is longer than its sheet's delay."""
    hosts = [f"{number}.{name}.test" for name in "def" for number in range(4)]
    spec = [
        {"host": "^c\\.test", "path": "/robots.txt", "body": "User-agent: *\nCrawl-delay: 5"},
        {**ROBOTS, "latency": 1},
        page("/", anchors("/1", "/2"), latency=1),
        page("^/[12]$", "", latency=1),
    ]
    crawl, log = crawled(
        tmp_path,
        spec,
        *("a.test/", "b.test/", "c.test/", *hosts),
        **AT_ONCE,
        KROWL_POLICIES=policies(tmp_path, WAITS),
    )
    by_host: dict[str, list[Entry]] = {}
    for entry in log:
        by_host.setdefault(entry.host.partition(":")[0], []).append(entry)
    assert {len(found) for found in by_host.values()} == {4}

    def shortest(name: str) -> float:
        return min(later.start - entry.end for entry, later in pairwise(by_host[name]))

    view = scrapy(
        "frontier",
        crawl.jobdir,
        "--host",
        f"a.test:{log[0].host.partition(':')[2]}",
        *("-s", f"KROWL_POLICIES={tmp_path / 'policies.toml'}"),
    )
    assert b"\ndelay    3.00 s\n" in view.stdout
    assert 3 <= shortest("a.test") < 4
    assert shortest("b.test") < 1
    assert 5 <= min(later.start - entry.end for entry, later in pairwise(by_host["c.test"][1:]))
    assert {
        name: most_at_once(
            [each for host in by_host if host.endswith(name) for each in by_host[host]]
        )
        for name in (".d.test", ".e.test", ".f.test")
    } == {".d.test": 1, ".e.test": 2, ".f.test": 4}


def most_at_once(entries: list[Entry]) -> int:
    """Return the most requests that were in flight at one time."""
    return max(
        sum(other.start <= entry.start < other.end for other in entries) for entry in entries
    )


HEADS = """
[[sheet]]
name = "asked by HEAD"
match = ["a.test"]
head = true

[[sheet]]
name = "not asked by HEAD"
match = ["test,a,)/get", "c.test"]
head = false
"""


@pytest.mark.slow
def test_urls_of_unknown_type_are_asked_by_head_first(tmp_path: Path) -> None:
    """A HEAD is a request of its own, with the delay of its host. It is followed by its GET, unless
    the type is skipped; what answers without type or with an error is asked by GET too."""
    film = {"headers": {"Content-Type": "Video/MP4; x=y"}, "body": "film"}
    refusals = {f"/{status}": status for status in (403, 500, 503)}
    known = ("/page.html", "/folder/", "/a.PHP?x=1", "/get/film")
    asked = ("/text", "/v1.2", "/untyped", "/moved", "/cut", *refusals)
    spec = [
        ROBOTS,
        {**page("/", anchors("/old/1", "/old/2", "/old/3")), "host": "old.test"},
        page("^/old/", "", first=1, status=405, host="old.test"),
        page("/", anchors(*known, *asked, "/film", "/film?x=2")),
        {"path": "^/film", **film},
        {"path": "/get/film", **film},
        {"path": "/cut", "first": 1, "close_early": True, "body": "cut"},
        {"path": "/untyped", "body": ""},
        {"path": "/moved", "redirect": "/page.html"},
        *(
            page(path, "", first=1, status=status, headers={"Content-Type": "image/png"})
            for path, status in refusals.items()
        ),
        page("^/", ""),
    ]
    crawl, log = crawled(
        tmp_path,
        spec,
        *("a.test/", "b.test/film", "b.test/", "c.test/", "old.test/"),
        KROWL_DELAY_MIN=1,
        KROWL_POLICIES=policies(tmp_path, HEADS),
        KROWL_HEAD=1,
        RETRY_TIMES=0,
    )
    by_host: dict[str, list[Entry]] = {}
    for entry in log:
        by_host.setdefault(entry.host.partition(":")[0], []).append(entry)
    found = {
        name: Counter((entry.method, entry.path) for entry in entries)
        for name, entries in by_host.items()
    }
    every = ("/robots.txt", "/", *known, *asked)
    once = {("GET", path): 1 for path in every}
    heads = {("HEAD", path): 1 for path in (*asked, "/film", "/film?x=2")}
    assert found["a.test"] == {**once, **heads}
    # By the setting: a seed is asked by GET.
    others = Counter([("GET", "/film"), ("HEAD", "/get/film")])
    left = Counter([("HEAD", "/film"), ("GET", "/get/film")])
    assert found["b.test"] == Counter({**once, **heads}) + others - left
    films = {("GET", path): 1 for path in ("/film", "/film?x=2")}
    assert found["c.test"] == {**once, **films, ("GET", "/503"): 2}
    for entries in by_host.values():
        assert min(later.start - entry.end for entry, later in pairwise(entries)) >= 1
        places = [(entry.path, entry.method) for entry in entries]
        for path in asked:
            if (path, "HEAD") in places:
                # The GET comes next: the page keeps its place.
                assert places.index((path, "GET")) == places.index((path, "HEAD")) + 1
    assert crawl.stats["krowl/frontier/dropped_count/head_type"] == 4
    assert crawl.stats["krowl/head/request_count"] == 2 * len(heads) + 1
    # Once a server has refused HEAD, it is not asked so again.
    others = ["/old/1", "/old/2", "/old/3"]
    assert [entry.path for entry in by_host["old.test"] if entry.method == "HEAD"] == others[:1]
    assert [entry.path for entry in by_host["old.test"]][3:] == others
    methods = {
        each.block.split(b" ")[0]
        for each in valid_records(crawl.jobdir / "warc").of_kind("request")
    }
    assert methods == {b"GET"}


def test_a_kill_loses_no_page_that_is_not_archived(tmp_path: Path) -> None:
    """Each page is asked by HEAD first, and is known by its links alone."""
    sheet = '[[sheet]]\nname = "a"\nmatch = ["a.test"]\narchive = false\nhead = true\n'
    chain = [page(f"/{number}", anchors(f"/{number + 1}")) for number in range(12)]
    with SimulatedWeb(spec=[ROBOTS, *chain, page("/12", "")]) as web:
        settings = {"KROWL_POLICIES": policies(tmp_path, sheet), "KROWL_DELAY_MIN": 0.4}
        crawl = crawl_of(web, tmp_path, [web.url("a.test", "/0")], settings=settings)
        assert isinstance(crawl, SimulatedCrawl)
        crawl.run_until_killed(web, lambda: len(web.log()) >= 12)
        before = web.log()
        again = crawl_of(web, tmp_path, [web.url("a.test", "/0")], settings=settings).run()
        log = web.log()
    found = Counter((entry.method, entry.path) for entry in log)
    every = {f"/{number}" for number in range(13)}
    assert {path for method, path in found if method == "GET"} == {*every, "/robots.txt"}
    assert {path for method, path in found if method == "HEAD"} == every - {"/0"}
    # At most what was in flight or not committed is fetched again.
    assert len(before) < len(log)
    assert sum(found.values()) - len(found) <= 6
    rows = page_rows(again.jobdir)
    assert sorted(path_of(row["url"]) for row in rows) == sorted(f"a.test{path}" for path in every)
    assert again.stats["krowl/frontier/queued"] == 0


RECRAWLED = """
[[sheet]]
name = "often"
match = ["a.test"]
recrawl_max = 120

[[sheet]]
name = "seldom"
match = ["c.test"]
recrawl_min = 2_000_000

[[sheet]]
name = "light"
match = ["d.test"]
weight = 0.001
"""


@pytest.mark.slow
def test_sheets_decide_when_a_page_is_fetched_again(tmp_path: Path) -> None:
    """Without a sheet, a page is asked again after some days."""
    again: list[set[str]] = []
    with SimulatedRawWeb({"/": html()}) as web:
        seeds = write_seeds(tmp_path / "seeds.txt", [web.url(f"{name}.test") for name in "abcd"])
        for _ in range(2):
            web.requests.clear()
            SimulatedCrawl(
                tmp_path / "job",
                arguments={"seeds": seeds},
                settings={
                    "KROWL_RECRAWL": "continuous",
                    "KROWL_COMMIT_INTERVAL": 5,
                    "KROWL_POLICIES": policies(tmp_path, RECRAWLED),
                },
                script=interrupted_when(300),
            ).run()
            clocks.now += 10 * 86_400
            asked = Counter(host(request) for path, request in web.requests if path == "/")
            # The first start has new pages.
            again.append({name for name, count in asked.items() if count > 1 - len(again)})
            assert asked["a.test"] >= 2
    assert again == [{"a.test"}, {"a.test", "b.test"}]


def test_nothing_is_archived_of_a_site_that_is_left_out(tmp_path: Path) -> None:
    """Neither its metadata, nor its failures, nor its large pages. Its robots.txt is."""
    sheet = '[[sheet]]\nname = "a"\nmatch = ["a.test"]\narchive = false\n'
    spec = [
        ROBOTS,
        page("/", anchors("/cut", "/large")),
        page("/cut", "cut off", close_early=3),
        {"path": "/large", "size": 2_000_000},
    ]
    crawl, log = crawled(
        tmp_path,
        spec,
        *("a.test/", "b.test/large"),
        RETRY_TIMES=0,
        KROWL_POLICIES=policies(tmp_path, sheet),
        KROWL_WARC_ALSO="metadata,failures",
    )
    asked = [entry.path for entry in log if entry.host.startswith("a.test")]
    assert sorted(asked) == ["/", "/cut", "/large", "/robots.txt"]
    records = valid_records(crawl.jobdir / "warc")
    about = {path_of(each.url) for each in records if "WARC-Target-URI" in each}
    assert {path for path in about if path.startswith("a.test/")} == {"a.test/robots.txt"}
    digests = {path_of(row["url"]): row["payload_digest"] for row in page_rows(crawl.jobdir)}
    assert digests.keys() == {"a.test/", "a.test/large", "b.test/large"}
    assert digests["a.test/large"] == digests["b.test/large"]


def test_head_for_all_sites_needs_no_sheets(tmp_path: Path) -> None:
    spec = [
        ROBOTS,
        page("/", anchors("/film", "/text")),
        {"path": "/film", "headers": {"Content-Type": "video/mp4"}, "body": "film"},
        page("/text", ""),
    ]
    crawl, log = crawled(tmp_path, spec, "a.test/", KROWL_HEAD=1)
    assert [f"{entry.method} {entry.path}" for entry in log[2:]] == [
        *("HEAD /film", "HEAD /text", "GET /text"),
    ]
    assert crawl.stats["krowl/frontier/dropped_count/head_type"] == 1


BLOCKS = """
[[sheet]]
name = "old addresses"
match = ["127.0.0.9/32"]
user_agent_suffix = "(block)"
exclude = ["/out$"]
scope = "host"
trailing_slash = "drop"
max_pages = 3

[[sheet]]
name = "new addresses"
match = ["fd00:9::/32"]
user_agent_suffix = "(block)"
exclude = ["/out$"]
scope = "host"
trailing_slash = "drop"
max_pages = 3
"""


def test_blocks_of_addresses_hold_from_robots_txt_on(tmp_path: Path) -> None:
    """Also for the first page of a host after a restart, which no robots.txt comes before."""
    addresses = {"old.test": "127.0.0.9", "new.test": "fd00:9::7", "*.test": "127.0.0.1"}
    settings = {
        "KROWL_POLICIES": policies(tmp_path, BLOCKS),
        "KROWL_RESOLVE": json.dumps(addresses),
        "KROWL_ALLOW_ADDRESSES": "127.0.0.0/8,fd00::/16",
    }
    site = dict.fromkeys(("/out", "/1", "/1/", "/2", "/3", "/4"), html())
    with SimulatedRawWeb(site) as web:
        site["/"] = html(*site, web.url("away.test", "/2"))
        names = ["old.test", "new.test", "usual.test"]
        seeds = write_seeds(tmp_path / "seeds.txt", map(web.url, names))
        drops: Counter[str] = Counter()
        for most in (3, 0):
            arguments = {"seeds": seeds, "max_pages": most}
            crawl = SimulatedCrawl(tmp_path / "job", arguments=arguments, settings=settings).run()
            drops.update(dropped(crawl))
        asked: dict[str, dict[str, bool]] = defaultdict(dict)
        for path, request in web.requests:
            if path != "/robots.txt":
                agent = headers_of(request)[b"User-Agent"]
                asked[host(request)][path] = agent.endswith(b" (block)")
    covered = {"/": True, "/1": True, "/2": True}
    usual = dict.fromkeys(("/", "/out", "/1", "/1/", "/2", "/3", "/4"), False)
    assert asked == {
        "old.test": covered,
        "new.test": covered,
        "usual.test": usual,
        "away.test": {"/2": False},
    }
    # Of each covered host: the link to another host; /out; the two pages that are too many.
    assert drops == {"host": 2, "sheet_exclude": 2, "max_pages": 4}


# The crawl of each key, which would end otherwise without it.
CRAWLS = {
    **dict.fromkeys(
        (
            *("depth", "include", "exclude", "scope", "max_pages", "max_bytes", "max_seconds"),
            *("quota", "priority", "www", "index_pages", "trailing_slash", "duplicate_slashes"),
            *("parameters", "sort_query"),
        ),
        test_policies.test_each_key_of_a_sheet_changes_what_is_fetched,
    ),
    **dict.fromkeys(("delay", "concurrency"), test_sheets_decide_delay_and_concurrency),
    **dict.fromkeys(
        ("recrawl_min", "recrawl_max", "weight"), test_sheets_decide_when_a_page_is_fetched_again
    ),
    **dict.fromkeys(
        ("user_agent_suffix", "headers", "cookies", "auth", "auth_over_http"),
        test_headers_cookies_and_credentials_go_to_their_site,
    ),
    "head": test_urls_of_unknown_type_are_asked_by_head_first,
    "requisites": test_a_sheet_turns_requisites_off,
    **dict.fromkeys(
        ("archive", "robots", "permission"), test_sheets_decide_archive_requisites_and_robots
    ),
}


def test_each_key_has_a_crawl() -> None:
    assert CRAWLS.keys() == KEYS.keys()
    for key, crawl in CRAWLS.items():
        assert re.search(rf"\b{key} = ", Path(crawl.__code__.co_filename).read_text()), key
