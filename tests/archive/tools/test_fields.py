"""The fields of records, as the check judges them."""

from __future__ import annotations

import re

import pytest

from krowlspider.archive.payload import digest
from krowlspider.archive.tools.check import faults_in
from krowlspider.archive.write import records
from tests.archive.captures import capture, parsed
from tests.support.tables import table

ID = records.record_id(bytes(16))
MAKER = records.RecordMaker(ID, "sha1")
GOOD = MAKER.response(capture(), digest(capture().payload))


def faults(old: str, new: str, good: bytes = GOOD) -> list[tuple[bool, str]]:
    """Return the faults of a record with one change."""
    changed, count = re.subn(old.encode(), new.encode(), good, count=1)
    assert count == 1
    return list(faults_in(parsed(changed)))


@table(
    ("old", "new", "what"),
    [
        ("Record-ID: <.*>", "Record-ID: <urn:uuid:1>", "WARC-Record-ID is '<urn:uuid:1>'"),
        ("Record-ID: <(.*)>", r"Record-ID: \1", "WARC-Record-ID is 'urn:uuid:"),
        ("Record-ID: <.*>", "Record-ID: <a b>", "WARC-Record-ID is '<a b>'"),
        ("Warcinfo-ID: <.*>", "Warcinfo-ID: <>", "WARC-Warcinfo-ID is '<>'"),
        ("Date: .*Z", "Date: 2026-02-30T00:00:00Z", "WARC-Date is '2026-02-30"),
        ("Date: .*Z", "Date: 2026-01-01T24:00:00Z", "WARC-Date is '2026-01-01T24"),
        ("Date: .*Z", "Date: 2026-01-01T00:00:00", "WARC-Date is"),
        ("Date: .*Z", "Date: 2026-01-01T00:00:00+01:00", "WARC-Date is"),
        ("Date: .*Z", "Date: 20260101000000", "WARC-Date is"),
        ("Date: .*Z", "Date: 2026-01-01 00:00:00Z", "WARC-Date is"),
        ("WARC-Target-URI", "WARC-Target-URL", "no WARC-Target-URI, which a response needs"),
        ("Type: response", "Type: revisit", "no WARC-Profile, which a revisit needs"),
        ("IP-Address: .*\r", "IP-Address: 300.0.0.1\r", "WARC-IP-Address is '300.0.0.1'"),
        ("IP-Address: .*\r", "IP-Address: fe80::1%eth0x\r", None),
        ("IP-Address: ", "IP-Address: 1.2.3.4\r\nWARC-Ip-Address: ", "2 fields warc-ip-address"),
        ("WARC-Date", "WARC-Truncated: too long\r\nWARC-Date", "WARC-Truncated is 'too long'"),
        ("WARC-Date", "WARC-Refers-To: <x>\r\nWARC-Date", "WARC-Refers-To is '<x>'"),
        ("WARC-Date", "WARC-Refers-To-Date: x\r\nWARC-Date", "WARC-Refers-To-Date is 'x'"),
    ],
)
def test_malformed_field_is_a_problem(old: str, new: str, what: str | None) -> None:
    assert list(faults_in(parsed(GOOD))) == []
    found = faults(old, new)
    if what is None:
        assert found == []
    else:
        assert [(is_fault, text[: len(what)]) for is_fault, text in found] == [(True, what)]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Type: response", "Type: screenshot", "the type 'screenshot' is not known"),
        ("URI: .*\r", "URI: http://a/b c\r", "WARC-Target-URI is 'http://a/b c'"),
        ("URI: .*\r", "URI: /b\r", "WARC-Target-URI is '/b'"),
        ("WARC-Date", "WARC-Truncated: power\r\nWARC-Date", "WARC-Truncated is 'power'"),
        ("Block-Digest: .*\r", "Block-Digest: crc32:1\r", "WARC-Block-Digest is 'crc32:1'"),
    ],
)
def test_extension_of_the_standard_is_a_warning(old: str, new: str, what: str) -> None:
    assert faults(old, new) == [(False, what)]


@table(
    ("old", "new"),
    [
        ("WARC/1.1", "WARC/1.0"),
        ("Date: .*Z", "Date: 2026"),
        ("Date: .*Z", "Date: 2026-12"),
        ("Date: .*Z", "Date: 2024-02-29"),
        ("Date: .*Z", "Date: 2026-01-01T00:00Z"),
        ("Date: .*Z", "Date: 2016-12-31T23:59:60.123456789Z"),
        ("Record-ID: <.*>", "Record-ID: <http://a/1>"),
        ("IP-Address: .*\r", "IP-Address: 2001:db8::1\r"),
        ("URI: (.*)\r", r"URI: <\1>\r"),
        ("URI: .*\r", "URI: urn:x:y\r"),
        ("WARC-Date", "WARC-Truncated: unspecified\r\nWARC-Date"),
        ("WARC-Date", "WARC-Concurrent-To: <a:b>\r\nWARC-Concurrent-To: <a:c>\r\nWARC-Date"),
        ("WARC-Date", "X-Own: 1\r\nX-Own: 2\r\nWARC-Date"),
    ],
)
def test_every_form_of_the_standard_is_accepted(old: str, new: str) -> None:
    assert faults(old, new) == []
