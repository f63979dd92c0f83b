"""What ``scrapy corpus`` reads, and which folders it refuses to write to."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from krowlspider.corpus.folder import read_lines
from tests.corpus.warcs import html, response, write
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URLS = [f"http://a.example/{number}" for number in range(2)]
RECORDS = [response(url, html(number)) for number, url in enumerate(URLS)]


def corpus(*words: object, code: int = 0) -> str:
    return scrapy("corpus", *words, "--processes", 1, code=code).stderr.decode()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("held", ["README.md", "data/a.jsonl.zst", "state/mine", ".hidden"])
def test_a_folder_that_is_no_corpus_is_refused(tmp_path: Path, held: str) -> None:
    """Nothing in it is overwritten, and nothing is added."""
    source, out = tmp_path / "warc", tmp_path / "out"
    source.mkdir()
    write(source / "a.warc.gz", RECORDS)
    (out / held).parent.mkdir(parents=True)
    (out / held).write_text("mine")
    before = contents(tmp_path)
    assert corpus(source, "-o", out, code=2) == (
        f"krowlspider: {out} exists and is no corpus: give a new folder\n"
    )
    assert contents(tmp_path) == before
    assert corpus(source, "-o", out / held, code=2).startswith(
        f"krowlspider: {out / held} exists and is no corpus"
    )
    assert contents(tmp_path) == before


def packed(path: Path) -> Path:
    """Write a WACZ with one file stored, and one compressed."""
    with ZipFile(path, "w") as archive:
        archive.writestr("archive/a.warc.gz", gzip.compress(RECORDS[0]), ZIP_STORED)
        archive.writestr("archive/b.warc", RECORDS[1], ZIP_DEFLATED)
        archive.writestr("pages/pages.jsonl", "{}")
        archive.writestr("other/c.warc", RECORDS[1])
    return path


@pytest.mark.parametrize(
    ("name", "write_file", "files"),
    [
        ("a.warc.gz", lambda path: write(path, RECORDS), ["a.warc.gz"]),
        ("a.warc", lambda path: path.write_bytes(b"".join(RECORDS)), ["a.warc"]),
        ("A.WACZ", packed, ["a.warc.gz", "b.warc"]),
    ],
)
def test_a_single_file_is_read(
    tmp_path: Path, name: str, write_file: Callable[[Path], object], files: list[str]
) -> None:
    """A second run goes on with the same corpus, and takes nothing twice."""
    write_file(tmp_path / name)
    write(tmp_path / "other.warc.gz", [response("http://other.example/", html(7))])
    out = tmp_path / "out"
    for _ in range(2):
        corpus(tmp_path / name, "-o", out)
        shards = sorted((out / "data").iterdir())
        lines = [json.loads(line) for each in shards for line in read_lines(each)]
        assert [line["url"] for line in lines] == URLS
        assert sorted({line["warc_file"] for line in lines}) == files
    assert not (out / "state" / "unpacked").exists()


def test_a_wacz_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    wacz, out = tmp_path / "a.wacz", tmp_path / "out"
    wacz.write_bytes(b"no zip")
    assert f"krowlspider: {wacz} cannot be read: " in corpus(wacz, "-o", out, code=2)
    ZipFile(wacz, "w").close()
    said = corpus(wacz, "-o", out, code=2)
    assert said == f"krowlspider: {wacz} has no WARC file in archive/\n"
    with ZipFile(wacz, "w") as archive:
        for folder in "bc":
            archive.writestr(f"archive/{folder}/a.warc.gz", b"")
    said = corpus(wacz, "-o", out, code=2)
    names = "archive/b/a.warc.gz and archive/c/a.warc.gz"
    assert said == f"krowlspider: {names} have the same name in {wacz}: rename one\n"
    wacz.rename(other := tmp_path / "a.zip")
    assert "give .warc.gz, .warc, .warc.zst or .wacz" in corpus(other, "-o", out, code=2)
    assert not out.exists()
