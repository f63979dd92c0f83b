"""Bodies that archives store without the codings that their headers name."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING
from zipfile import ZipFile

import brotli
import pytest

from krowlspider.archive.cdxj import index_path, parse
from krowlspider.archive.payload import digest
from krowlspider.corpus.folder import read_lines
from tests.archive.command import warc
from tests.corpus.warcs import html, response, write
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path

TYPE = "Content-Type: text/html; charset=utf-8"
CHUNKED = f"{TYPE}\r\nTransfer-Encoding: chunked"
GZIP = f"{TYPE}\r\nContent-Encoding: gzip"
BOTH = f"{CHUNKED}\r\nContent-Encoding: gzip"


ZIPPED = gzip.compress(html(0), mtime=0)


def in_chunks(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


# What headers say, and what is stored of a page: decoded, decoded in part, as it came.
KINDS = {
    "clueweb": (CHUNKED, bytes),
    "liveweb": (BOTH, bytes),
    "cc-news": (GZIP, bytes),
    "brotli": (f"{TYPE}\r\nContent-Encoding: br", bytes),
    "two-fields": (f"{GZIP}\r\nContent-Encoding: br", gzip.compress),
    "dechunked": (BOTH, gzip.compress),
    "unzipped": (BOTH, in_chunks),
    "as-it-came": (BOTH, lambda body: in_chunks(gzip.compress(body))),
    "twice": (
        f"{CHUNKED}\r\nContent-Encoding: gzip, br",
        lambda body: in_chunks(brotli.compress(gzip.compress(body))),
    ),
}
PAGES = {f"http://a.example/{kind}": html(number) for number, kind in enumerate(KINDS)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (there := tmp_path / "warc").mkdir()
    records = []
    for (url, page), (headers, store) in zip(PAGES.items(), KINDS.values(), strict=True):
        stored = store(page)
        # Of the stored bytes, or of none: the index has that of the body without chunks.
        claimed = digest(stored) if "live" in url else ""
        records.append(response(url, stored, headers, digest=claimed))
    write(there / "a.warc.gz", records)
    return there


def test_a_body_is_decoded_as_far_as_it_is_coded(folder: Path) -> None:
    warc("index", folder)
    for url, page in PAGES.items():
        assert warc("cat", url, folder, "--payload") == (page, "")
    lines = map(parse, index_path(folder / "a.warc.gz").read_bytes().splitlines())
    digests = {line.url: line.digest for line in lines}
    for url, page in PAGES.items():
        assert digests[url] != digest(b"")
        # Content codings are of the payload, chunks are not.
        if url.endswith(("clueweb", "liveweb", "cc-news", "brotli", "unzipped")):
            assert digests[url] == digest(page)


def test_every_reader_finds_the_bodies(folder: Path, tmp_path: Path) -> None:
    warc("index", folder)
    assert b"0 problems" in warc("check", folder)[0]
    assert json.loads(warc("stats", folder, "--json")[0])["media_types"] == {
        "text/html": len(KINDS)
    }
    warc("extract", folder, "-o", tmp_path / "out", "--mime", "text/html")
    for source in (folder, tmp_path / "out"):
        wacz = tmp_path / f"{source.name}.wacz"
        warc("wacz", source, "-o", wacz)
        with ZipFile(wacz) as archive:
            _, *pages = map(json.loads, archive.read("pages/pages.jsonl").splitlines())
        assert {page["url"]: page["title"] for page in pages} == {
            url: f"Page {number}" for number, url in enumerate(PAGES)
        }
    scrapy("corpus", folder, "-o", tmp_path / "corpus", "--processes", 1)
    [shard] = (tmp_path / "corpus" / "data").iterdir()
    found = {each["url"]: each["text"] for each in map(json.loads, read_lines(shard))}
    assert found.keys() == PAGES.keys()
    for url, text in found.items():
        assert text.split(".")[0].encode() in PAGES[url]


@pytest.mark.parametrize(
    ("headers", "stored", "reason"),
    [
        (GZIP, ZIPPED[:99] + b"\xff" * 99, "it cannot be decoded, broken gzip data"),
        (GZIP, ZIPPED[:11], "it cannot be decoded, gzip data that is cut"),
        (CHUNKED, b"4d", "its first chunk is cut off"),
        (CHUNKED, b"4d\r\n", "its first chunk is cut off"),
    ],
    ids=["broken", "cut", "no chunk", "no data"],
)
def test_a_body_that_cannot_be_decoded_is_printed_as_it_is(
    tmp_path: Path, headers: str, stored: bytes, reason: str
) -> None:
    write(tmp_path / "a.warc.gz", [response("http://a.example/", stored, headers)])
    warc("index", tmp_path)
    body, said = warc("cat", "http://a.example/", tmp_path, "--payload", code=1)
    assert body == stored
    assert said.startswith(f"krowlspider: http://a.example/: {reason}")
    assert said.endswith(": printed as it is stored\n")


@pytest.mark.parametrize("stored", [b"", b"0\r\n\r\n"])
def test_a_body_of_nothing_is_no_fault(tmp_path: Path, stored: bytes) -> None:
    write(tmp_path / "a.warc.gz", [response("http://a.example/", stored, CHUNKED)])
    warc("index", tmp_path)
    assert warc("cat", "http://a.example/", tmp_path, "--payload") == (b"", "")
