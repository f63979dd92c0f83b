"""``scrapy corpus`` as a whole: the real command, its workers killed by pages, and kill -9."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from krowlspider.archive.disk import lock_directory
from krowlspider.corpus.figures import figures
from krowlspider.corpus.folder import read_lines
from krowlspider.corpus.record import ENDINGS
from tests.corpus.warcs import html, prose, response, write
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path


NAME = "http://example.org/"
REFUSES = b"User-agent: *\nContent-Signal: search=yes, ai-train=no\n"


def start(source: Path, out: Path, *options: str, before: str = ":") -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "scrapy", "corpus", str(source), "-o", str(out), *options]
    return subprocess.Popen(
        ["sh", "-c", f'{before} && exec "$@"', "sh", *words],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(source: Path, out: Path, *options: str, code: int = 0) -> tuple[str, str]:
    process = start(source, out, *options)
    output, errors = process.communicate(timeout=110)
    assert process.returncode == code, errors
    return output, errors


def texts(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the records of each shard."""
    shards = sorted((out / "data").iterdir())
    return {path.name: read(path) for path in shards}


def read(path: Path) -> list[dict[str, Any]]:
    if path.name.endswith(ENDINGS["jsonl"]):
        return [json.loads(line) for line in read_lines(path)]
    fields = {"url": "WARC-Target-URI", "source": "WARC-Refers-To", "digest": "WARC-Block-Digest"}
    with path.open("rb") as file:
        return [
            {name: record.headers[field] for name, field in fields.items()}
            for record in ArchiveIterator(file, record_types=WarcRecordType.conversion)
        ]


def names(out: Path) -> set[Path]:
    """Return the files that workers and shards have, apart from the index."""
    return {*out.glob("data/*"), *out.glob("state/[dw]*/*")}


def half_final(out: Path) -> bool:
    """Return whether a shard has no marker yet: the moment at which most is at stake."""
    shards = {path.name[: path.name.rindex("-") + 13] for path in out.glob("data/*")}
    return bool(shards - {path.stem for path in out.glob("state/done/*.json")})


def refusals(path: Path) -> dict[str, tuple[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {each["url"].removeprefix(NAME): (each["rule"], each["value"]) for each in found}


@pytest.mark.slow
def test_hostile_pages_are_named_and_end_nothing(tmp_path: Path) -> None:
    """Good pages before and after each kind of damage are in the corpus."""
    source = tmp_path / "warc"
    source.mkdir()

    def deep(levels: int) -> bytes:
        return b"<div>" * levels + prose(5).encode() + b"</div>" * levels

    packed = "Content-Type: text/html\r\nContent-Encoding: gzip"
    write(
        source / "a.warc.gz",
        [
            response(f"{NAME}1", html(1)),
            response(f"{NAME}deep", deep(5_000)),
            response(f"{NAME}hangs", deep(200_000)),
            response(f"{NAME}bomb", gzip.compress(bytes(100_000_000)), packed),
            response(f"{NAME}line", b"<p>" + b"word " * 2_000_000),
            response(f"{NAME}charset", html(2), "Content-Type: text/html; charset=no-such"),
            response(f"{NAME}copy", html(2)),
        ],
    )
    good = [gzip.compress(response(f"{NAME}b{n}", html(20 + n))) for n in range(3)]
    (source / "b.warc.gz").write_bytes(good[0] + b"no record" * 9 + good[1] + good[2][:-60])
    robots = "http://c.example/robots.txt"
    write(source / "c.warc.gz", [response(robots, b"", kind="revisit", digest="sha1:away")])
    out, rejected = tmp_path / "out", tmp_path / "rejected"
    options = ("--page-seconds", "3", "--rejected", str(rejected), "--processes", "1")
    _, errors = run(source, out, *options, code=1)
    found = {each["url"].removeprefix(NAME) for shard in texts(out).values() for each in shard}
    assert found == {"1", "deep", "charset", "b0", "b1"}
    named = refusals(rejected)
    assert named["hangs"] == ("took too long", "")
    assert named["bomb"] == ("not decodable", "")
    assert named["b2"] == ("cut off", "")
    assert named["copy"][0] == "duplicate"
    assert named["line"] == ("chars", 9_999_999)
    assert f"{NAME}hangs: took too long" in errors
    assert "b.warc.gz at byte 0: damaged" in errors
    assert f"b.warc.gz at byte {len(b''.join(good[:2])) + 81}: the file ends within" in errors
    assert "opt-outs not known, and not heeded: 1 file such as c.example/robots.txt" in errors


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("form", "keep"), [("jsonl", "first"), ("wet", "shortest")])
def test_kills_leave_each_accepted_page_once(tmp_path: Path, form: str, keep: str) -> None:
    """kill -9 at any moment: the shards are those of an undisturbed run."""
    options = ("--processes", "2", "--format", form, "--keep", keep)
    source = tmp_path / "warc"
    source.mkdir()
    for number in range(12):
        # Half of the pages are in the next file too.
        pages = [html(n, words=120) for n in range(number * 20, number * 20 + 40)]
        records = [response(f"{NAME}{number}/{n}", page) for n, page in enumerate(pages)]
        records.append(response(f"http://refuses.example/{number}", html(1000 + number)))
        if number == 7:
            robots = response("http://refuses.example/robots.txt", REFUSES, "Content-Type: a/b")
            records.append(robots)
        write(source / f"{number:02}.warc.gz", records)
    run(source, tmp_path / "whole", *options, "--rejected", str(tmp_path / "r0"))
    chance, killed, out = random.Random(), 0, tmp_path / "killed"
    # No file may be larger than a few kilobytes: that is treated like a full disk.
    full = start(source, out, *options, before="ulimit -f 8")
    assert "make room on its disk" in full.communicate()[1]
    assert full.returncode == 3
    for number in range(4):
        process = start(source, out, *options, "--rejected", str(tmp_path / "r1"))
        before = names(out)
        while process.poll() is None and names(out) == before:
            time.sleep(0.01)
        if number % 2:
            time.sleep(chance.uniform(0, 0.3))
        while not number % 2 and process.poll() is None and not half_final(out):
            time.sleep(0.001)
        killed += process.poll() is None
        process.kill()
        process.communicate()
    run(source, out, *options, "--rejected", str(tmp_path / "r1"))
    assert killed > 1
    assert texts(out) == texts(tmp_path / "whole")
    assert refusals(tmp_path / "r1") == refusals(tmp_path / "r0")
    found = figures(out)
    assert found == figures(tmp_path / "whole")
    rejected = found["pages"] - found["accepted"]
    assert rejected > 100
    # Those in files before that of robots.txt, too.
    assert Counter(rule for rule, _ in refusals(tmp_path / "r0").values())["ai-train=no"] == 12
    for rows in (found["hosts"], found["languages"], found["lengths"]):
        assert sum(row["accepted"] for row in rows) == found["accepted"]
        assert sum(row["rejected"] for row in rows) == rejected
    assert (out / "README.md").read_text() == (tmp_path / "whole" / "README.md").read_text()
    urls = Counter(each["url"] for shard in texts(out).values() for each in shard)
    assert set(urls.values()) == {1}
    assert list((out / "state" / "work").iterdir()) == []


@pytest.mark.slow
def test_follow_takes_files_as_they_are_finished(tmp_path: Path) -> None:
    """The command ends once no file is open; a later run reads only what is new."""
    source, out = tmp_path / "warc", tmp_path / "out"
    source.mkdir()
    rules, clusters = tmp_path / "rules.toml", tmp_path / "clusters.jsonl"
    rules.write_text('pii.email = "mask"\n')
    asked = html(0).replace(b"Page 0", b"Ask a@b.example").replace(b"<p>", b"<p>At a@b.example ")
    write(source / "0.warc.gz", [response(f"{NAME}0", asked)])
    still_open = write(source / "1.warc.gz.open", [response(f"{NAME}1", html(1))])
    options = ("--processes", "1", "--rules", str(rules))
    process = start(source, out, "--follow", *options)
    while not list(out.glob("data/0*")):
        assert process.poll() is None
        time.sleep(0.05)
    still_open.rename(source / "1.warc.gz")
    assert process.communicate()[0].startswith("2 pages of 2 responses")
    write(source / "2.warc.gz", [response(f"{NAME}2", asked)])
    output, _ = run(source, out, *options, "--clusters", str(clusters))
    assert output.startswith("2 pages of 3 responses")
    assert "1  duplicate" in output
    # One in the title and one in the text of the page that is kept.
    assert "\n| email | 2 |\n" in (out / "README.md").read_text()
    assert json.loads(clusters.read_text()) == {
        "kept": "0.warc.gz:0",
        "copy": "2.warc.gz:0",
        "url": f"{NAME}2",
        "rule": "duplicate",
        "overlap": None,
    }


@pytest.mark.slow
def test_follow_waits_for_a_crawl_without_an_open_file(tmp_path: Path) -> None:
    """A crawl that fetches pages again may wait for an hour until it opens its next file."""
    source, out = tmp_path / "warc", tmp_path / "out"
    source.mkdir()
    write(source / "0.warc.gz", [response(f"{NAME}0", html(0))])
    lock = lock_directory(source)
    process = start(source, out, "--follow", "--processes", "1")
    for number in (1, 2):
        while not list(out.glob(f"data/{number - 1}*")):
            assert process.poll() is None
            time.sleep(0.05)
        write(tmp_path / "next", [response(f"{NAME}{number}", html(number))])
        (tmp_path / "next").rename(source / f"{number}.warc.gz")
    os.close(lock)
    assert process.communicate()[0].startswith("3 pages of 3 responses")


@pytest.mark.slow
def test_ctrl_c_ends_follow_and_the_next_run_goes_on(tmp_path: Path) -> None:
    source, out = tmp_path / "warc", tmp_path / "out"
    source.mkdir()
    write(source / "0.warc.gz", [response(f"{NAME}0", html(0))])
    still_open = write(source / "1.warc.gz.open", [response(f"{NAME}0", html(1))])
    process = start(source, out, "--follow", "--processes", "1")
    while not list(out.glob("data/0*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in process.communicate()[1]
    assert process.returncode != 0
    still_open.rename(source / "1.warc.gz")
    assert run(source, out, "--follow", "--processes", "1")[0].startswith("2 pages of 2 responses")
    first, second = (page for shard in texts(out).values() for page in shard)
    assert second["previous"] == first["record_id"]


@pytest.mark.slow
def test_a_rule_waits_for_all_files_of_a_crawl(tmp_path: Path) -> None:
    """The oldest copy is in the last file. A file that comes afterwards is named, not mixed in."""
    source, out, clusters = tmp_path / "warc", tmp_path / "out", tmp_path / "clusters.jsonl"
    source.mkdir()
    write(source / "0.warc.gz", [response(f"{NAME}0", html(0))])
    older = [response(f"{NAME}1", html(0), date="2025-01-01T00:00:00Z")]
    still_open = write(source / "1.warc.gz.open", older)
    options = ("--processes", "1", "--keep", "oldest", "--clusters", str(clusters))
    process = start(source, out, "--follow", *options)
    while not list(out.glob("state/work/*.json")):
        assert process.poll() is None
        time.sleep(0.05)
    still_open.rename(source / "1.warc.gz")
    assert process.communicate()[0].startswith("1 page of 2 responses")
    assert json.loads(clusters.read_text()) == {
        "kept": "1.warc.gz:0",
        "copy": "0.warc.gz:0",
        "url": f"{NAME}0",
        "rule": "duplicate",
        "overlap": None,
    }
    write(source / "2.warc.gz", [response(f"{NAME}2", html(2))])
    # Nothing of the crawl is waited for any more.
    write(source / "3.warc.gz.open", [])
    output, errors = run(source, out, "--follow", *options, code=1)
    assert output.startswith("1 page of 2 responses")
    assert "not in the corpus: 1 WARC file, such as 2.warc.gz" in errors
