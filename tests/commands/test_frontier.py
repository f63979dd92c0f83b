"""``scrapy frontier`` views, changes and mends the folders of real crawls."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.utils.request import RequestFingerprinter, fingerprint

from krowlspider.engine.dupefilter import DupeFilter
from krowlspider.errors import JobError, KrowlError
from krowlspider.frontier.admin.repair import FrontierRemains, Repaired
from krowlspider.frontier.entry import Entry
from krowlspider.frontier.store import schema
from krowlspider.frontier.store.store import LevelStore
from krowlspider.job.folder import JobFolder, JobInUseError
from krowlspider.job.monitoring.access import PAGE, note_url
from krowlspider.job.start_log import log_strike
from krowlspider.programs.program import STDIO, written
from krowlspider.programs.running import token_of
from krowlspider.views.frontier import repaired
from tests.commands.test_top import live_page
from tests.mockweb import MockWeb
from tests.mockweb.audit import violations
from tests.mockweb.graph import DEFAULT_FEATURES, Graph
from tests.mockweb.oracle import reachable
from tests.mockweb.robots import robots
from tests.support import warm
from tests.support.crawling import ROOT, Crawl, frontier_view, scrapy, write_seeds
from tests.support.crawls import DELAY, crawl_of, pages
from tests.support.settings import project_settings
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request

# Without the pages that answer otherwise the second time: some of these crawls fetch again.
GRAPH = Graph(hosts=12, pages=10, seed=5, features=DEFAULT_FEATURES - {"busy", "crawl_delay"})


def frontier(jobdir: Path, *options: str, given: str = "", code: int = 0) -> tuple[str, str]:
    """Run the command; what it prints, and its complaints."""
    done = scrapy("frontier", jobdir, *options, given=given, code=code)
    return done.stdout.decode(), done.stderr.decode()


def answer(jobdir: Path, *options: str, given: str = "") -> Any:
    """Return the JSON output of the command."""
    return json.loads(frontier(jobdir, "--json", *options, given=given)[0])


@pytest.fixture
def web() -> Iterator[MockWeb]:
    with MockWeb(graph=GRAPH) as web:
        yield web


@pytest.fixture
def stopped(web: MockWeb, tmp_path: Path) -> Crawl:
    """A crawl with pages done and pages queued."""
    return crawl_of(web, tmp_path, arguments={"max_pages": 30}).run()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a crawl with pages done and pages queued, whose web is gone."""
    with MockWeb(graph=GRAPH) as web:
        folder = tmp_path_factory.mktemp("original")
        return crawl_of(web, folder, arguments={"max_pages": 30}).run().jobdir


@pytest.fixture
def crawled(original: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(original, tmp_path / "crawled"))


def queued(jobdir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in frontier(jobdir, "--export")[0].splitlines()]


def test_one_host_is_shown_with_why_it_is_not_fetched(crawled: Path) -> None:
    most = frontier_view(crawled)["biggest"][0]
    view = answer(crawled, "--host", most["host"])
    assert (view["queued"], view["done"]) == (most["queued"], most["done"])
    assert view["state"] == "active"
    assert view["why"].startswith("It is due")
    # Which host is the biggest depends on time, and some have no robots.txt.
    index = GRAPH.index(most["host"].partition(":")[0])
    assert index is not None
    assert [line["status"] for line in view["robots"]] == [robots(GRAPH, index).status]
    mine = [line["url"] for line in queued(crawled) if most["host"] in line["url"]]
    assert [line["url"] for line in view["queue"]] == mine[:10]
    # Delays are the crawl's own: it had a shorter one than the default.
    assert view["delay"] == most["delay"] < 0.25
    text, _ = frontier(crawled, "--host", f"http://{most['host'].upper()}/any/page")
    assert "settings of this command" not in text
    assert "poison" not in text
    # A folder of an earlier version has not recorded them.
    head = json.loads((crawled / "job.json").read_text())
    del head["delays"]
    (crawled / "job.json").write_text(json.dumps(head))
    text, _ = frontier(crawled, "-s", "KROWL_DELAY_MIN=7", "--host", most["host"])
    assert "\ndelay    7.00 s\n" in text
    assert "\nThe delays are by the settings of this command" in text
    assert text.startswith(f"{most['host']}: It is due")
    assert "\nstate    active\n" in text
    assert f"\nqueued   {most['queued']}\n" in text
    assert all(url in text for url in mine[:10])


def test_an_unknown_host_is_refused(crawled: Path) -> None:
    for option in ("--host", "--drop-host", "--forget"):
        _, complaint = frontier(crawled, option, "nowhere.test", code=2)
        assert "krowlspider: the frontier has no host 'nowhere.test'" in complaint
    _, complaint = frontier(crawled, "--host", "a b", code=2)
    assert "'a b' is not the name of a host" in complaint


@pytest.mark.parametrize("option", ["--drop-host", "--forget"])
def test_a_url_is_not_taken_for_its_whole_host(tmp_path: Path, option: str) -> None:
    jobdir = made(tmp_path / "job", "http://a.test:81/1", "http://a.test:81/2")
    for name in ("http://a.test:81/1", "http://a.test:81/", "a.test:81/1", "a.test:81?1"):
        _, complaint = frontier(jobdir, option, name, code=2)
        said = f"krowlspider: '{name}' is not a host: give 'a.test:81' for all its URLs; "
        assert complaint.startswith(said)
    assert frontier_view(jobdir)["queued"] == 2


@pytest.mark.slow
def test_another_crawl_imports_and_fetches_an_export(
    web: MockWeb, stopped: Crawl, tmp_path: Path
) -> None:
    exported = tmp_path / "urls.jsonl"
    text, count = frontier(stopped.jobdir, "--export", str(exported))
    lines = exported.read_text().splitlines()
    assert (text, count) == ("", f"{len(lines)} URLs written\n")
    assert len(lines) == frontier_view(stopped.jobdir)["queued"] > 0
    again = answer(stopped.jobdir, "--import", str(exported))
    nothing_new = dict.fromkeys(("imported", "bad", "sent", "pages"), 0)
    assert again == {**nothing_new, "known": len(lines), "refused": {}}
    other = made(tmp_path / "other" / "job")
    nothing = write_seeds(tmp_path / "none.txt", [])
    bad = "nonsense\n"
    text, complaint = frontier(other, "--import", "-", given=bad + exported.read_text())
    assert text == f"imported {len(lines)}, known 0, refused 0, bad 1\n"
    assert complaint == ("krowlspider: line 1 skipped: neither a URL nor a domain: 'nonsense'\n")
    assert frontier(other, "--export")[0].splitlines() == lines
    before = len(pages(web.log()))
    Crawl(other, arguments={"seeds": nothing, "max_depth": 1}).run()
    assert frontier_view(other)["queued"] == 0
    assert len(pages(web.log())) > before


def test_an_import_refuses_pickles_and_strange_requests(crawled: Path) -> None:
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
        crawled,
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
def test_a_forgotten_host_is_fetched_again_a_dropped_one_not(web: MockWeb, stopped: Crawl) -> None:
    first, second = (line["host"] for line in frontier_view(stopped.jobdir)["biggest"][:2])
    count = answer(stopped.jobdir, "--host", first)["queued"]
    assert frontier(stopped.jobdir, "--drop-host", first)[0] == (
        f"dropped {count} queued URLs of {first}\n"
    )
    assert answer(stopped.jobdir, "--drop-host", first) == {"dropped": 0, "hosts": [first]}
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


@pytest.mark.parametrize(
    "damage", [pytest.param("no CURRENT", marks=pytest.mark.slow), "flip in a table"]
)
def test_a_damaged_crawl_is_repaired_and_goes_on(web: MockWeb, stopped: Crawl, damage: str) -> None:
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
    report = answer(stopped.jobdir, "--repair")
    assert report["found"]["kept"]["queued"] == len(queued(stopped.jobdir))
    assert bool(report["tables"]) == (damage == "flip in a table")
    assert "frontier.before-repair-" in report["copy"]
    Crawl(stopped.jobdir, arguments={"seeds": stopped.arguments["seeds"]}).run()
    assert frontier_view(stopped.jobdir)["queued"] == 0
    if damage == "no CURRENT":
        assert reachable(web.graph, web.seeds()).differences(web.log(), at_least=True) == []
    assert violations(web.log(), min_delay=DELAY) == []


KEPT = {"hosts": 2, "queued": 1234}
LOST = FrontierRemains(
    KEPT, marked=5, short=[(30, "a.test"), (4, "b.test")], short_hosts=2, short_urls=34
)
FORGET = (
    "what was seen of a host comes back only when the host is forgotten:"
    " scrapy frontier '/my jobs' --forget HOST"
)
COPY = "the files as they were are in /jobs/copy: remove it when the crawl goes well"


def report(found: FrontierRemains, *tables: str, log_bytes: int = 0) -> list[str]:
    repair = Repaired("/jobs/copy", list(tables), 2048 * len(tables), log_bytes, found)
    return repaired(repair, Path("/my jobs")).splitlines()


def test_a_report_of_lost_entries_says_at_most() -> None:
    assert report(LOST) == [
        "repaired: hosts 2, queued 1,234",
        "seen marks made anew for queued URLs: 5",
        (
            "lost from the queues: at most 34 URLs of 2 hosts,"
            " with the pages done in the last second"
        ),
        "       30  a.test",
        "        4  b.test",
        FORGET,
        COPY,
    ]
    assert report(FrontierRemains(KEPT)) == [
        "repaired: hosts 2, queued 1,234",
        "seen marks made anew for queued URLs: 0",
        COPY,
    ]


def test_a_report_of_unreadable_files_says_at_least() -> None:
    found = replace(LOST, unrecorded=["c.test", "d.test"], unrecorded_hosts=12, counters_lost=True)
    assert report(found, "000005.ldb", log_bytes=99)[2:] == [
        "tables that could not be read whole: 1, 2,048 bytes (000005.ldb)",
        "bytes of logs that could not be read: 99",
        (
            "lost from the queues: at least 34 URLs of 2 hosts,"
            " and an unknown number of hosts without a record"
        ),
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
    assert "tables that are missing: 1" in repaired(gone, Path("/my jobs"))
    assert "at least 34 URLs of 2 hosts" in repaired(gone, Path("/my jobs"))
    cut = Repaired("/jobs/copy", [], 0, 0, LOST, cut_bytes=1234)
    assert "bytes missing at the ends of cut logs: 1,234" in repaired(cut, Path("/my jobs"))
    nothing_counted = "\n".join(report(FrontierRemains(KEPT), "000005.ldb"))
    assert "at least 0 URLs of 0 hosts" in nothing_counted
    assert "at most" not in nothing_counted


def test_a_repair_of_a_healthy_frontier_reports_nothing(
    crawled: Path,
) -> None:
    before = queued(crawled)
    text, _ = frontier(crawled, "--repair")
    assert text.startswith("nothing is wrong with it: hosts ")
    assert len(text.splitlines()) == 1
    assert list(crawled.glob("frontier.*")) == []
    assert queued(crawled) == before


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


def test_a_repair_that_leaves_no_host_says_what_to_do(tmp_path: Path) -> None:
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
    assert answer(jobdir, "--import", "-", given='{"url": "http://a.test/1"}')["imported"] == 1


def test_a_crawl_refuses_a_snapshot_as_its_folder(tmp_path: Path) -> None:
    jobdir, taken, again = (tmp_path / name for name in ("job", "taken", "again"))
    made(jobdir, "http://a.test/")
    (jobdir / "warc").mkdir()
    frontier(jobdir, "--snapshot", str(taken))
    said = f"{taken} is a snapshot, .*: scrapy frontier NEWDIR --restore {taken}"
    with pytest.raises(JobError, match=said):
        JobFolder(taken).take(spider="broad")
    frontier(again, "--restore", str(taken))
    folder = JobFolder(again)
    folder.take(spider="broad")
    folder.leave()


def test_the_command_that_queues_poison_again_is_quoted(caplog: pytest.LogCaptureFixture) -> None:
    log_strike(Entry("http://a.test/", strikes=3), Path("/my jobs"))
    assert "`scrapy frontier '/my jobs' --export` shows it" in caplog.text


def test_a_refused_line_is_reported_as_json(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job")
    lines = "".join(f'{{"url": "http://{name}.test/"}}\n' for name in "ab")
    lines += '{"url": "http://a.test/2"}\n'
    assert answer(jobdir, "-s", "KROWL_DOMAIN_BUDGET=1", "--import", "-", given=lines) == {
        "imported": 2,
        "known": 0,
        "refused": {"domain_budget": 1},
        "bad": 0,
        "sent": 0,
        "pages": 0,
    }


def test_an_import_goes_beyond_the_caps_of_queues(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job")
    lines = "".join(f'{{"url": "http://a.test/{number}", "depth": 3}}\n' for number in range(9))
    caps = ("-s", "KROWL_HOST_QUEUE_MAX=2", "-s", "KROWL_FRONTIER_MAX=2")
    found = answer(jobdir, *caps, "--import", "-", given=lines)
    assert (found["imported"], found["refused"]) == (9, {})


def test_an_import_of_nothing_but_bad_lines_is_a_mistake(tmp_path: Path) -> None:
    text, complaint = frontier(made(tmp_path / "job"), "--import", "-", given="x\n\n", code=2)
    assert text == "imported 0, known 0, refused 0, bad 1\n"
    assert "line 1 skipped" in complaint


def test_an_import_names_only_the_first_bad_lines(tmp_path: Path) -> None:
    given = "x\n" * 1000 + '{"url": "http://a.test/"}\n'
    text, complaint = frontier(made(tmp_path / "job"), "--import", "-", given=given)
    assert text == "imported 1, known 0, refused 0, bad 1000\n"
    assert complaint.count("\n") == complaint.count(" skipped: neither a URL") == 10


def test_an_import_recognises_lines_for_urlfrontier(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job", "http://a.test/")
    lines, _ = frontier(jobdir, "--export", "--format", "urlfrontier")
    _, complaint = frontier(jobdir, "--import", "-", given=lines, code=2)
    assert "line 1 skipped: a line for URLFrontier: export without --format" in complaint


def test_a_gzip_export_is_imported_under_any_name(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job", "http://a.test/", "http://b.test/")
    packed = tmp_path / "urls.gz"
    assert frontier(jobdir, "--export", str(packed))[1] == "2 URLs written\n"
    assert len(gzip.decompress(packed.read_bytes()).splitlines()) == 2
    packed.rename(tmp_path / "urls")
    other = made(tmp_path / "other")
    assert answer(other, "--import", str(tmp_path / "urls"))["imported"] == 2
    lines, count = frontier(other, "--format", "urlfrontier", "--export")
    keys = [json.loads(line)["discovered"]["info"]["key"] for line in lines.splitlines()]
    assert (keys, count) == (["a.test", "b.test"], "2 URLs written\n")
    (tmp_path / "urls").write_bytes((tmp_path / "urls").read_bytes()[:-9])
    _, complaint = frontier(other, "--import", str(tmp_path / "urls"), code=2)
    assert complaint.startswith(f"krowlspider: {tmp_path}/urls cannot be read: ")


def test_a_file_error_names_the_file(tmp_path: Path) -> None:
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
def test_unwritable_output_is_one_line_and_exit_code_2(tmp_path: Path, options: list[str]) -> None:
    jobdir = made(tmp_path / "job", "http://a.test/")
    command = [sys.executable, "-m", "scrapy", "frontier", jobdir, *options]
    errors = tmp_path / "errors"
    with Path("/dev/full").open("wb") as full, errors.open("wb") as stderr:
        assert warm.start(command, stdout=full, stderr=stderr).wait(60) == 2
    assert errors.read_text() == (
        "krowlspider: standard output cannot be written: No space left on device\n"
    )


def test_export_to_a_full_disk_leaves_no_part_of_it(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job", *(f"http://a.test/{page}" for page in range(100)))
    disk = SmallDisk(tmp_path / "disk", 64_000)
    try:
        if not disk.mounted:
            pytest.skip("no small file system can be mounted here")
        disk.fill()
        for name in ("urls.jsonl", "urls.gz"):
            file = disk.outside / name
            _, complaint = frontier(jobdir, "--export", str(file), code=3)
            assert complaint == (
                f"krowlspider: {file} cannot be written: No space left on device\n"
            )
            assert not file.exists()
    finally:
        disk.close()


def test_closed_output_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Standard output is None if the process was started without it."""
    monkeypatch.setattr("sys.stdout", None)
    closed = "standard output cannot be written: it is closed"
    with pytest.raises(KrowlError, match=closed), written(STDIO):
        pass


@pytest.mark.slow
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
    crawl = crawl_of(
        web, tmp_path, settings={"KROWL_DELAY_MIN": 2, "PROMETHEUS_ENABLED": 0}
    ).start()
    crawl.wait_until(lambda: len(web.log()) > 10)
    for option in (["--host", "a"], ["--export"], ["--forget", "a"], ["--repair"]):
        _, complaint = frontier(crawl.jobdir, *option, code=2)
        assert f"is in use by process {crawl.process.pid}: stop it first\n" in complaint
    # Its page is off.
    _, complaint = frontier(crawl.jobdir, "--import", "-", code=2)
    assert (
        "which does not answer over HTTP: stop it first, or start it with PROMETHEUS_ENABLED=True"
        in complaint
    )
    assert "is being crawled" in frontier(crawl.jobdir)[0]
    crawl.interrupt()


@pytest.mark.parametrize("option", ["--import", "--snapshot"])
def test_an_order_without_a_token_says_how_to_give_it(tmp_path: Path, option: str) -> None:
    """A crawl that is given its token leaves none in its folder."""
    jobdir, lines = made(tmp_path / "job"), tmp_path / "lines"
    lines.touch()
    folder = JobFolder(jobdir)
    folder.take()
    with live_page(jobdir) as (url, _):
        note_url(jobdir, PAGE, url)
        _, complaint = frontier(jobdir, option, str(lines), code=2)
    folder.leave()
    assert f"takes orders with a token, and {jobdir / 'control-token'} is not there" in complaint
    assert "set KROWL_CONTROL_TOKEN or KROWL_CONTROL_TOKEN_FILE" in complaint
    assert "HTTP" not in complaint


def test_the_token_of_a_crawl_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sixteen characters\n")
    settings = project_settings(KROWL_CONTROL_TOKEN_FILE=str(file))
    assert token_of(JobInUseError(tmp_path, "7"), settings) == "sixteen characters"


class HeaderFingerprinter(RequestFingerprinter):
    """Tells requests apart by one more header than Scrapy does."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request, include_headers=["X"])


class HostDupeFilter(DupeFilter):
    """Knows a host by one of its URLs."""

    def identity(self, request: Request, url: str) -> bytes:
        return super().identity(request, "/".join(url.split("/")[:3]))


def line_of(headers: list[list[Any]], path: str = "") -> str:
    url = f"http://x.test/{path}"
    body = b64encode(b"a=1").decode()
    request = {"url": url, "method": "POST", "body": body, "headers": headers, "meta": {}}
    packed = b64encode(b"J" + json.dumps(request).encode()).decode()
    return json.dumps({"url": url, "request": packed}) + "\n"


def test_an_import_uses_the_crawls_own_fingerprinter(tmp_path: Path) -> None:
    lines = line_of([["X", ["1"]]]) + line_of([["X", ["2"]]])
    own = ("-s", f"REQUEST_FINGERPRINTER_CLASS={__name__}.HeaderFingerprinter")
    for name, options, imported in (("scrapys", (), 1), ("own", own, 2)):
        jobdir = made(tmp_path / name)
        assert answer(jobdir, *options, "--import", "-", given=lines)["imported"] == imported


def test_an_import_uses_the_crawls_own_dupefilter(tmp_path: Path) -> None:
    jobdir = made(tmp_path / "job")
    lines = "".join(f'{{"url": "http://x.test/{page}"}}\n' for page in range(3))
    own = ("-s", f"DUPEFILTER_CLASS={__name__}.HostDupeFilter")
    result = answer(jobdir, *own, "--import", "-", given=lines)
    assert (result["imported"], result["known"]) == (1, 2)


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
# Runs each list of words, in one process.
IN_TURN = """
import json, sys
from tests.support.in_process import run_here
done = [run_here(words) for words in json.loads(sys.argv[1])]
print(json.dumps([(each.returncode, each.stdout.decode(), each.stderr.decode()) for each in done]))
"""


def test_a_read_only_folder_is_shown_as_it_is_and_not_changed(original: Path) -> None:
    (first, *_) = (row["host"] for row in frontier_view(original)["biggest"])
    url = f"http://{first}/"
    shown = [[], ["--host", first], ["--explain", url], ["--export"], ["--json"]]
    expected = [frontier(original, *options)[0] for options in shown]
    after = {path: path.stat().st_mtime_ns for path in original.rglob("*")}
    changes = [["--forget", "a.test"], ["--drop-host", "a.test"], ["--repair"]]
    done = read_only(original, [*shown, *changes])
    for (code, out, err), text in zip(done, expected, strict=False):
        assert (code, err.count("Traceback")) == (0, 0), err
        assert without_times(out) == without_times(text)
    assert {path: path.stat().st_mtime_ns for path in original.rglob("*")} == after
    for code, _, err in done[len(shown) :]:
        assert code == 2
        assert "cannot be used: Read-only file system" in err


def test_a_read_only_folder_of_a_running_crawl_is_not_opened(tmp_path: Path) -> None:
    folder = JobFolder(made(tmp_path / "job", "http://a.test/"))
    folder.take()
    ((code, _, complaint),) = read_only(folder.path, [["--host", "a.test"]])
    folder.leave()
    assert code == 2
    assert f"is in use by process {os.getpid()}" in complaint


def read_only(jobdir: Path, options: list[list[str]]) -> list[tuple[int, str, str]]:
    """Run the command with each of the options where the folder is on a read-only mount.

    Return the exit code, output and errors of each.
    """
    words = json.dumps([["frontier", str(jobdir), *each] for each in options])
    done = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY),
            *(str(jobdir), sys.executable, "-c", IN_TURN, words),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return [tuple(each) for each in json.loads(done.stdout)]


def without_times(text: str) -> str:
    return re.sub(r"[0-9][0-9.,]*( s| min| h|ms)?", "N", text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--status", "404"], "--status and --since are for --pages"),
        (["--pages", "--since", "soon"], "'soon' is not a date"),
        (["--pages", "--export"], "--pages and --export do not go together"),
        (["--pages", "--repair"], "--pages and --repair do not go together"),
    ],
)
def test_options_of_pages_are_checked(crawled: Path, options: list[str], said: str) -> None:
    assert said in frontier(crawled, *options, code=2)[1]


def test_the_pages_of_a_host_are_printed_at_all_its_ports(crawled: Path) -> None:
    rows = [json.loads(line) for line in frontier(crawled, "--pages")[0].splitlines()]
    assert rows
    name = rows[0]["url"].split("/")[2].partition(":")[0]
    found = frontier(crawled, "--pages", "--host", name)[0].splitlines()
    assert [json.loads(line) for line in found] == [
        row for row in rows if row["url"].split("/")[2].partition(":")[0] == name
    ]
    assert frontier(crawled, "--pages", "--host", "none.test") == ("", "")
