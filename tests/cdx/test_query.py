"""Queries of strangers, and those for answers to other methods than GET."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krowlspider.cdx.archives import Archives
from krowlspider.cdx.errors import QueryError
from krowlspider.cdx.query import Dialect
from tests.archive.captures import capture, written
from tests.cdx.asking import PYWB, lines_of, samples, text_of

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    *("url", "urlkey", "matchType", "method", "requestBody", "from_", "to", "closest", "sort"),
    *("reverse", "limit", "fl", "fields", "output", "collapse", "collapseToLast", "collapseTime"),
    *("resolveRevisits", "omitSelfRedirects", "page", "pageSize", "showNumPages", "gzip", "q"),
    *("showPagedIndex", "count", "start_page"),
)
VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            *("", "*", "*.", ".*", "http://iana.org/", "iana.org/*", "*.iana.org", "http://[::1"),
            *("prefix", "host", "domain", "range", "reverse", "closest", "json", "cdx9", "1"),
            *(
                "jsonarray",
                "jsondict",
                "true",
                "2014",
                "99999999999999",
                "00000000000000",
                "201402",
            ),
            *("type:urlquery url:iana.org", "url:iana.org date:2014 type:prefixquery", "dns:"),
            *("http://iana.org:99999/", "//", "\ud800", "a b", "\r\n", "org,iana)/", "２０１４"),
            *("urn:x", "timestamp:4"),
        ]
    ),
)
QUERIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5)


POST = (
    b"POST /x HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 7\r\n\r\na=1&b=2"
)
PUT = b'PUT /x HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"a": 1}'


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return samples(tmp_path_factory.mktemp("every") / "warc")


@given(QUERIES, st.lists(VALUES, max_size=2), st.sampled_from(Dialect))
@example({"url": "iana.org", "closest": "201413"}, [], PYWB)
@example({"url": "iana.org", "closest": "00000000000000"}, [], PYWB)
@example({"url": "\udcff"}, [], PYWB)
@example({"url": "x", "matchType": "domain", "showNumPages": "1"}, [], PYWB)
def test_any_query_has_an_answer_or_an_error_in_a_line(
    every: Archives, query: dict[str, str], filters: list[str], dialect: Dialect
):
    with suppress(QueryError):
        found = text_of(every, dialect, filters, **query)
        if "q" in query:
            ElementTree.fromstring(found)


@pytest.mark.parametrize(
    ("request_bytes", "added", "method", "body"),
    [
        (
            POST,
            *("__wb_method=POST&a=1&b=2", "POST", "a=1&b=2"),
        ),
        (
            PUT,
            *("__wb_method=PUT&a=1", "put", "a=1"),
        ),
        (b"DELETE /x HTTP/1.1\r\n\r\n", *("__wb_method=DELETE", "DELETE", "")),
    ],
    ids=["form", "json", "without body"],
)
def test_answer_to_another_method_is_found_by_its_request(
    tmp_path: Path, request_bytes: bytes, added: str, method: str, body: str
):
    """By pywb's URL, and by OutbackCDX's parameters; the URL alone finds the answer to GET."""
    url = "http://example.org/x?q=0"
    written(tmp_path, [capture(1, url=url), capture(2, url=url, request=request_bytes)])
    archives = Archives([tmp_path])
    given = {"fl": "urlkey", "output": "text"}
    [found] = lines_of(archives, url=f"{url}&{added}", **given)
    assert quote(found, safe="/?&=,)_").startswith("org,example)/x?__wb_method=")
    assert lines_of(archives, url=url, method=method, requestBody=body, **given) == [found]
    assert lines_of(archives, url=url, **given) == ["org,example)/x?q=0"]
    assert lines_of(archives, url=url, method="HEAD", **given) == ["org,example)/x?q=0"]
