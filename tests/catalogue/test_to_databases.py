"""``scrapy catalogue --to``: the same rows as in Parquet."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from krowlspider.catalogue.columns import TABLES
from tests.catalogue.test_sinks import sink_in
from tests.commands.test_changes import archived, fetch
from tests.support.crawling import ROOT, scrapy
from tests.support.postgresql import PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgresql import Server

pytestmark = pytest.mark.slow
PAGE = b"<title>%b</title><p>One two three.<a href='/other'>other</a>"
ROBOTS = b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n"


def archive(folder: Path) -> Path:
    """Two files with pages that change, one with its robots.txt."""
    one, two = "http://example.org/", "https://b.example.com:8443/x?y=1"
    robots = fetch(0, ROBOTS, url=f"{one}robots.txt", mime=b"text/plain")
    return archived(
        folder,
        [robots, fetch(1, PAGE % b"first", url=one), fetch(2, PAGE % b"b", url=two)],
        [fetch(3, PAGE % b"second", url=one), fetch(4, b"", url=two, status=b"404 Not Found")],
    )


def test_databases_have_the_rows_of_parquet(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = archive(tmp_path / "warc")
    kinds = ("parquet", "postgresql", "sqlite")
    kept = {kind: sink_in(kind, request, tmp_path) for kind in kinds}
    scrapy("catalogue", folder, "--links", "-o", tmp_path / "catalogue")
    for kind in ("postgresql", "sqlite"):
        said = scrapy("catalogue", folder, "--links", "--to", kept[kind].url)
        assert b"2 files" in said.stdout
        again = scrapy("catalogue", folder, "--links", "--to", kept[kind].url)
        assert b"0 files, 0 rows" in again.stdout
        assert PASSWORD.encode() not in said.stdout + said.stderr + again.stdout + again.stderr
    for table in TABLES:
        rows, *others = (sorted(each.read(table), key=repr) for each in kept.values())
        assert others == [rows, rows]
        assert rows or table == "sitemap"


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_views_answer_an_operator(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    kept = sink_in(kind, request, tmp_path)
    scrapy("catalogue", archive(tmp_path / "warc"), "--to", kept.url)
    assert kept.ask("SELECT url, status, fetches, title FROM page ORDER BY url") == [
        ("http://example.org/", 200, 2, "second"),
        ("https://b.example.com:8443/x?y=1", 404, 2, "b"),
    ]
    hosts = "SELECT host, fetches, successes, client_errors FROM host ORDER BY host"
    assert kept.ask(hosts) == [("b.example.com:8443", 2, 1, 1), ("example.org", 3, 3, 0)]
    errors = "SELECT url_host_name, fetch_status, fetches, example FROM host_error"
    assert kept.ask(errors) == [("b.example.com", 404, 1, "https://b.example.com:8443/x?y=1")]
    robots = "SELECT url, crawl_delay, disallows_all FROM latest_robots"
    assert kept.ask(robots) == [("http://example.org/robots.txt", 2.0, False)]
    totals = "SELECT subset, fetch_status, fetches FROM status_total ORDER BY 1, 2"
    assert kept.ask(totals) == [
        ("crawldiagnostics", 404, 1),
        ("robotstxt", 200, 1),
        ("warc", 200, 3),
    ]
    # This archive has no metadata records.
    for view in ("host_speed", "seed_total"):
        assert kept.ask(f"SELECT * FROM {view}") == []


def test_bad_words_are_refused_in_a_line(tmp_path: Path) -> None:
    folder, url = archive(tmp_path / "warc"), f"sqlite:///{tmp_path / 'x.db'}"
    both = scrapy("catalogue", folder, "--to", url, "-o", tmp_path / "x", code=2)
    assert b"-o and --to are given: a catalogue is written to one place" in both.stderr
    other = scrapy("catalogue", folder, "--to", "mysql://u:secret@h/x", code=2).stderr
    assert b"mysql://... is not a URL of PostgreSQL or SQLite" in other
    assert b"secret" not in other
    assert other.count(b"\n") == 1


def test_ctrl_c_ends_the_wait_for_a_server(
    request: pytest.FixtureRequest, postgresql: Server, tmp_path: Path
) -> None:
    """It is told of each wait, and the same command goes on."""
    kept, folder = sink_in("postgresql", request, tmp_path), archive(tmp_path / "warc")
    words = [sys.executable, "-m", "scrapy", "catalogue", folder, "--to", kept.url]
    # Writers take turns by this lock.
    lock = "SELECT pg_advisory_lock(461179872108)"
    name = kept.url.rpartition("/")[2]
    with postgresql.session(name) as session:
        session.execute(lock)
        process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
        while postgresql.ask(name, waiting) != [(1,)]:
            assert process.poll() is None
        postgresql.stop()
    assert process.stderr is not None
    line = process.stderr.readline()
    assert re.match(r"krowlspider: PostgreSQL at .* failed .*: trying again in 1 s; Ctrl-C", line)
    process.send_signal(signal.SIGINT)
    rest = process.communicate()[1]
    postgresql.start()
    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in rest
    assert PASSWORD not in line + rest
    assert b"2 files" in scrapy("catalogue", folder, "--to", kept.url).stdout
