from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from ipaddress import ip_address
from uuid import UUID

import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from krowlspider.archive.payload import Original, digest, is_plain
from krowlspider.archive.write import records
from krowlspider.archive.write.records import Capture, FetchNote, Wire, cipher_suite, tls_protocol
from krowlspider.fetch.tls import crawler_tls
from tests.archive.captures import CHUNKED, REQUEST, STARTED, Odd, capture, parsed
from tests.support.tables import table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID = records.record_id(bytes(16))
OTHER_ID = records.record_id(bytes(15) + b"\x01")
INFO_ID = records.record_id(b"\xff" * 16)
SPECIFICATION = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
MAKER = records.RecordMaker(INFO_ID, "sha1")


def response_of(each: Capture) -> bytes:
    """Return the response record of a capture."""
    return MAKER.response(each, digest(each.payload))


def fields_of(record: bytes) -> dict[str, str]:
    return parsed(record).headers.to_dict()


@given(st.binary(min_size=16, max_size=16))
@example(bytes(16))
@example(b"\xff" * 16)
def test_record_id_is_the_version_4_uuid_of_its_bytes(entropy: bytes) -> None:
    assert records.record_id(entropy) == f"<urn:uuid:{UUID(bytes=entropy, version=4)}>"


def test_new_ids_differ() -> None:
    ids = records.RecordIds()
    assert len({ids.new() for _ in range(1000)}) == 1000


@given(st.floats(min_value=-62e9, max_value=253e9))
@example(0.0)
@example(STARTED)
@example(-62135596800.0)
@example(1767225599.9999996)
def test_date_is_in_utc_with_microseconds(seconds: float) -> None:
    moment = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
    assert records.warc_date(seconds) == moment.isoformat(timespec="microseconds") + "Z"


@pytest.mark.parametrize("epoch", [float("nan"), float("inf"), -float("inf"), 1e18, -1e12])
def test_what_is_no_time_is_refused(epoch: float) -> None:
    with pytest.raises(ValueError, match=r"not a time|NaN"):
        records.warc_date(epoch)


def test_response_record_is_these_bytes() -> None:
    """Order, spelling and line ends of the fields are fixed, and the block is verbatim."""
    seventh = capture(7)
    record = response_of(seventh)
    block = seventh.response_bytes
    assert record == (
        b"WARC/1.1\r\n"
        b"WARC-Type: response\r\n"
        b"WARC-Record-ID: " + seventh.identity.encode() + b"\r\n"
        b"WARC-Date: 2026-01-01T00:00:00.250000Z\r\n"
        b"WARC-Target-URI: http://example.org/page/7\r\n"
        b"WARC-Warcinfo-ID: " + INFO_ID.encode() + b"\r\n"
        b"WARC-IP-Address: 192.0.2.7\r\n"
        b"WARC-Protocol: http/1.1\r\n"
        b"WARC-Payload-Digest: " + digest(b"<p>page 7</p>").encode() + b"\r\n"
        b"WARC-Block-Digest: " + digest(block).encode() + b"\r\n"
        b"Content-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n"
    )


def test_request_record_names_its_response() -> None:
    asked = capture(3)
    fields = fields_of(MAKER.request(asked, OTHER_ID))
    assert fields["WARC-Type"] == "request"
    assert fields["WARC-Record-ID"] == OTHER_ID
    assert fields["WARC-Concurrent-To"] == asked.identity
    assert fields["Content-Type"] == "application/http; msgtype=request"
    assert fields["WARC-Block-Digest"] == digest(REQUEST)
    assert "WARC-Payload-Digest" not in fields


def test_metadata_record_holds_the_fields_of_a_note() -> None:
    note = FetchNote("http://example.org/", STARTED, [("via", "http://a/"), ("outlinks", "7")], ID)
    read = parsed(MAKER.metadata(note, OTHER_ID))
    fields, block = read.headers.to_dict(), read.reader.read()
    assert fields["WARC-Type"] == "metadata"
    assert fields["WARC-Record-ID"] == OTHER_ID
    assert fields["WARC-Concurrent-To"] == ID
    assert fields["WARC-Target-URI"] == note.url
    assert fields["WARC-Date"] == "2026-01-01T00:00:00.250000Z"
    assert fields["Content-Type"] == "application/warc-fields"
    assert fields["WARC-Block-Digest"] == digest(block)
    assert block == b"via: http://a/\r\noutlinks: 7\r\n"


def test_metadata_record_without_a_response_names_none() -> None:
    note = FetchNote("http://example.org/", STARTED, [("error", "dns_timeout")])
    assert "WARC-Concurrent-To" not in fields_of(MAKER.metadata(note, OTHER_ID))


@pytest.mark.parametrize(
    ("name", "value"), [("via", "http://a/\r\nWARC-Type: x"), ("a b", "c"), ("", "c"), ("a:", "c")]
)
def test_note_that_would_break_its_block_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"control character|field name"):
        MAKER.metadata(FetchNote("http://a/", STARTED, [(name, value)]), OTHER_ID)


def test_dns_answer_becomes_lines_of_a_master_file() -> None:
    answer = records.dns_resource(
        "example.org.", STARTED, [("192.0.2.7", 300.0), ("2001:db8::1", 60.0)]
    )
    read = parsed(MAKER.resource(answer, OTHER_ID))
    fields, block = read.headers.to_dict(), read.reader.read()
    assert fields["WARC-Type"] == "resource"
    assert fields["WARC-Target-URI"] == "dns:example.org"
    assert fields["Content-Type"] == "text/dns"
    assert block == (
        b"example.org.\t300\tIN\tA\t192.0.2.7\r\nexample.org.\t60\tIN\tAAAA\t2001:db8::1\r\n"
    )
    assert fields["WARC-Payload-Digest"] == fields["WARC-Block-Digest"] == digest(block)


@pytest.mark.parametrize("name", ["a\tb", "a b", "a\r\nb"])
def test_name_that_would_break_its_line_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        MAKER.resource(records.dns_resource(name, STARTED, []), OTHER_ID)


def test_revisit_holds_its_head_and_refers_to_the_original() -> None:
    again = capture(7)
    original = Original("http://other.example/", "2025-01-01T00:00:00.000000Z")
    read = parsed(MAKER.revisit(again, digest(again.payload), original))
    fields, block = read.headers.to_dict(), read.reader.read()
    assert fields["WARC-Type"] == "revisit"
    assert fields["WARC-Record-ID"] == again.identity
    assert fields["WARC-Target-URI"] == again.url
    assert fields["WARC-Profile"].endswith("/warc/1.1/revisit/identical-payload-digest")
    assert fields["WARC-Payload-Digest"] == digest(again.payload)
    assert fields["WARC-Refers-To-Target-URI"] == original.url
    assert fields["WARC-Refers-To-Date"] == original.date
    assert fields["Content-Type"] == "application/http; msgtype=response"
    assert block == b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    assert fields["WARC-Block-Digest"] == digest(block)


def test_304_becomes_a_server_not_modified_revisit() -> None:
    same = capture(odd=Odd(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", b""))
    read = parsed(MAKER.not_modified(same))
    assert read.headers["WARC-Type"] == "revisit"
    assert read.headers["WARC-Profile"].endswith("/warc/1.1/revisit/server-not-modified")
    assert read.reader.read() == same.response_bytes


def test_records_over_tls_name_protocol_and_cipher_suite() -> None:
    secure = capture()
    secure.wire = Wire("192.0.2.7", tls=("TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256"))
    for record in (response_of(secure), MAKER.request(secure, OTHER_ID)):
        lines = record.partition(b"\r\n\r\n")[0].split(b"\r\n")
        assert [line for line in lines if line.startswith((b"WARC-Protocol", b"WARC-Cipher"))] == [
            b"WARC-Protocol: http/1.1",
            b"WARC-Protocol: tls/1.2",
            b"WARC-Cipher-Suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ]


@table(
    ("openssl", "iana"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        ("ECDHE-RSA-AES256-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
        ("DHE-RSA-AES128-SHA256", "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
        ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
        ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
        ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
        ("SOME-OTHER", "SOME-OTHER"),
    ],
)
def test_cipher_suites_have_their_registered_names(openssl: str, iana: str) -> None:
    assert cipher_suite(openssl) == iana


def test_every_offered_cipher_suite_has_its_registered_name() -> None:
    for offered in crawler_tls().get_ciphers():
        assert cipher_suite(offered["name"]).startswith("TLS_"), offered["name"]


@pytest.mark.parametrize(
    ("openssl", "name"), [("TLSv1.3", "tls/1.3"), ("TLSv1.2", "tls/1.2"), ("TLSv1", "tls/1.0")]
)
def test_tls_version_becomes_a_protocol(openssl: str, name: str) -> None:
    assert tls_protocol(openssl) == name


def test_request_with_a_body_has_its_payload_digest() -> None:
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\na\r\n\r\nbc"
    record = MAKER.request(capture(request=post), OTHER_ID)
    fields = parsed(record).headers.to_dict()
    assert fields["WARC-Payload-Digest"] == digest(b"a\r\n\r\nbc")


def test_chunked_response_has_a_block_digest_only() -> None:
    record = response_of(capture(odd=CHUNKED))
    fields = parsed(record).headers.to_dict()
    assert "WARC-Payload-Digest" not in fields
    assert fields["WARC-Block-Digest"] == digest(CHUNKED.response)


@pytest.mark.parametrize("reason", ["length", "time", "disconnect"])
def test_truncated_response_has_its_reason(reason: str) -> None:
    odd = Odd(b"HTTP/1.1 200 OK\r\n\r\nab", b"ab", reason)
    record = response_of(capture(odd=odd))
    assert parsed(record).headers["WARC-Truncated"] == reason


def test_unknown_reason_for_truncation_is_refused() -> None:
    odd = Odd(b"HTTP/1.1 200 OK\r\n\r\nab", b"ab", "length\r\nX: y")
    with pytest.raises(ValueError, match="truncation"):
        response_of(capture(odd=odd))


@table(
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
def test_url_that_is_no_escaped_uri_is_refused(url: str) -> None:
    bad = capture()
    bad.url = url
    with pytest.raises(ValueError, match="escaped URI"):
        response_of(bad)
    with pytest.raises(ValueError, match="escaped URI"):
        MAKER.request(bad, OTHER_ID)


def test_longest_url_can_be_read_back() -> None:
    url = "http://a/" + "b" * (16384 - 9)
    record = response_of(capture(url=url))
    assert parsed(record).headers["WARC-Target-URI"] == url


@given(st.ip_addresses().map(str))
@example("0.0.0.0")
@example("255.255.255.255")
@example("2001:db8:0:0:0:0:0:1")
@example("2001:DB8:0::1")
def test_address_is_written_as_by_the_standard_library(address: str) -> None:
    record = MAKER.request(capture(address=address), ID)
    assert f"\r\nWARC-IP-Address: {ip_address(address)}\r\n".encode() in record


@table(
    "address",
    [
        *("", "example.org", "192.0.2.7\r\nX: y", "1.2.3", "1.2.3.4.", "1.2.3.4\n", "01.2.3.4"),
        *("256.1.1.1", "1.2.3.4.5", "٣.2.3.4"),
    ],
)
def test_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6"):
        response_of(capture(address=address))


def test_record_is_of_its_own_capture_whatever_came_before() -> None:
    """Also if the record before could not be made."""
    shared = records.RecordMaker(ID, "sha1")
    one, other = capture(1), capture(2, address="192.0.2.8")
    other.wire = Wire("192.0.2.8", "1.0", ("TLSv1.3", "TLS_AES_256_GCM_SHA384"))
    later, spaced = capture(2), capture(2, url="http://example.org/a b")
    later.started += 1
    for each in (one, one, other, one, spaced, spaced, later, capture(2), one):
        made = []
        for maker in (shared, records.RecordMaker(ID, "sha1")):
            try:
                made.append(maker.request(each, ID))
            except ValueError as error:
                made.append(str(error).encode())
        assert made[0] == made[1]


def test_warcinfo_record_holds_its_file_name_and_fields() -> None:
    block = records.info_block({"software": "test/1", "operator": "Zoë <z@example.org>"})
    record = MAKER.warcinfo(block, date=records.warc_date(STARTED), filename="a.warc.gz")
    read = parsed(record)
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
def test_warcinfo_fields_that_would_break_a_block_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"field name|control character"):
        records.info_block(fields)


@given(url=st.text(max_size=40), response=st.binary(max_size=200), truncated=st.text(max_size=9))
def test_any_url_and_response_is_refused_or_is_one_record(
    url: str, response: bytes, truncated: str
) -> None:
    """No byte of a URL or a response can begin a field or a record."""
    hostile = capture(odd=Odd(response, response, truncated))
    hostile.url = url
    try:
        record = response_of(hostile)
    except ValueError:
        return
    read = parsed(record)
    digested = is_plain(response, hostile.payload)
    assert len(read.headers) == 10 + digested + bool(truncated)
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
def test_irregular_head_has_no_payload_digest(head: bytes) -> None:
    odd = Odd(head + b"\r\n\r\nbody", b"body")
    record = response_of(capture(odd=odd))
    assert "WARC-Payload-Digest" not in parsed(record).headers.to_dict()


# Text as a hostile server would have it: with what ends lines, fields and records.
HOSTILE = st.text(max_size=30) | st.lists(
    st.sampled_from(
        [
            *("\r", "\n", "\0", "\x85", "\u2028", ": ", " ", "\t", "WARC-Type: x", "WARC/1.1", "a"),
            "\udcff",
        ]
    ),
    max_size=8,
).map("".join)
NAMES = st.sampled_from(["via", "outlinks", "WARC-Type"]) | HOSTILE


def fields_before(record: bytes, block: bytes) -> list[bytes]:
    """Return the lines of a record before its block; nothing else may follow the block."""
    head, _, rest = record.partition(b"\r\n\r\n")
    assert rest == block + b"\r\n\r\n"
    return head.split(b"\r\n")


@given(url=HOSTILE, fields=st.lists(st.tuples(NAMES, HOSTILE), max_size=4), concurrent=HOSTILE)
def test_any_note_is_refused_or_has_a_line_for_each_field(
    url: str, fields: list[tuple[str, str]], concurrent: str
) -> None:
    note = FetchNote(f"http://a/{url}", STARTED, fields, concurrent)
    try:
        record = MAKER.metadata(note, OTHER_ID)
    except ValueError:
        return
    read = parsed(record)
    block = read.reader.read()
    assert block.count(b"\r") == block.count(b"\n") == len(fields)
    assert block == "".join(f"{name}: {value}\r\n" for name, value in fields).encode()
    lines = fields_before(record, block)
    assert len(lines) == 10
    assert f"WARC-Target-URI: http://a/{url}".encode() in lines
    assert f"WARC-Concurrent-To: {concurrent}".encode() in lines
    assert len(list(ArchiveIterator(BytesIO(record), parse_http=False))) == 1


ADDRESSES = st.sampled_from(["192.0.2.7", "2001:db8::1", "fe80::1%eth0"]) | st.builds(
    "fe80::1%{}".format, HOSTILE
)


@given(
    name=st.sampled_from(["a.example", "A.example."]) | st.builds("a{}".format, HOSTILE),
    addresses=st.lists(st.tuples(ADDRESSES, st.integers(0, 2**31).map(float)), max_size=4),
)
def test_any_dns_answer_is_refused_or_has_a_line_an_address(
    name: str, addresses: list[tuple[str, float]]
) -> None:
    try:
        record = MAKER.resource(records.dns_resource(name, STARTED, addresses), OTHER_ID)
    except ValueError:
        return
    block = parsed(record).reader.read()
    lines = block.decode().split("\r\n")
    assert lines.pop() == ""
    assert len(lines) == len(addresses)
    for line in lines:
        assert re.fullmatch(r"[!-~]+\.\t[0-9]+\tIN\tA(AAA)?\t[0-9a-f:.]+", line)
    assert len(fields_before(record, block)) == 10


@given(
    request=st.binary(max_size=60),
    address=ADDRESSES | HOSTILE,
    version=HOSTILE,
    tls=st.none() | st.tuples(HOSTILE, HOSTILE),
    started=st.floats(),
    identity=HOSTILE,
)
def test_any_connection_data_is_refused_or_stays_in_its_field(
    *,
    request: bytes,
    address: str,
    version: str,
    tls: tuple[str, str] | None,
    started: float,
    identity: str,
) -> None:
    hostile = capture(request=request)
    hostile.wire, hostile.started = Wire(address, version, tls), started
    hostile.identity = identity
    blocks = {"response": hostile.response_bytes, "request": request}
    for kind, block in blocks.items():
        response = kind == "response"
        try:
            record = response_of(hostile) if response else MAKER.request(hostile, OTHER_ID)
        except ValueError:
            continue
        lines = fields_before(record, block)
        digested = response or bool(request.partition(b"\r\n\r\n")[2])
        assert len(lines) == 11 + (not response) + digested + 2 * (tls is not None)
        assert [line for line in lines if line.startswith(b"WARC-Type: ")] == [
            f"WARC-Type: {kind}".encode()
        ]
        assert re.search(rb"\r\nWARC-IP-Address: [0-9a-f.:]+\r\n", record)
        assert parsed(record).content_length == len(block)


@pytest.mark.parametrize("end", ["\r\nWARC-Type: x", "\n", "\0", "\x85"])
def test_no_value_ends_its_field_in_any_record(end: str) -> None:
    fine = capture()
    first = Original("http://a/", "2026")
    for hostile, field in [
        (replace(fine, identity=f"{ID}{end}"), "WARC-Record-ID"),
        (replace(fine, wire=Wire("192.0.2.7", f"1.1{end}")), "WARC-Protocol"),
        (replace(fine, wire=Wire("192.0.2.7", tls=(f"TLSv1.3{end}", "x"))), "WARC-Protocol"),
        (replace(fine, wire=Wire("192.0.2.7", tls=("TLSv1.3", f"x{end}"))), "WARC-Cipher-Suite"),
    ]:
        for make in (
            response_of,
            MAKER.not_modified,
            partial(MAKER.revisit, payload="", original=first),
        ):
            with pytest.raises(ValueError, match=f"control character in {field}"):
                make(hostile)
        # A request names its response in a field of its own.
        other = field.replace("Record-ID", "Concurrent-To")
        with pytest.raises(ValueError, match=f"control character in {other}"):
            MAKER.request(hostile, OTHER_ID)
    with pytest.raises(ValueError, match="control character in WARC-Record-ID"):
        MAKER.request(fine, f"{ID}{end}")
    with pytest.raises(ValueError, match="control character in WARC-Concurrent-To"):
        MAKER.metadata(FetchNote("http://a/", STARTED, [], f"{ID}{end}"), OTHER_ID)


@table("code", [*range(0x20), *range(0x7F, 0xA0)])
def test_control_characters_are_refused_in_fields(code: int) -> None:
    """Also those beyond ASCII, such as U+0085, which ends a line."""
    with pytest.raises(ValueError, match="control character in operator"):
        records.info_block({"operator": f"x{chr(code)}y"})


def test_unprintable_character_that_is_no_control_is_kept() -> None:
    assert b"operator: x\xc2\xa0y\r\n" in records.info_block({"operator": "x\xa0y"})
