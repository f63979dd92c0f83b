"""A web of capsules as a whole: its exact set, politeness, changed and hostile answers."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from krowlspider.archive.tools.check import check_folder
from tests.gemini.answers import COSTLY, MALFORMED, page
from tests.gemini.capsules import CapsuleProcess, Capsules, Paths
from tests.gemini.jetforce import JetforceTree
from tests.gemini.tree import Tree
from tests.gemini.visits import counts, hasty, unasked
from tests.support.crawling import Crawl
from tests.whole_crawls.test_gemini import dropped

if TYPE_CHECKING:
    from pathlib import Path

DELAY = 0.05
SETTINGS = {"KROWL_GEMINI": "1", "KROWL_GEMINI_DELAY_MIN": DELAY, "KROWL_COMMIT_INTERVAL": "1"}


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    ("server_of", "shape"),
    [(JetforceTree, Tree(hosts=200, pages=100, filler=20)), (CapsuleProcess, Tree(40, 50))],
    ids=["20_000_of_jetforce", "2_000_of_ours"],
)
def test_a_web_of_capsules_is_crawled_once(
    tmp_path: Path, server_of: type[JetforceTree | CapsuleProcess], shape: Tree
):
    """As many pages as there are in Geminispace: each page once, none that robots.txt denies, no
    request before the delay or the robots.txt of its host; and the archive has all of it. The
    server of ours has what files have not: redirects, and media types with parameters."""
    with server_of(shape, tmp_path) as server:
        tree = server.tree
        seeds = {"seeds": tree.seed}
        # Few at a time, with much patience: on a busy machine none is tried twice.
        settings = {
            **SETTINGS,
            "CONCURRENT_REQUESTS": 32,
            "KROWL_CONNECT_TIMEOUT": 120,
            "DOWNLOAD_TIMEOUT": 300,
        }
        crawl = Crawl(tmp_path / "job", arguments=seeds, settings=settings, feed=False)
        # Two minutes on a quiet machine; several times that beside other tests.
        crawl.start().process.wait(1700)
        crawl.wait()
        visits = server.stop()
    asked = counts(visits)
    robots = {f"{tree.base(host)}/robots.txt" for host in range(tree.hosts)}
    pages = tree.all_pages()
    if server_of is JetforceTree:
        pages |= {f"{url}/" for url in tree.redirects()}
    assert set(asked) == pages | tree.redirects() | tree.others() | robots
    assert set(asked.values()) == {1}
    assert hasty(visits, DELAY) == []
    assert unasked(visits) == []
    assert crawl.stats["krowl/frontier/done_count"] == len(pages) >= shape.hosts * shape.pages
    assert crawl.stats["krowl/gemini/certificate_count/first"] == shape.hosts
    report = check_folder(tmp_path / "job" / "warc")
    assert (report.problems, report.warnings) == ([], [])
    # Response and request of each URL, and a certificate of each host.
    assert report.records >= 2 * len(asked) + shape.hosts
    assert not crawl.complaints


@pytest.mark.slow
def test_a_changed_certificate_is_refused_and_counted(tmp_path: Path):
    """Nothing more is asked of its server; the pages before are kept. So with each of three."""
    with CapsuleProcess(Tree(hosts=6, pages=20, filler=20, changing=3), tmp_path) as server:
        tree = server.tree
        crawl = Crawl(tmp_path / "job", arguments={"seeds": tree.seed}, settings=SETTINGS).run()
        visits = server.stop()
    asked = counts(visits)
    changed = {f"capsule-{number}.test" for number in (3, 4, 5)}
    by_host = {name: [url for url in asked if f"//{name}:" in url] for name in changed}
    assert {len(urls) for urls in by_host.values()} == {3}
    others = {url for url in tree.all_pages() if not any(name in url for name in changed)}
    assert others <= set(asked)
    # The server learns no URL behind a certificate that is refused.
    refused = [visit for visit in visits if not visit.url]
    assert len(refused) >= 3
    assert crawl.stats["krowl/gemini/certificate_count/refused"] == len(refused)
    assert crawl.stats["krowl/gemini/certificate_count/first"] == 6
    names = [path.name for path in (tmp_path / "job" / "warc").glob("*.warc.gz")]
    content = b"".join(
        gzip.decompress((tmp_path / "job" / "warc" / name).read_bytes()) for name in names
    )
    assert content.count(b"BEGIN CERTIFICATE") == 6


@pytest.mark.slow
def test_a_changed_certificate_is_accepted_if_the_policy_says_so(tmp_path: Path):
    with CapsuleProcess(Tree(hosts=3, pages=10, filler=20, changing=1), tmp_path) as server:
        tree = server.tree
        settings = {**SETTINGS, "KROWL_GEMINI_CERTIFICATES": "accept"}
        crawl = Crawl(tmp_path / "job", arguments={"seeds": tree.seed}, settings=settings).run()
        visits = server.stop()
    assert tree.all_pages() <= counts(visits).keys()
    assert crawl.stats["krowl/gemini/certificate_count/accepted"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hostile_capsules_cost_little(tmp_path: Path):
    """Each capsule gives another answer that is malformed, slow, endless or cut. Each ends within
    the time and size allowed, the crawl ends, and a good capsule is crawled meanwhile."""
    # Those to slow down are obeyed ten times, which takes minutes.
    malformed = {name: each for name, each in MALFORMED.items() if each.status != "44"}
    answers = {**malformed, **COSTLY}
    hosts = {f"bad-{number}.test": answer for number, answer in enumerate(answers.values())}
    paths = Paths({f"{host}/": answer for host, answer in hosts.items()})
    paths.answers["good.test/"] = page("".join(f"=> /{number}\n" for number in range(20)))
    paths.answers |= {f"good.test/{number}": page("# Good\n") for number in range(20)}
    with Capsules(paths) as capsules:
        seeds = [capsules.url(host=host) for host in (*hosts, "good.test")]
        crawl = Crawl(
            tmp_path / "job",
            arguments={"seeds": ",".join(seeds)},
            settings={
                **SETTINGS,
                "DOWNLOAD_TIMEOUT": 5,
                "DOWNLOAD_MAXSIZE": 2_000_000,
                "RETRY_TIMES": 0,
            },
        ).run()
        visits = capsules.visits
    good = [visit for visit in visits if visit.host.startswith("good.test")]
    assert len(good) == 22
    # None holds a connection for longer than the timeout.
    assert max(visit.ended - visit.opened for visit in visits) < 10
    found = {item["url"] for item in crawl.items}
    names = dict(zip(answers, hosts, strict=True))
    for name in malformed:
        assert capsules.url(host=names[name]) not in found, name
    taken = {name for name in COSTLY if capsules.url(host=names[name]) in found}
    assert taken == {"cut"}
    assert sum(dropped(crawl).values()) >= len(answers) - 1
    # The huge ones end at the limit.
    assert crawl.stats["downloader/response_bytes"] < 12_000_000
    assert "Traceback" not in crawl.log
    assert check_folder(tmp_path / "job" / "warc").problems == []
