"""What is written in a quicker way than the standard library's says the same."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krowlspider.archive.payloads.digests import ALGORITHMS, digest, label, raw_digest
from krowlspider.archive.write.records import RecordMaker, record_id, warc_date

from .captures import capture

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID = record_id(bytes(16))


@given(st.binary(min_size=16, max_size=16))
@example(bytes(16))
@example(b"\xff" * 16)
def test_a_record_id_is_the_version_4_uuid_of_its_bytes(entropy: bytes) -> None:
    assert record_id(entropy) == f"<urn:uuid:{UUID(bytes=entropy, version=4)}>"


@given(st.binary(min_size=20, max_size=20) | st.binary(min_size=32, max_size=32))
@example(bytes(20))
@example(b"\xff" * 20)
def test_a_digest_is_labelled_in_base32(raw: bytes) -> None:
    assert label(raw, "x") == "x:" + b32encode(raw).decode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_digest_is_that_of_its_algorithm(algorithm: str) -> None:
    raw = hashlib.new(algorithm, b"content").digest()
    assert raw_digest(b"content", algorithm) == raw
    assert digest(b"content", algorithm) == f"{algorithm}:{b32encode(raw).decode()}"


@given(st.floats(min_value=-62e9, max_value=253e9))
@example(0.0)
@example(1767225599.9999996)
def test_a_date_is_that_of_the_epoch_in_utc(seconds: float) -> None:
    moment = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
    assert warc_date(seconds) == moment.isoformat(timespec="microseconds") + "Z"


@given(st.ip_addresses().map(str))
@example("0.0.0.0")
@example("255.255.255.255")
@example("2001:DB8:0::1")
def test_an_address_is_written_as_the_standard_library_writes_it(address: str) -> None:
    record = RecordMaker(ID, "sha1").request(capture(address=address), ID)
    assert f"\r\nWARC-IP-Address: {ip_address(address)}\r\n".encode() in record


@pytest.mark.parametrize(
    "address",
    ["", "1.2.3", "1.2.3.4.", "1.2.3.4\n", "01.2.3.4", "256.1.1.1", "1.2.3.4.5", "٣.2.3.4"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        RecordMaker(ID, "sha1").request(capture(address=address), ID)


def test_a_record_tells_of_its_own_capture_whatever_came_before_it() -> None:
    """Also when the one before could not be made."""
    shared = RecordMaker(ID, "sha1")
    one, other = capture(1), capture(2, address="192.0.2.8")
    other.tls, other.version = ("TLSv1.3", "TLS_AES_256_GCM_SHA384"), "1.0"
    later, spaced = capture(2), capture(2, url="http://example.org/a b")
    later.started += 1
    for each in (one, one, other, one, spaced, spaced, later, capture(2), one):
        made = []
        for maker in (shared, RecordMaker(ID, "sha1")):
            try:
                made.append(maker.request(each, ID))
            except ValueError as error:
                made.append(str(error).encode())
        assert made[0] == made[1]
