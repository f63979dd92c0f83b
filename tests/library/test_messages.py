"""Messages come whole, however the socket cuts them."""

from __future__ import annotations

from datetime import UTC, datetime
from socket import socketpair
from threading import Thread
from typing import Any

import pytest

from krowlspider.library.messages import (
    CrawlEnd,
    CrawlFault,
    CrawlOrder,
    Frames,
    LogLine,
    Stats,
    frame,
    read_order,
)
from krowlspider.library.page import Page, Record
from tests.support.tables import table


def some_page(**more: Any) -> Page:
    values: dict[str, Any] = {
        "url": "http://a.test/",
        "status": 200,
        "headers": {"content-type": "text/html"},
        "body": "<p>grün".encode("latin-1"),
        "media_type": "text/html",
        "charset": "windows-1252",
        "fetched": datetime(2026, 1, 2, tzinfo=UTC),
        "depth": 1,
        "title": "t",
        "lang": "de",
        "links": ["http://a.test/b"],
        "canonical": None,
        "noindex": False,
        "redirected_from": [],
        "seed": None,
        "tag": None,
        "record": Record("a.warc.gz", 3, "<urn:uuid:1>"),
        "truncated": False,
    }
    return Page(**{**values, **more})


MESSAGES = [
    some_page(),
    LogLine("krowlspider.a", 20, "text", 1.5),
    Stats({"a/b": 1, "when": "now"}),
    some_page(record=None, body=b"\0" * 3000),
    CrawlEnd(CrawlFault("JobError", "why"), {}),
]


def test_what_cannot_be_sent_is_sent_as_text() -> None:
    """Else a line about a file whose name is no text would end the crawl."""
    line = LogLine("a", 30, "no \udcff.txt", 1.0)
    stats = {"n": 1, "big": 10**40, ("a", 1): {1: "\udcff"}, "none": None, "x": 0.5}
    end = CrawlEnd(CrawlFault("JobError", "no \udcff"), stats)
    sent = b"".join(map(bytes, map(frame, (line, Stats(stats), end))))
    held = {"n": 1, "big": str(10**40), "('a', 1)": {"1": "\\udcff"}, "none": None, "x": 0.5}
    assert list(Frames().feed(sent)) == [
        LogLine("a", 30, "no \\udcff.txt", 1.0),
        Stats(held),
        CrawlEnd(CrawlFault("JobError", "no \\udcff"), held),
    ]


@table("size", [1, 2, 3, 5, 7, 64, 1000, 100_000])
def test_messages_are_put_together_again(size: int) -> None:
    sent = b"".join(map(bytes, map(frame, MESSAGES)))
    frames, found = Frames(), []
    for start in range(0, len(sent), size):
        found += frames.feed(sent[start : start + size])
    assert found == MESSAGES


def test_an_order_is_read_whole() -> None:
    order = CrawlOrder(["a.org"] * 50_000, None, "/job", True, {"max_pages": "3"}, {"A": [1, "b"]})
    ours, theirs = socketpair()
    with ours, theirs:
        # The socket has no room for all of it.
        sending = Thread(target=ours.sendall, args=(frame(order),))
        sending.start()
        assert read_order(theirs) == order
        sending.join()
        ours.send(b"\0\0")
        ours.close()
        with pytest.raises(EOFError, match="the program has gone"):
            read_order(theirs)


def test_a_page_is_frozen_and_has_text() -> None:
    page = some_page()
    assert page.text == "<p>grün"
    assert page.text is page.text
    assert repr(page) == "<Page 200 http://a.test/ 7 bytes>"
    with pytest.raises(AttributeError, match="immutable"):
        page.status = 404  # type: ignore[misc]
    assert some_page(charset=None, body='<meta charset="utf-8">ü'.encode()).text[-1] == "ü"
