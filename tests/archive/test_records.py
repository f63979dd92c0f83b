from __future__ import annotations

import re
from io import BytesIO

import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import given
from hypothesis import strategies as st

from krowlspider.archive import records
from krowlspider.archive.lookup import parse_record
from krowlspider.archive.payload import is_plain

from .captures import CHUNKED, REQUEST, STARTED, Odd, capture

ID = records.record_id(bytes(16))
OTHER_ID = records.record_id(bytes(15) + b"\x01")
INFO_ID = records.record_id(b"\xff" * 16)
SPECIFICATION = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
DATE = records.warc_date(STARTED)


def test_a_record_id_is_a_version_4_uuid_of_the_bytes_handed_in() -> None:
    assert ID == "<urn:uuid:00000000-0000-4000-8000-000000000000>"
    assert INFO_ID == "<urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff>"


@pytest.mark.parametrize(
    ("epoch", "date"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (STARTED, "2026-01-01T00:00:00.250000Z"),
        (-62135596800.0, "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_a_date_is_in_utc_with_microseconds(epoch: float, date: str) -> None:
    assert records.warc_date(epoch) == date


@pytest.mark.parametrize("epoch", [float("nan"), float("inf"), -float("inf"), 1e18, -1e12])
def test_what_is_no_time_is_refused(epoch: float) -> None:
    with pytest.raises(ValueError, match=r"not a time|NaN"):
        records.warc_date(epoch)


def test_a_digest_is_sha1_in_base32() -> None:
    assert records.digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


def test_a_response_record_is_these_bytes() -> None:
    """Order, spelling and line ends of the fields, and the block verbatim between them."""
    record = records.response(capture(7), identity=ID, date=DATE, info=INFO_ID)
    block = capture(7).response_bytes
    assert record == (
        b"WARC/1.1\r\n"
        b"WARC-Type: response\r\n"
        b"WARC-Record-ID: " + ID.encode() + b"\r\n"
        b"WARC-Date: 2026-01-01T00:00:00.250000Z\r\n"
        b"WARC-Target-URI: http://example.org/page/7\r\n"
        b"WARC-IP-Address: 192.0.2.7\r\n"
        b"WARC-Warcinfo-ID: " + INFO_ID.encode() + b"\r\n"
        b"Content-Type: application/http; msgtype=response\r\n"
        b"WARC-Block-Digest: " + records.digest(block).encode() + b"\r\n"
        b"WARC-Payload-Digest: " + records.digest(b"<p>page 7</p>").encode() + b"\r\n"
        b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n"
    )


def test_a_request_record_names_its_response_and_has_no_payload_digest() -> None:
    record = records.request(capture(), identity=OTHER_ID, date=DATE, info=INFO_ID, concurrent=ID)
    fields = parse_record(record, 0).headers.to_dict()
    assert fields["WARC-Type"] == "request"
    assert fields["WARC-Concurrent-To"] == ID
    assert fields["Content-Type"] == "application/http; msgtype=request"
    assert fields["WARC-Block-Digest"] == records.digest(REQUEST)
    assert "WARC-Payload-Digest" not in fields


def test_a_metadata_record_says_by_which_redirects_a_page_was_come_to() -> None:
    led = capture()
    led.chain = ("http://example.org/0", "bad\r\nWARC-Type: response", "http://example.org/1")
    record = records.metadata(led, identity=OTHER_ID, date=DATE, info=INFO_ID, concurrent=ID)
    read = parse_record(record, 0)
    fields, block = read.headers.to_dict(), read.reader.read()
    assert fields["WARC-Type"] == "metadata"
    assert fields["WARC-Concurrent-To"] == ID
    assert fields["WARC-Target-URI"] == led.url
    assert fields["Content-Type"] == "application/warc-fields"
    assert fields["WARC-Block-Digest"] == records.digest(block)
    assert block == (
        b"redirected-from: http://example.org/0\r\n"
        b"redirected-from: http://example.org/1\r\n"
        b"via: http://example.org/1\r\n"
    )


def test_a_request_with_a_body_has_the_digest_of_the_body() -> None:
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\na\r\n\r\nbc"
    record = records.request(
        capture(request=post), identity=OTHER_ID, date=DATE, info=INFO_ID, concurrent=ID
    )
    fields = parse_record(record, 0).headers.to_dict()
    assert fields["WARC-Payload-Digest"] == records.digest(b"a\r\n\r\nbc")


def test_a_chunked_response_has_a_block_digest_only() -> None:
    record = records.response(capture(odd=CHUNKED), identity=ID, date=DATE, info=INFO_ID)
    fields = parse_record(record, 0).headers.to_dict()
    assert "WARC-Payload-Digest" not in fields
    assert fields["WARC-Block-Digest"] == records.digest(CHUNKED.response)


@pytest.mark.parametrize("reason", ["length", "time", "disconnect"])
def test_a_truncated_response_says_so(reason: str) -> None:
    odd = Odd(b"HTTP/1.1 200 OK\r\n\r\nab", b"ab", reason)
    record = records.response(capture(odd=odd), identity=ID, date=DATE, info=INFO_ID)
    assert parse_record(record, 0).headers["WARC-Truncated"] == reason


def test_a_reason_for_truncation_that_the_standard_does_not_know_is_refused() -> None:
    odd = Odd(b"HTTP/1.1 200 OK\r\n\r\nab", b"ab", "length\r\nX: y")
    with pytest.raises(ValueError, match="truncation"):
        records.response(capture(odd=odd), identity=ID, date=DATE, info=INFO_ID)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://a/\r\nWARC-Type: warcinfo",
        "http://a/\n",
        "http://a/\x00",
        "http://a/\x7f",
        "http://a/\x85",
        "http://a/b c",
        "http://a/\u2028",
        "http://a/é",
        "http://a/\udcff",
        "http://a/" + "b" * 16384,
    ],
)
def test_a_url_that_is_not_an_escaped_uri_is_refused(url: str) -> None:
    bad = capture()
    bad.url = url
    with pytest.raises(ValueError, match="escaped URI"):
        records.response(bad, identity=ID, date=DATE, info=INFO_ID)
    with pytest.raises(ValueError, match="escaped URI"):
        records.request(bad, identity=OTHER_ID, date=DATE, info=INFO_ID, concurrent=ID)


def test_a_url_as_long_as_is_taken_can_be_read_back() -> None:
    url = "http://a/" + "b" * (16384 - 9)
    record = records.response(capture(url=url), identity=ID, date=DATE, info=INFO_ID)
    assert parse_record(record, 0).headers["WARC-Target-URI"] == url


@pytest.mark.parametrize("address", ["", "example.org", "192.0.2.7\r\nX: y", "1.2.3"])
def test_an_address_that_is_not_an_ip_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="IPv4 or IPv6"):
        records.response(capture(address=address), identity=ID, date=DATE, info=INFO_ID)


def test_an_ipv6_address_is_written_in_its_short_form() -> None:
    record = records.response(
        capture(address="2001:db8:0:0:0:0:0:1"), identity=ID, date=DATE, info=INFO_ID
    )
    assert parse_record(record, 0).headers["WARC-IP-Address"] == "2001:db8::1"


def test_a_warcinfo_record_tells_its_file_and_fields() -> None:
    block = records.info_block({"software": "test/1", "operator": "Zoë <z@example.org>"})
    record = records.warcinfo(block, identity=INFO_ID, date=DATE, filename="a.warc.gz")
    read = parse_record(record, 0)
    assert read.headers["WARC-Filename"] == "a.warc.gz"
    assert read.headers["Content-Type"] == "application/warc-fields"
    assert "WARC-Payload-Digest" not in read.headers
    assert read.reader.read().decode().splitlines() == [
        "software: test/1",
        "operator: Zoë <z@example.org>",
        "format: WARC File Format 1.1",
        f"conformsTo: {SPECIFICATION}",
    ]


@pytest.mark.parametrize(
    "fields", [{"a b": "c"}, {"": "c"}, {"a:": "c"}, {"a": "b\r\nc: d"}, {"a": "b\x00"}]
)
def test_warcinfo_fields_that_would_break_the_block_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"field name|control character"):
        records.info_block(fields)


@given(url=st.text(max_size=40), response=st.binary(max_size=200), truncated=st.text(max_size=9))
def test_whatever_comes_in_is_refused_or_is_one_record_with_its_own_fields(
    url: str, response: bytes, truncated: str
) -> None:
    """No byte of a URL or a response can begin a field or a record."""
    hostile = capture(odd=Odd(response, response, truncated))
    hostile.url = url
    try:
        record = records.response(hostile, identity=ID, date=DATE, info=INFO_ID)
    except ValueError:
        return
    read = parse_record(record, 0)
    digested = is_plain(response, hostile.payload)
    assert len(read.headers) == 9 + digested + bool(truncated)
    assert read.headers["WARC-Target-URI"] == url
    assert read.reader.read() == response
    assert len(list(ArchiveIterator(BytesIO(record), parse_http=False))) == 1
    assert len(re.findall(rb"\r\nWARC-Type: ", record.removesuffix(response + b"\r\n\r\n"))) == 1


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nA: 1\r\n \r\nB: 2",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding\0: chunked",
        b"HTTP/1.1 200 OK\r\nstray line",
        b"HTTP/1.1 200 OK\nA: 1",
    ],
)
def test_a_head_that_tools_read_in_different_ways_has_no_payload_digest(head: bytes) -> None:
    odd = Odd(head + b"\r\n\r\nbody", b"body")
    record = records.response(capture(odd=odd), identity=ID, date=DATE, info=INFO_ID)
    assert "WARC-Payload-Digest" not in parse_record(record, 0).headers.to_dict()
