"""The class of a response: of HTML wherever browsers take the body for HTML."""

from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse

from krowlspider.engine.handler import headers_of, response_of
from krowlspider.fetch.errors import Exchange, Peer, Times
from tests.support.tables import table

# With a byte that Scrapy takes for the sign of a binary body.
PAGE = b"\n<!DOCTYPE html PUBLIC 'x'><html lang=de>\x01<a href=/x>x</a>"
HTML_TYPE = b"text/html; charset=utf-8"


def response(body: bytes, *types: bytes, url: str = "http://a.test/") -> Response:
    headers = [(b"content-type", value) for value in types]
    peer, times = Peer("127.0.0.1"), Times(0.0, 0.0, 0.0, None)
    exchange = Exchange(url, b"", b"", 0, 200, "1.1", headers, body, "", peer, times)
    return response_of(Request(url), exchange, headers_of(headers), body)


@table(
    "types",
    [
        *([HTML_TYPE], [b"application/xhtml+xml"], [b"text/html, text/html; charset=utf-8"]),
        *([], [b""], [b"*/*"], [b"none"], [b"charset=utf-8"], [b"unknown/unknown"]),
        *([b"application/unknown"], [b"text/plain", HTML_TYPE], [HTML_TYPE, b"none"]),
    ],
)
@table("path", ["", "photo.jpg", "file.zip", "data.json"])
def test_html_is_an_html_response(types: list[bytes], path: str) -> None:
    found = response(PAGE, *types, url=f"http://a.test/{path}")
    assert type(found) is HtmlResponse
    assert found.css("a::attr(href)").get() == "/x"
    assert found.headers.getlist("Content-Type") == types


@pytest.mark.parametrize(
    ("body", "media_type", "kind"),
    [
        (PAGE, b"text/plain", TextResponse),
        (b"{}", b"application/json", JsonResponse),
        (b"<x/>", b"text/xml", XmlResponse),
        (b"\x89PNG", b"image/png", TextResponse),
    ],
)
def test_other_responses_are_of_scrapys_class(
    body: bytes, media_type: bytes, kind: type[Response]
) -> None:
    assert type(response(body, media_type)) is kind
