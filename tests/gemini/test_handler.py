"""The responses that the download handler makes of exchanges."""

from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from krowlspider.fetch.errors import Exchange, Peer, Times
from krowlspider.gemini.handler import response_of
from krowlspider.gemini.reader import AnswerReader

URL = "gemini://a.test/"


def response(answer: bytes) -> Response:
    reader = AnswerReader(len(answer))
    reader.feed(answer)
    assert reader.head is not None
    body = reader.body_of(reader.response_bytes)
    exchange = Exchange(
        *(URL, b"", reader.response_bytes, reader.head_length, reader.head.status, ""),
        *(reader.head.headers, body, "", Peer("127.0.0.1", None, b"der"), Times(0, 0, 0, None)),
    )
    return response_of(Request("gemini://a.test/"), exchange, body)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (b"20 text/gemini\r\n# \xc3\xa4", TextResponse, "# ä"),
        (b"20\r\n# \xc3\xa4", TextResponse, "# ä"),
        (b"20 text/gemini\r\n\xef\xbb\xbf# x", TextResponse, "# x"),
        (b"20 text/gemini; charset=iso-8859-15\r\n\xa4", TextResponse, "€"),
        (b"20 text/gemini; charset=utf-16le\r\n#\0", TextResponse, "#"),
        (b"20 text/gemini; charset=no-such\r\n\xc3\xa4\xff", TextResponse, "ä\ufffd"),
        (b"20 text/gemini; charset=punycode\r\nabc", TextResponse, "abc"),
        (b"20 text/html\r\n<p>x", HtmlResponse, "<p>x"),
        (b"20 application/atom+xml\r\n<feed/>", XmlResponse, "<feed/>"),
    ],
)
def test_text_is_decoded_by_its_charset(answer: bytes, kind: type, text: str) -> None:
    made = response(answer)
    assert type(made) is kind
    assert isinstance(made, TextResponse)
    assert made.text == text
    assert (made.status, made.protocol, made.certificate) == (20, "gemini", b"der")
    assert str(made.ip_address) == "127.0.0.1"


@pytest.mark.parametrize(
    "answer",
    [
        b"20 image/png\r\n\x89PNG",
        b"20 nonsense\r\n# x",
        b"31 /new\r\n",
        b"44 60\r\n",
        b"44 later\r\n",
        b"51 no\r\n",
    ],
)
def test_what_is_no_text_has_no_text(answer: bytes) -> None:
    made = response(answer)
    assert type(made) is Response
    assert made.status == int(answer[:2])
    assert made.body == (answer.partition(b"\r\n")[2] if answer.startswith(b"20") else b"")


def test_meta_is_in_the_header_that_has_its_meaning() -> None:
    metas = {
        b"20 text/gemini; lang=de\r\n": "Content-Type",
        b"20 text/gemini\r\n": "Content-Type",
        b"31 /new\r\n": "Location",
        b"44 60\r\n": "Retry-After",
        b"44 later\r\n": "Meta",
        b"51 no\r\n": "Meta",
    }
    for answer, name in metas.items():
        assert dict(response(answer).headers) == {name.encode(): [answer[3:-2]]}
    assert response(b"20\r\n").headers[b"Content-Type"] == b"text/gemini"
    assert not response(b"51\r\n").headers
