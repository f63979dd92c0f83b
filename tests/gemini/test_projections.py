"""Catalogue, corpus, changes and CDX server read archives of Gemini."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fastwarc.warc import ArchiveIterator
from msgspec.structs import replace

from krowlspider.archive.cdxj import index_path
from krowlspider.catalogue.rows import rows_of
from krowlspider.cdx.ranges import ranges_of
from krowlspider.changes.pairs import body_in, compared
from krowlspider.corpus.folder import read_lines
from krowlspider.corpus.record import CorpusLink
from krowlspider.corpus.text.document import Reading, gemtext_document
from krowlspider.corpus.warc_pages import NoPage, page_of
from tests.archive.captures import STARTED, deduplicating, finished, written
from tests.archive.captures import capture as web_capture
from tests.gemini.answers import Answer, page, redirect, refusal
from tests.gemini.archived import PAGE, URL, capture
from tests.support.crawling import scrapy

if TYPE_CHECKING:
    from pathlib import Path

ART = "```\n /\\_/\\\n( o.o )\n```\n# Cats & dogs\nA page of *plain* words.\n=> /b.gmi More of it\n"


def rows(path: Path, table: str) -> dict[str, dict[str, Any]]:
    found = [row for name, row in rows_of(path, frozenset({table})) if name == table]
    return {row.get("url") or row.get("host") or row["target_url"]: row for row in found}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    robots = page("User-agent: *\nDisallow: /private/\n", kind="text/plain")
    captures = [
        capture(page(ART, kind="text/gemini; lang=en"), url=URL),
        capture(Answer(b"20\r\n", b"# B\xc3\xa4r\n"), url="gemini://example.org:1966/b"),
        capture(redirect("/new?a=1"), url="gemini://example.org/old"),
        capture(refusal(51), url="gemini://example.org/gone"),
        capture(refusal(44, "10"), url="gemini://example.org/slow"),
        capture(robots, url="gemini://example.org/robots.txt"),
        web_capture(url="http://example.org/a.gmi"),
    ]
    with deduplicating(tmp_path) as files:
        for each in captures:
            files.append(each)
        files.append(replace(captures[0], identity=captures[0].identity, started=STARTED + 9))
    [found] = finished(tmp_path)
    return found


def test_the_catalogue_has_rows_of_gemini(path: Path):
    found = [row for name, row in rows_of(path, frozenset({"fetch"})) if name == "fetch"]
    first, port, moved, gone, slow, robots, web, again = found
    assert (first["url"], first["url_surtkey"]) == (URL, "gemini://org,example)/a.gmi")
    assert (first["url_protocol"], first["url_port"]) == ("gemini", None)
    assert (port["url_port"], port["krowl_title"]) == (1966, "B\u00e4r")
    assert (first["fetch_status"], first["subset"]) == (20, "warc")
    assert (first["content_mime_type"], port["content_mime_type"]) == ("text/gemini",) * 2
    assert first["content_mime_detected"] == "text/gemini"
    assert first["content_charset"].lower() == "utf-8"
    assert (first["krowl_title"], first["krowl_language"]) == ("Cats & dogs", "en")
    assert (moved["fetch_status"], moved["fetch_redirect"]) == (31, "gemini://example.org/new?a=1")
    assert {row["subset"] for row in (moved, gone, slow)} == {"crawldiagnostics"}
    assert robots["subset"] == "robotstxt"
    assert (web["url_protocol"], web["fetch_status"]) == ("http", 200)
    assert (again["krowl_revisit"], again["content_mime_type"]) == (
        "identical-payload-digest",
        "text/gemini",
    )


def test_the_catalogue_has_links_of_gemtext(path: Path):
    links = rows(path, "link")
    assert links["gemini://example.org/b.gmi"]["text"] == "More of it"
    assert links["gemini://example.org/b.gmi"]["source_url"] == URL


def test_the_catalogue_counts_a_gemini_server_as_a_host(path: Path):
    hosts = rows(path, "host_by_file")
    assert hosts.keys() == {"example.org:1965", "example.org:1966", "example.org"}
    own = hosts["example.org:1965"]
    names = ("fetches", "successes", "redirects", "client_errors", "server_errors", "revisits")
    assert [own[name] for name in names] == [6, 3, 1, 1, 1, 1]
    assert rows(path, "page_by_file")[URL]["title"] == "Cats & dogs"


def test_the_corpus_takes_gemtext(path: Path):
    with path.open("rb") as stream:
        found = {}
        for record in ArchiveIterator(stream, parse_http=False):
            if record.headers["WARC-Type"] != "response":
                continue
            url = record.headers["WARC-Target-URI"]
            try:
                found[url] = page_of(record, lambda body, _: body)
            except NoPage as error:
                found[url] = str(error)
    assert found["gemini://example.org/gone"] == "not status 200"
    assert found["gemini://example.org/robots.txt"] == "not HTML"
    taken = found[URL]
    assert (taken.kind, taken.media_type, taken.charset) == ("gemtext", "text/gemini", "utf-8")
    read = gemtext_document(taken, Reading(links=True))
    assert read.fields.pop("links") == [CorpusLink("gemini://example.org/b.gmi", "More of it")]
    assert read.fields == {"title": "Cats & dogs"}
    assert read.text.splitlines() == ["Cats & dogs", "A page of *plain* words.", "More of it"]


@pytest.mark.slow
def test_the_command_of_corpora_takes_gemtext(tmp_path: Path):
    """With its title, language and text; the rules judge it as they do HTML."""
    text = (
        "The harbour was quiet that evening, and the boats lay still in the water below it. An old"
        " man who had come with the last ferry asked whether there was a room to be had.\n\n"
        "Nobody knew of one, but the woman at the counter told him that her sister would have a bed"
        " to spare if he did not mind the noise of the market in the morning.\n\n"
        "He thanked her, left his bag with the keeper of the lighthouse, and walked along the wall"
        " until the lamps on the other side of the bay had gone out one after another.\n"
    )
    body = f"# The harbour\n\n{text}"
    (tmp_path / "warc").mkdir()
    written(tmp_path / "warc", [capture(page(body)), capture(refusal(51), url=f"{URL}x")])
    scrapy("corpus", tmp_path / "warc", "-o", tmp_path / "out", "--processes", 1, "--links")
    [data] = (tmp_path / "out").glob("data/*.jsonl.zst")
    [record] = map(json.loads, read_lines(data))
    assert (record["url"], record["title"]) == (URL, "The harbour")
    assert (record["media_type"], record["language"]) == ("text/gemini", "en")
    assert record["text"].startswith("The harbour\n")


def test_changes_compare_gemtext():
    fields = {"Content-Type": "application/gemini; msgtype=response"}
    bodies = [
        body_in(fields, PAGE.header + text, lambda body, _: body)
        for text in (b"# A\none\ntwo\n", b"# A\none\nthree\n")
    ]
    found = compared(*bodies, with_difference=False)
    assert found is not None
    assert (found.media_type, found.text_changed) == ("text/gemini", True)
    assert compared(bodies[0], bodies[0], with_difference=False) is None


@pytest.mark.parametrize(
    ("url", "match", "urls"),
    [
        ("gemini://example.org/a.gmi", "exact", [URL, URL]),
        ("gemini://example.org/", "prefix", [URL, URL, "/gone", "/old", "/robots.txt", "/slow"]),
        (
            "gemini://example.org",
            "domain",
            [URL, URL, "/gone", "/old", "/robots.txt", "/slow", ":"],
        ),
        ("http://example.org/a.gmi", "exact", ["http://example.org/a.gmi"]),
        ("example.org", "domain", ["http://example.org/a.gmi"]),
    ],
)
def test_look_ups_of_gemini_find_no_web_page(path: Path, url: str, match: str, urls: list[str]):
    lines = index_path(path).read_bytes().splitlines()
    found = [line for begin, end in ranges_of(url, match) for line in lines if begin <= line < end]
    assert len(found) == len(urls)
    for line, wanted in zip(found, urls, strict=True):
        assert wanted.encode() in line
