"""``scrapy frontier`` on the folders of real crawls: what it shows, what it changes, and what it
mends."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from krowlspider.crawl.folder import JobFolder
from krowlspider.engine.crash_marking import tell
from krowlspider.frontier.admin.rebuild import Found
from krowlspider.frontier.admin.repair import Repaired
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.poison import Blame
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore
from krowlspider.views.frontier import repaired
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.oracle import reachable
from tests.support.crawling import ROOT, Crawl, frontier_view, scrapy, write_seeds
from tests.support.crawls import DELAY, crawl_of, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

# Without the pages that answer otherwise the second time: some of these crawls fetch again.
GRAPH = Graph(hosts=12, pages=10, seed=5, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})


def frontier(jobdir: Path, *options: str, given: str = "", code: int = 0) -> tuple[str, str]:
    """Run the command; what it prints, and its complaints."""
    done = scrapy("frontier", jobdir, *options, given=given, code=code)
    return done.stdout.decode(), done.stderr.decode()


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
    assert view["state"] == "active"
    assert view["why"].startswith("It is due")
    assert [line["status"] for line in view["robots"]] == [200]
    mine = [line["url"] for line in queued(stopped.jobdir) if most["host"] in line["url"]]
    assert [line["url"] for line in view["queue"]] == mine[:10]
    text, _ = frontier(stopped.jobdir, "--host", f"http://{most['host'].upper()}/any/page")
    assert text.startswith(f"{most['host']}: It is due")
    assert "\nstate    active\n" in text
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
    text, count = frontier(stopped.jobdir, "--export", str(exported))
    lines = exported.read_text().splitlines()
    assert (text, count) == ("", f"{len(lines)} URLs written\n")
    assert len(lines) == frontier_view(stopped.jobdir)["queued"] > 0
    again = told(stopped.jobdir, "--import", str(exported))
    assert again == {"imported": 0, "known": len(lines), "refused": {}, "bad": 0}
    other = made(tmp_path / "other" / "job")
    nothing = write_seeds(tmp_path / "none.txt", [])
    bad = "nonsense\n"
    text, complaint = frontier(other, "--import", "-", given=bad + exported.read_text())
    assert text == f"imported {len(lines)}, known 0, refused 0, bad 1\n"
    assert complaint == (
        'krowlspider: line 1 skipped: not JSON: a line is {"url": "https://..."}\n'
    )
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


KEPT = {"hosts": 2, "queued": 1234}
LOST = Found(KEPT, marked=5, short=[(30, "a.test"), (4, "b.test")], short_hosts=2, short_urls=34)
FORGET = (
    "what was seen of a host comes back only when the host is forgotten:"
    " scrapy frontier '/my jobs' --forget HOST"
)
COPY = "the files as they were are in /jobs/copy: remove it when the crawl goes well"


def report(found: Found, *tables: str, log_bytes: int = 0) -> list[str]:
    repair = Repaired("/jobs/copy", list(tables), 2048 * len(tables), log_bytes, found)
    return repaired(repair, Path("/my jobs")).splitlines()


def test_a_repair_that_lost_nothing_but_entries_says_how_many_at_most() -> None:
    assert report(LOST) == [
        "repaired: hosts 2, queued 1,234",
        "seen marks made anew for queued URLs: 5",
        "lost from the queues: at most 34 URLs of 2 hosts, as what was done in the last second is counted too",
        "       30  a.test",
        "        4  b.test",
        FORGET,
        COPY,
    ]
    assert report(Found(KEPT)) == [
        "repaired: hosts 2, queued 1,234",
        "seen marks made anew for queued URLs: 0",
        COPY,
    ]


def test_a_repair_that_could_not_read_a_table_says_at_least_and_names_hosts_without_a_record() -> (
    None
):
    found = replace(LOST, unrecorded=["c.test", "d.test"], unrecorded_hosts=12, counters_lost=True)
    assert report(found, "000005.ldb", log_bytes=99)[2:] == [
        "tables that could not be read whole: 1, 2,048 bytes (000005.ldb)",
        "bytes of logs that could not be read: 99",
        "lost from the queues: at least 34 URLs of 2 hosts, and of hosts without a record nobody knows how many",
        "       30  a.test",
        "        4  b.test",
        "hosts that were seen and have lost their record: 12",
        "           c.test",
        "           d.test",
        "the counters are lost: done and dropped URLs are counted too low",
        FORGET,
        COPY,
    ]
    gone = Repaired("/jobs/copy", [], 0, 0, LOST, missing=1)
    assert "tables that are not there any more: 1" in repaired(gone, Path("/my jobs"))
    assert "at least 34 URLs of 2 hosts" in repaired(gone, Path("/my jobs"))
    cut = Repaired("/jobs/copy", [], 0, 0, LOST, cut_bytes=1234)
    assert "bytes missing at the ends of logs, which were cut: 1,234" in repaired(
        cut, Path("/my jobs")
    )
    nothing_counted = "\n".join(report(Found(KEPT), "000005.ldb"))
    assert "at least 0 URLs of 0 hosts" in nothing_counted
    assert "at most" not in nothing_counted


def test_a_healthy_frontier_is_the_same_after_a_repair_and_nothing_is_said_to_be_wrong(
    stopped: Crawl,
) -> None:
    before = queued(stopped.jobdir)
    text, _ = frontier(stopped.jobdir, "--repair")
    assert text.startswith("nothing is wrong with it: hosts ")
    assert len(text.splitlines()) == 1
    assert list(stopped.jobdir.glob("frontier.*")) == []
    assert queued(stopped.jobdir) == before


def made(jobdir: Path, *urls: str) -> Path:
    """A crawl's folder in which these URLs are queued and nothing was fetched."""
    folder = JobFolder(jobdir)
    folder.take()
    folder.leave()
    LevelStore(folder.frontier, create=True).close()
    lines = "".join(json.dumps({"url": url}) + "\n" for url in urls)
    if lines:
        frontier(jobdir, "--import", "-", given=lines)
    return jobdir


def test_a_repair_after_which_no_host_is_left_is_none_and_says_what_to_do(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "my job", "http://a.test/1", "http://a.test/2", "http://b.test/")
    store = LevelStore(jobdir / "frontier")
    batch = store.batch(sync=True)
    for kind in (schema.QUEUE, schema.DUE):
        for key in store.keys(kind):
            batch.delete(key)
    batch.write()
    store.close()
    text, _ = frontier(jobdir, "--repair", code=2)
    assert text.startswith("NOT repaired, no host is left: hosts 0, queued 0, ")
    assert "hosts that were seen and have lost their record: 2\n" in text
    assert f"scrapy frontier '{jobdir}' --forget HOST" in text
    assert f"give a new JOBDIR; as they were they are in {jobdir}/frontier.before-repair-1" in text
    frontier(jobdir, "--forget", "a.test")
    assert told(jobdir, "--import", "-", given='{"url": "http://a.test/1"}')["imported"] == 1


def test_the_command_that_gets_poison_back_is_quoted(caplog: pytest.LogCaptureFixture) -> None:
    tell(Blame(Entry("http://a.test/", strikes=3)), Path("/my jobs"))
    assert "`scrapy frontier '/my jobs' --export` shows it" in caplog.text


def test_a_refused_line_is_told_as_json(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job")
    lines = "".join(f'{{"url": "http://{name}.test/"}}\n' for name in "ab")
    # What is queued is counted between batches: the next import finds it full.
    assert told(jobdir, "-s", "KROWL_FRONTIER_MAX=1", "--import", "-", given=lines) == {
        "imported": 1,
        "known": 0,
        "refused": {"frontier": 1},
        "bad": 0,
    }


def test_an_import_of_nothing_but_bad_lines_is_a_mistake(tmp_path: Path) -> None:
    text, complaint = frontier(made(tmp_path / "job"), "--import", "-", given="x\n\n", code=2)
    assert text == "imported 0, known 0, refused 0, bad 1\n"
    assert "line 1 skipped" in complaint


def test_what_is_exported_as_gzip_is_imported_whatever_it_is_called(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job", "http://a.test/", "http://b.test/")
    packed = tmp_path / "urls.gz"
    assert frontier(jobdir, "--export", str(packed))[1] == "2 URLs written\n"
    assert len(gzip.decompress(packed.read_bytes()).splitlines()) == 2
    packed.rename(tmp_path / "urls")
    other = made(tmp_path / "other")
    assert told(other, "--import", str(tmp_path / "urls"))["imported"] == 2
    (tmp_path / "urls").write_bytes((tmp_path / "urls").read_bytes()[:-9])
    _, complaint = frontier(other, "--import", str(tmp_path / "urls"), code=2)
    assert complaint.startswith(f"krowlspider: {tmp_path}/urls cannot be read: ")


def test_a_file_that_cannot_be_read_or_written_is_told_by_its_name(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job")
    for option, name, mistake in (
        ("--import", "none", "cannot be read: No such file or directory"),
        ("--import", "", "cannot be read: Is a directory"),
        ("--export", "none/urls", "cannot be written: No such file or directory"),
    ):
        path = f"{tmp_path}/{name}"
        _, complaint = frontier(jobdir, option, path, code=2)
        assert complaint == f"krowlspider: {path} {mistake}\n"


@pytest.mark.parametrize("options", [[], ["--json"], ["--export"], ["--host", "a.test"]])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_2(
    tmp_path: Path, options: list[str]
) -> None:
    jobdir = made(tmp_path / "job", "http://a.test/")
    # What waits in a buffer meets the full disk last.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", "frontier", str(jobdir), *options],
            cwd=ROOT,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == (
        "krowlspider: standard output cannot be written: No space left on device\n"
    )


def test_without_room_to_open_the_frontier_the_exit_code_is_3(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job", *(f"http://a.test/{page}" for page in range(100)))
    command = ["prlimit", "--fsize=1000", sys.executable, "-m", "scrapy", "frontier", str(jobdir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    [line] = done.stderr.splitlines()
    assert "room" in line
    assert "--repair" not in line
    assert frontier_view(jobdir)["queued"] == 100


def test_a_running_crawl_is_left_alone(web: MockWeb, tmp_path: Path) -> None:
    crawl = crawl_of(web, tmp_path, settings={"KROWL_DELAY_MIN": 2}).start()
    crawl.wait_until(lambda: len(web.log()) > 10)
    options = (["--host", "a"], ["--export"], ["--import", "-"], ["--forget", "a"], ["--repair"])
    for option in options:
        _, complaint = frontier(crawl.jobdir, *option, code=2)
        assert f"is in use by process {crawl.process.pid}: stop it first\n" in complaint
    assert "is being crawled" in frontier(crawl.jobdir)[0]
    crawl.interrupt()
