"""``scrapy sql``: crawls that are stopped, crawls that run, and bad input."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from io import StringIO
from shutil import copytree, ignore_patterns
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.mockweb import MockWeb
from tests.sql.catalogues import put
from tests.support.crawling import ROOT, Crawl, scrapy, write_seeds
from tests.support.crawls import AT_ONCE, anchors, crawled, page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000) b"
# DuckDB does not look up within one call of a function.
STUCK = "SELECT length(repeat('x', 3000000000)) FROM range(1000)"


def sql(*words: object, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    return scrapy("sql", *words, code=code)


def rows(*words: object) -> list[dict[str, Any]]:
    found = sql(*words, "--format", "jsonl")
    return [json.loads(line) for line in found.stdout.decode().split("\n")[:-1]]


def refusal(*words: object) -> str:
    """Return the line on standard error of a call that is refused."""
    (line,) = sql(*words, code=2).stderr.decode().splitlines()
    return line


@pytest.fixture(scope="module")
def jobdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl that has ended after four pages of two hosts; one of its seeds has a tag."""
    links = anchors("/a", "/b", "/c")
    web = [page("/", links), page("/a", "<title>A"), page("/b", "x"), page("/c", "x")]
    folder = tmp_path_factory.mktemp("sql")
    seeds = ("a.test/", "b.test/")
    crawl, _ = crawled(folder, web, *seeds, arguments={"max_pages": 4}, **AT_ONCE)
    return crawl.jobdir


@pytest.mark.slow
def test_the_frontier_of_a_stopped_crawl_is_asked(jobdir: Path):
    queue = rows(jobdir, "SELECT * FROM queue ORDER BY host, url")
    a, b = sorted({row["seed"] for row in queue})
    assert [row["url"] for row in queue] == [f"{a}b", f"{a}c", f"{b}b", f"{b}c"]
    assert {(row["crawl"], row["kind"], row["depth"]) for row in queue} == {("job", "page", 1)}
    pages = rows(jobdir, "SELECT url, status, fetches, seed FROM page_now ORDER BY url")
    assert pages == [
        {"url": f"{seed}{path}", "status": 200, "fetches": 1, "seed": seed}
        for seed in (a, b)
        for path in ("", "a")
    ]
    hosts = rows(jobdir, "SELECT domain, state, queued, done, dropped FROM host_now ORDER BY 1")
    assert hosts == [
        {"domain": domain, "state": "active", "queued": 2, "done": 2, "dropped": 0}
        for domain in ("a.test", "b.test")
    ]
    assert rows(
        jobdir,
        "SELECT count(*) AS n FROM page_now JOIN host_now USING (crawl, host)"
        " WHERE last_fetch - first_fetch < INTERVAL 1 SECOND",
    ) == [{"n": 4}]


@pytest.mark.slow
def test_several_crawls_are_asked_together(jobdir: Path, tmp_path: Path):
    (tmp_path / "other").symlink_to(jobdir)
    catalogue = tmp_path / "catalogue-of-others"
    put(catalogue, "fetch", "1", {"url": "http://c.test/"}, crawl="c")
    put(jobdir / "catalogue", "fetch", "1", {"url": "http://a.test/"})
    text = "SELECT crawl, url FROM capture ORDER BY 1"
    assert [row["crawl"] for row in rows(jobdir, catalogue, text)] == ["c", "job"]
    # Both, of one frontier: given twice by mistake.
    assert "given twice" in refusal(jobdir, tmp_path / "other", text)


@pytest.mark.slow
def test_the_processes_of_a_crawl_are_asked_together(jobdir: Path, tmp_path: Path):
    """Each has a frontier of its own; a seed is that of its own frontier."""
    for process in ("p1", "p2"):
        copytree(jobdir, tmp_path / "tree" / process, ignore=ignore_patterns("catalogue"))
    assert rows(
        tmp_path / "tree",
        "SELECT crawl, count(*) AS urls, count(DISTINCT seed) AS seeds FROM queue GROUP BY crawl",
    ) == [{"crawl": "tree", "urls": 8, "seeds": 2}]


@pytest.mark.slow
def test_each_format_has_the_rows(jobdir: Path, tmp_path: Path):
    text = "SELECT url, depth FROM queue ORDER BY url LIMIT 2"
    head, _, first, _, count = sql(jobdir, text).stdout.decode().splitlines()
    assert (head.split(), first.split()[1], count) == (["url", "depth"], "1", "2 rows")
    found = list(csv.reader(StringIO(sql(jobdir, text, "--format", "csv").stdout.decode())))
    assert (found[0], len(found)) == (["url", "depth"], 3)
    for name in ("x.csv", "x.jsonl", "x.jsonl.gz", "x.parquet", "x.txt"):
        sql(jobdir, text, "-o", tmp_path / name)
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 2
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "x.txt").read_text().endswith("2 rows\n")
    lines = gzip.decompress((tmp_path / "x.jsonl.gz").read_bytes())
    assert lines.decode() == (tmp_path / "x.jsonl").read_text()


@pytest.mark.slow
def test_sql_comes_from_standard_input_too(jobdir: Path):
    done = scrapy("sql", jobdir, "-", given="SELECT count(*) AS n\nFROM queue\n")
    assert done.stdout.decode().split() == ["n", "-", "4", "1", "row"]


@pytest.mark.slow
def test_a_read_only_jobdir_is_asked(jobdir: Path):
    modes = {path: path.stat().st_mode for path in (jobdir, jobdir / "frontier")}
    try:
        for path in modes:
            path.chmod(0o500)
        assert rows(jobdir, "SELECT count(*) AS n FROM queue") == [{"n": 4}]
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.slow
def test_bad_input_is_one_line(jobdir: Path, tmp_path: Path):
    for words, said in (
        ((jobdir, "DROP VIEW queue"), "give one SELECT, not DROP"),
        ((jobdir, "SELECT * FROM queu"), "line 1, column 15: there is no table 'queu'; there are"),
        ((jobdir, "SELECT ur FROM queue"), 'line 1, column 8: Referenced column "ur" not found'),
        ((tmp_path, "SELECT * FROM page"), "has no catalogue, which the query reads: make it"),
        ((tmp_path, "SELECT * FROM queue"), "is not a crawl's folder"),
        ((tmp_path / "x", "SELECT 1"), "is no folder"),
        ((jobdir, "SELECT 1", "--timeout", "0"), "--timeout 0: give more than 0 seconds"),
        ((jobdir, "SELECT 1", "--timeout", "nan"), "--timeout nan: give more than 0 seconds"),
        ((jobdir, "SELECT 1", "--memory", "1"), "--memory 1: give at least 64 MB"),
        ((jobdir, "SELECT 1", "--format", "parquet"), "needs a file: give -o FILE"),
        ((jobdir, "SELECT 1", "-o", tmp_path), "cannot be written"),
        ((jobdir, "SELECT 1", "-o", tmp_path / "x" / "y.parquet"), "cannot be written"),
        ((jobdir, ENDLESS, "--timeout", "1.5"), "the query was ended"),
        ((jobdir, "SELECT 1", "-o", tmp_path / "x.xls"), ".xls is no format: give .txt, .csv, "),
        ((jobdir, "SELECT 1", "-o", tmp_path / "x.parquet.gz"), ".gz is no format"),
    ):
        assert said in refusal(*words)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_two_crawls_of_one_name_are_refused(tmp_path: Path):
    for place in ("a", "b"):
        put(tmp_path / place / "job" / "catalogue", "fetch", "1", {"url": "http://a.test/"})
    jobs = tmp_path / "a" / "job", tmp_path / "b" / "job"
    assert "are both called" in refusal(*jobs, "SELECT 1")
    put(tmp_path / "c" / "job" / "catalogue", "fetch", "1", {"url": "http://c.test/"}, crawl="c")
    assert rows(jobs[0], tmp_path / "c" / "job", "SELECT 1 AS n") == [{"n": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("text", [ENDLESS, STUCK])
def test_ctrl_c_ends_a_query(tmp_path: Path, text: str):
    words = [sys.executable, "-m", "scrapy", "sql", tmp_path, text]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(4)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begun < 10
    assert errors.decode() == "krowlspider: interrupted\n"
    assert process.returncode in {130, -signal.SIGINT}


@pytest.mark.slow
@pytest.mark.parametrize("limit", [("--timeout", "4"), ("--memory", "64")])
def test_a_query_that_does_not_look_up_ends_at_its_limit(tmp_path: Path, limit: tuple[str, str]):
    folder, scratch = tmp_path / "job", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", "sql", folder, STUCK, *limit],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        timeout=90,
        check=False,
    )
    (line,) = done.stderr.decode().splitlines()
    assert limit[0] in line
    assert done.returncode == 2
    assert not [*scratch.iterdir()]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it(tmp_path: Path):
    words = [sys.executable, "-m", "scrapy", "sql", tmp_path, "SELECT * FROM range(100000000000)"]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@contextmanager
def crawling(folder: Path) -> Iterator[Crawl]:
    """A crawl that waits for its delay after two pages; its seed has a tag."""
    spec = [page("/", anchors(*(f"/{at}" for at in range(100)))), page("^/[0-9]+$", "x")]
    with MockWeb(spec=spec) as web:
        seed = f'{web.url("a.test", "/")}\t{{"tag": "news"}}'
        crawl = Crawl(
            folder / "job",
            arguments={"seeds": write_seeds(folder / "seeds.txt", [seed])},
            settings={"PROMETHEUS_ENABLED": 1, "PROMETHEUS_PORT": 0, "KROWL_DELAY_MIN": 3},
        )
        crawl.start()
        crawl.wait_until(lambda: sum(entry.path != "/robots.txt" for entry in web.log()) >= 2)
        yield crawl
        crawl.interrupt()


@pytest.mark.slow
def test_a_running_crawl_is_asked(tmp_path: Path):
    with crawling(tmp_path) as running:
        (found,) = rows(
            running.jobdir,
            "SELECT (SELECT count(*) FROM queue) AS queued, (SELECT count(*) FROM page_now) AS"
            " pages, (SELECT sum(queued + done) FROM host_now) AS both,"
            " (SELECT string_agg(DISTINCT tag) FROM queue) AS tag,"
            " (SELECT count(DISTINCT seed) FROM page_now) AS seeds",
        )
        assert not [*running.jobdir.glob("sql-*")]
    assert found["pages"] >= 1
    assert found["queued"] + found["pages"] == found["both"] == 101
    assert (found["tag"], found["seeds"]) == ("news", 1)
    assert not running.complaints
