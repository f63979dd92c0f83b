"""``scrapy frontier`` on the folders of real crawls: what it shows, what it changes, and what it mends."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.commands.frontiertext import repaired
from krowlspider.frontier.derived import Found
from krowlspider.frontier.repair import Repaired
from tests.crawling import ROOT, Crawl, frontier_view, write_seeds
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.oracle import reachable
from tests.test_crawl import DELAY, crawl_of, pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Without the pages that answer otherwise the second time: some of these crawls fetch again.
GRAPH = Graph(hosts=12, pages=10, seed=5, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})


def frontier(jobdir: Path, *options: str, given: str = "", code: int = 0) -> tuple[str, str]:
    """Run the command; what it prints, and its complaints."""
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", "frontier", str(jobdir), *options],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def told(jobdir: Path, *options: str, given: str = "") -> Any:
    """What the command says as JSON."""
    return json.loads(frontier(jobdir, "--json", *options, given=given)[0])


@pytest.fixture
def web() -> Iterator[MockWeb]:
    with MockWeb(graph=GRAPH) as web:
        yield web


@pytest.fixture
def stopped(web: MockWeb, tmp_path: Path) -> Crawl:
    """A crawl with pages done and pages queued."""
    return crawl_of(web, tmp_path, arguments={"max_pages": 30}).run()


def queued(jobdir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in frontier(jobdir, "--export")[0].splitlines()]


def test_one_host_is_shown_with_why_it_is_not_fetched(stopped: Crawl) -> None:
    most = frontier_view(stopped.jobdir)["biggest"][0]
    view = told(stopped.jobdir, "--host", most["host"])
    assert (view["queued"], view["done"]) == (most["queued"], most["done"])
    assert view["why"].startswith("It is due")
    assert [line["status"] for line in view["robots"]] == [200]
    mine = [line["url"] for line in queued(stopped.jobdir) if most["host"] in line["url"]]
    assert [line["url"] for line in view["queue"]] == mine[:10]
    text, _ = frontier(stopped.jobdir, "--host", f"http://{most['host'].upper()}/any/page")
    assert text.startswith(f"{most['host']}: It is due")
    assert f"\nqueued   {most['queued']}\n" in text
    assert all(url in text for url in mine[:10])


def test_an_unknown_host_is_refused(stopped: Crawl) -> None:
    for option in ("--host", "--drop-host", "--forget"):
        _, complaint = frontier(stopped.jobdir, option, "nowhere.test", code=2)
        assert "krowlspider: the frontier has nothing of host 'nowhere.test'" in complaint
    _, complaint = frontier(stopped.jobdir, "--host", "a b", code=2)
    assert "'a b' is not the name of a host" in complaint


def test_what_one_crawl_exports_another_imports_and_fetches(
    web: MockWeb, stopped: Crawl, tmp_path: Path
) -> None:
    exported = tmp_path / "urls.jsonl"
    assert frontier(stopped.jobdir, "--export", str(exported)) == ("", "")
    lines = exported.read_text().splitlines()
    assert len(lines) == frontier_view(stopped.jobdir)["queued"] > 0
    again = told(stopped.jobdir, "--import", str(exported))
    assert again == {"imported": 0, "known": len(lines), "refused": {}, "bad": 0}
    other = tmp_path / "other" / "job"
    nothing = write_seeds(tmp_path / "none.txt", [])
    Crawl(other, arguments={"seeds": nothing}).run(code=0)
    bad = "nonsense\n"
    text, complaint = frontier(other, "--import", "-", given=bad + exported.read_text())
    assert text == f"imported {len(lines)}, known 0, refused 0, bad 1\n"
    assert complaint == "krowlspider: line 1 skipped: not JSON\n"
    assert frontier(other, "--export")[0].splitlines() == lines
    before = len(pages(web.log()))
    Crawl(other, arguments={"seeds": nothing, "max_depth": 1}).run()
    assert frontier_view(other)["queued"] == 0
    assert len(pages(web.log())) > before


def test_nothing_from_outside_is_unpickled_and_no_request_goes_elsewhere(stopped: Crawl) -> None:
    def line(request: bytes) -> str:
        return json.dumps({"url": "http://x.test/", "request": b64encode(request).decode()}) + "\n"

    whole = {
        "url": "http://x.test/",
        "method": "POST",
        "body": b64encode(b"a=1").decode(),
        "headers": [["X", ["1"]]],
        "callback": "parse",
        "errback": None,
        "meta": {},
    }

    def request(**more: object) -> str:
        return line(b"J" + json.dumps({**whole, **more}).encode())

    result, complaint = frontier(
        stopped.jobdir,
        "--import",
        "-",
        given=line(b"P" + pickle.dumps(whole))
        + line(b"X")
        + request(_class="subprocess.Popen")
        + request(url="http://elsewhere.test/")
        + request(headers=7)
        + line(b"J[1]")
        + line(b"J{}")
        + request()
        + request()
        + request(body=b64encode(b"a=2").decode())
        + request(dont_filter=True)
        + request(_class="scrapy.http.request.form.FormRequest", body=b64encode(b"b").decode()),
    )
    assert result == "imported 4, known 1, refused 0, bad 7\n"
    said = complaint.splitlines()
    assert [line.split(" skipped: ")[0] for line in said] == [
        f"krowlspider: line {number}" for number in range(1, 8)
    ]
    assert "its request is a pickle" in said[0]
    assert "its request is a subprocess.Popen" in said[2]
    assert "its request is for another URL" in said[3]
    assert "its request cannot be read" in said[5]


@pytest.mark.slow
def test_a_dropped_host_is_not_fetched_again_and_a_forgotten_one_is(
    web: MockWeb, stopped: Crawl
) -> None:
    first, second = (line["host"] for line in frontier_view(stopped.jobdir)["biggest"][:2])
    count = told(stopped.jobdir, "--host", first)["queued"]
    assert frontier(stopped.jobdir, "--drop-host", first)[0] == f"dropped {count} queued URLs\n"
    assert told(stopped.jobdir, "--drop-host", first) == {"dropped": 0}
    assert frontier_view(stopped.jobdir)["dropped"]["operator"] == count
    text, _ = frontier(stopped.jobdir, "--forget", second)
    assert "the next start rebuilds the seen filter" in text
    assert not (stopped.jobdir / "seen").exists()
    frontier(stopped.jobdir, "--host", second, code=2)
    assert all(second not in line["url"] for line in queued(stopped.jobdir))
    before = web.log()
    Crawl(stopped.jobdir, arguments={"seeds": stopped.arguments["seeds"]}).run()
    since = web.log()[len(before) :]
    assert frontier_view(stopped.jobdir)["queued"] == 0
    dropped = [entry for entry in since if first in entry.url and entry.path != "/robots.txt"]
    assert len(dropped) == 0
    assert violations(web.log(), min_delay=DELAY) == []


@pytest.mark.parametrize("damage", ["no CURRENT", "flip in a table"])
def test_a_damaged_crawl_is_refused_repaired_and_goes_on_to_its_end(
    web: MockWeb, stopped: Crawl, damage: str
) -> None:
    folder = stopped.jobdir / "frontier"
    if damage == "no CURRENT":
        (folder / "CURRENT").unlink()
    else:
        table = max(folder.glob("*.ldb"), key=lambda path: path.stat().st_size, default=None)
        if table is None:
            # So short a crawl has only a log: a repair makes a table of it.
            frontier(stopped.jobdir, "--repair")
            table = max(folder.glob("*.ldb"), key=lambda path: path.stat().st_size)
        data = bytearray(table.read_bytes())
        data[len(data) // 2] ^= 0x55
        table.write_bytes(data)
    _, complaint = frontier(stopped.jobdir, "--export", code=2)
    way_out = f"scrapy frontier {stopped.jobdir} --repair"
    assert complaint.startswith(f"krowlspider: {folder}: ")
    assert complaint.strip().endswith(way_out)
    report = told(stopped.jobdir, "--repair")
    assert report["found"]["kept"]["queued"] == len(queued(stopped.jobdir))
    assert bool(report["tables"]) == (damage == "flip in a table")
    assert "frontier.before-repair-" in report["copy"]
    Crawl(stopped.jobdir, arguments={"seeds": stopped.arguments["seeds"]}).run()
    assert frontier_view(stopped.jobdir)["queued"] == 0
    if damage == "no CURRENT":
        assert reachable(web.graph, web.seeds()).differences(web.log(), at_least=True) == []
    assert violations(web.log(), min_delay=DELAY) == []


def test_a_repair_names_the_hosts_that_lost_urls_and_what_to_do() -> None:
    kept = {"hosts": 2, "queued": 1234}
    found = Found(kept, marked=5, short=[(30, "a.test"), (4, "b.test")])
    found.short_hosts, found.short_urls = 2, 34
    lines = repaired(Repaired("/jobs/copy", ["000005.ldb"], 2048, 99, found)).splitlines()
    assert lines == [
        "repaired: hosts 2, queued 1,234",
        "seen marks made anew for queued URLs: 5",
        "tables that could not be read whole: 1, 2,048 bytes (000005.ldb)",
        "bytes of logs that could not be read: 99",
        "queued URLs that are not there any more: at most 34 of 2 hosts, most of",
        "       30  a.test",
        "        4  b.test",
        "those that were seen come back only when their host is forgotten: --forget HOST",
        "the files as they were are in /jobs/copy: remove it when the crawl goes well",
    ]
    healthy = repaired(Repaired("/jobs/copy", [], 0, 0, Found(kept))).splitlines()
    assert len(healthy) == 3


def test_a_healthy_frontier_is_the_same_after_a_repair_and_its_copy_is_named(
    stopped: Crawl,
) -> None:
    before = queued(stopped.jobdir)
    text, _ = frontier(stopped.jobdir, "--repair")
    assert text.startswith("repaired: hosts ")
    assert f"are in {stopped.jobdir}/frontier.before-repair-1: remove it" in text
    assert queued(stopped.jobdir) == before


def test_a_running_crawl_is_left_alone(web: MockWeb, tmp_path: Path) -> None:
    crawl = crawl_of(web, tmp_path, settings={"KROWL_DELAY_MIN": 0.5}).start()
    crawl.wait_until(lambda: len(web.log()) > 10)
    options = (["--host", "a"], ["--export"], ["--import", "-"], ["--forget", "a"], ["--repair"])
    for option in options:
        _, complaint = frontier(crawl.jobdir, *option, code=2)
        assert f"is in use by process {crawl.process.pid}" in complaint
    assert "is being crawled" in frontier(crawl.jobdir)[0]
    crawl.interrupt()
