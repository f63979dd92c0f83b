"""Answers over https that end with their connection: no length, and no close_notify."""

from __future__ import annotations

import gzip
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.support.archived import valid_records
from tests.support.crawling import Crawl, write_seeds
from tests.support.crawls import AT_ONCE
from tests.support.rawweb import Raw, RawWeb

if TYPE_CHECKING:
    from pathlib import Path

# A host waits longer after each failure.
ONE_RETRY = {"RETRY_TIMES": 1}
STAT = "krowl/fetch/truncated_count"
SAID = "accepted after the last try, and marked as truncated"


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("a.test").configure_cert(context)
    return context


def html(text: str, head: str = "") -> Raw:
    return Raw(
        f"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n{head}\r\n{text}".encode(), closes=True
    )


def crawled(folder: Path, web: RawWeb, *paths: str, code: int = 0, **settings: Any) -> Crawl:
    return Crawl(
        folder / "job",
        arguments={
            "seeds": write_seeds(folder / "seeds", [web.url("a.test", path) for path in paths])
        },
        settings={**AT_ONCE, "KROWL_RETRY_DELAY": 0.01, "KROWL_SITEMAPS": 0, **settings},
    ).run(code=code)


def test_a_page_is_accepted_at_the_last_try(tmp_path: Path, tls: ssl.SSLContext) -> None:
    """Its links are followed. Item, archive, stats and log tell that it may be cut."""
    answers = {"/": html("<title>Home</title><a href=/b>b</a>"), "/b": html("<title>B</title>")}
    with RawWeb(answers, tls) as web:
        crawl = crawled(tmp_path, web, "/", **ONE_RETRY)
    items = {item["title"]: item for item in crawl.items}
    assert sorted(items) == ["B", "Home"]
    assert {item["truncated"] for item in items.values()} == {"disconnect"}
    assert [web.asked.count(path) for path in ("/robots.txt", "/", "/b")] == [1, 2, 2]
    assert crawl.stats[STAT] == 2
    assert crawl.stats["krowl/frontier/done_count"] == 2
    assert not [name for name in crawl.stats if "dropped_count" in name]
    assert crawl.log.count(SAID) == 1
    kept = [
        record.all("WARC-Truncated")
        for record in valid_records(crawl.jobdir / "warc")
        if record.kind == "response" and not record.url.endswith("/robots.txt")
    ]
    assert kept == [["disconnect"]] * 4


@pytest.mark.parametrize(
    ("status", "asked", "code"),
    [("404 Not Found", 3, 0), ("500 Oops", 3, 0), ("503 Busy", 11, 4)],
)
def test_any_status_is_accepted(
    tmp_path: Path, tls: ssl.SSLContext, status: str, asked: int, code: int
) -> None:
    """429 and 503 at once: they have tries of their own."""
    answer = Raw(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\nno".encode(), closes=True)
    with RawWeb({"/": answer}, tls) as web:
        crawl = crawled(tmp_path, web, "/", code=code, KROWL_RETRY_DELAY=0)
    assert web.asked.count("/") == asked
    assert crawl.stats[STAT] == (asked if status.startswith("503") else 1)


def test_a_robots_txt_is_accepted_and_obeyed(tmp_path: Path, tls: ssl.SSLContext) -> None:
    answers = {
        "/robots.txt": html("User-agent: *\nDisallow: /secret\n"),
        "/": Raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 23\r\n\r\n"
            b"<a href=/secret>s</a>\r\n"
        ),
    }
    with RawWeb(answers, tls) as web:
        crawl = crawled(tmp_path, web, "/")
    assert (web.asked.count("/robots.txt"), web.asked.count("/secret")) == (3, 0)
    assert [item["url"] for item in crawl.items] == [web.url("a.test")]
    assert "truncated" not in crawl.items[0]
    assert crawl.stats[STAT] == 1


def test_without_retries_the_first_answer_counts(tmp_path: Path, tls: ssl.SSLContext) -> None:
    with RawWeb({"/": html("<title>Home</title>")}, tls) as web:
        crawl = crawled(tmp_path, web, "/", RETRY_ENABLED=False)
    assert web.asked.count("/") == 1
    assert [item["title"] for item in crawl.items] == ["Home"]


def test_a_body_that_is_shorter_than_its_length_is_dropped(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    """One whose content coding is cut is accepted, and marked."""
    coded = gzip.compress(bytes(range(256)) * 40)[:-20]
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\n"
    answers = {
        "/length": Raw(head + b"Content-Length: 900\r\n\r\nhello", closes=True),
        "/coding": Raw(head + b"Content-Encoding: gzip\r\n\r\n" + coded, closes=True),
    }
    with RawWeb(answers, tls) as web:
        crawl = crawled(tmp_path, web, *answers, RETRY_ENABLED=False)
        assert [(item["url"], item["truncated"]) for item in crawl.items] == [
            (web.url("a.test", "/coding"), "disconnect")
        ]
    assert crawl.stats["krowl/frontier/dropped_count/disconnect"] == 1


def test_plain_http_needs_no_close_notify(tmp_path: Path) -> None:
    with RawWeb({"/": html("<title>Home</title>")}) as web:
        crawl = crawled(tmp_path, web, "/")
    assert web.asked.count("/") == 1
    assert "truncated" not in crawl.items[0]
    assert STAT not in crawl.stats or crawl.stats[STAT] == 0
